"""How to connect: what a program may say to `connect()` and `listen()`, and what of it is legal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srdma.errors import LocalError
from srdma.identity import CA_CERT, Credentials
from srdma.keyex.exchange import Role, mode_name
from srdma.keyex.messages import (
    DATA_MAX,
    LEVELS,
    MODE_BASIC,
    MODES,
    QPS_MAX,
    UNPROTECTED,
    ExchangeError,
    Suite,
)
from srdma.keyex.policy import recommended, suite_named
from srdma.pd import PD
from srdma.qp import DEPTH, TIMEOUT

CONNECT_TIMEOUT = 30.0
REKEY_EVERY = 3600.0  # seconds, protocol.md 8.5
REKEY_LEAST, REKEY_MOST = 0.1, 1e6
AEAD_SUITES = ("aes-128-gcm", "aes-256-gcm", "chacha20-poly1305")
MAC_SUITES = ("aes-128-gmac", "aes-128-cmac", "hmac-sha256")
AUTO = "auto"

HEADER_ONLY = (
    "Header-only: srdma proves who sent the request, its operation, address, length, order and "
    "freshness. It does not protect the bytes themselves. Anyone on the path can replace them "
    "unnoticed. Do not use where memory holds code, pointers, metadata or anything not "
    "separately protected."
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to connect; the keywords of `connect()` and `listen()`.

    identity: who this end is, a Credentials or the path of one: NAME for
        NAME.pem and NAME.key, with ca.pem beside them.
    peer: identities that may be at the other end; * stands for any characters
        but /. None: any of the CA.
    qps: how many QPs to make over one key exchange.
    suites: names in order of preference; by default three of the level. "auto": the
        recommended ones of the level, the fastest on the own worker's machine first.
    tag_len: bytes of the tag, for suites that are named and take others than their own.
    level: "aead", "packet", "header" (with unprotected_payload=True), or "none".
    mode: key mode, "basic", "pd", "mem" or "pd+mem", or several in order of preference. By
        default a client offers "basic", a listener allows all. Where the PD has a trust
        group, "pd" is with peers of that group only.
    data: up to 256 bytes for the peer, which it may read before it uses the QPs.
    sq, rq, mtu, qp_timeout: of each QP. timeout: of connecting, in seconds.
    rekey_every: seconds after which this end has new secrets made, 0 for never by the clock.
    """

    identity: Credentials | str | Path
    peer: str | Sequence[str] = ()
    qps: int = 1
    suites: Sequence[str] = ()
    tag_len: int = 0
    level: str = ""
    mode: str | Sequence[str] = ()
    unprotected_payload: bool = False
    data: bytes = b""
    sq: int = DEPTH
    rq: int = DEPTH
    mtu: int = 0
    qp_timeout: float = TIMEOUT
    timeout: float = CONNECT_TIMEOUT
    rekey_every: float = REKEY_EVERY
    wanted: tuple[Suite, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.qps <= QPS_MAX:
            raise LocalError(f"qps={self.qps}: one connection has 1 to {QPS_MAX}")
        if len(self.data) > DATA_MAX:
            raise LocalError(f"{len(self.data)} bytes of data: at most {DATA_MAX} go along")
        if self.rekey_every and not REKEY_LEAST <= self.rekey_every <= REKEY_MOST:
            raise LocalError(
                f"rekey_every={self.rekey_every}: it must be {REKEY_LEAST} to {REKEY_MOST} seconds,"
                " or 0 for never"
            )
        object.__setattr__(self, "wanted", self._wanted())
        self._check_modes()

    def _wanted(self) -> tuple[Suite, ...]:
        level = self.level or ("" if self.suites and not self.auto else "aead")
        self._check_level(level)
        self._check_suites(level)
        if level == "none":
            return (UNPROTECTED,)
        names = self.suites or (AEAD_SUITES if level == "aead" else MAC_SUITES)
        if self.auto:
            names = recommended(LEVELS[level])
        try:
            return tuple(suite_named(name, level or None, self.tag_len or None) for name in names)
        except ExchangeError as e:
            raise LocalError(str(e)) from e

    def _check_level(self, level: str) -> None:
        if level and level not in LEVELS:
            raise LocalError(f"level {level!r}: there are {', '.join(LEVELS)}")
        if level == "header" and not self.unprotected_payload:
            raise LocalError(
                f'level="header" leaves the payload unprotected. {HEADER_ONLY} '
                "If that is what you want, say unprotected_payload=True"
            )
        if self.unprotected_payload and level != "header":
            raise LocalError('unprotected_payload=True goes with level="header" only')

    def _check_suites(self, level: str) -> None:
        if level == "none" and self.suites:
            raise LocalError('level="none" has no suite: leave suites out')
        if isinstance(self.suites, str) and not self.auto:
            raise LocalError(f'suites={self.suites!r}: give a list of names, or "auto"')
        if AUTO in self.suites and not self.auto:
            raise LocalError('"auto" stands alone: name suites, or leave the choice to it')
        if self.tag_len and (self.auto or not self.suites):
            raise LocalError(f"tag_len={self.tag_len}: name the suites too, not all take it")
        if "none" in self.suites:
            raise LocalError('no protection is asked for as level="none", not as a suite')

    def _check_modes(self) -> None:
        for name in self.mode_names:
            if name not in MODES:
                raise LocalError(f"mode {name!r}: there are {', '.join(MODES)}")
        if len(set(self.mode_names)) != len(self.mode_names):
            raise LocalError(f"mode={self.mode!r}: name each once")
        if self.wanted == (UNPROTECTED,) and {*self.mode_names} - {mode_name(MODE_BASIC)}:
            raise LocalError(
                f'mode={self.mode!r}: level="none" has no keys, so it has "basic" only'
            )

    @property
    def mode_names(self) -> list[str]:
        """Those named."""
        return [self.mode] if isinstance(self.mode, str) else list(self.mode)

    def modes(self, role: Role) -> list[int]:
        """What an end of this role offers or allows."""
        if self.mode_names:
            return [MODES[name] for name in self.mode_names]
        if role == "client" or self.wanted == (UNPROTECTED,):
            return [MODE_BASIC]
        return list(MODES.values())

    @property
    def auto(self) -> bool:
        """Shall speed choose among the recommended suites?"""
        return self.suites == AUTO or list(self.suites) == [AUTO]

    @property
    def peers(self) -> list[str]:
        return [self.peer] if isinstance(self.peer, str) else list(self.peer)

    def credentials(self) -> Credentials:
        if isinstance(self.identity, Credentials):
            return self.identity
        path = Path(self.identity)
        return Credentials.load(
            path.with_name(path.name + ".pem"),
            path.with_name(path.name + ".key"),
            path.with_name(CA_CERT),
        )

    def allowed_by(self, pd: PD) -> tuple[Suite, ...]:
        """What of `wanted` the own worker has, checked before anybody is called.

        With "auto" in the order that the worker found when it measured them.
        """
        hello = pd.ctx.hello
        if self.wanted == (UNPROTECTED,):
            if not hello.allow_unprotected:
                raise LocalError(
                    'level="none" needs a worker started with --allow-unprotected, '
                    f"and {hello.name} was not"
                )
            return self.wanted
        had = tuple(suite for suite in self.wanted if suite.id in hello.suites)
        if not had:
            raise LocalError(f"the worker {hello.name} has none of the suites asked for")
        return tuple(sorted(had, key=lambda s: hello.suites.index(s.id))) if self.auto else had
