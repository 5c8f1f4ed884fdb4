"""Options of connections: the keywords of `connect()` and `listen()`, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from srdma.errors import LocalError
from srdma.identity import Credentials
from srdma.keyex.exchange import Role, mode_name
from srdma.keyex.fields import ExchangeError
from srdma.keyex.offers import (
    DATA_MAX,
    LEVELS,
    MODE_BASIC,
    MODES,
    QPS_MAX,
    REQUIRED,
    UNPROTECTED,
    Suite,
)
from srdma.keyex.policy import describe, recommended, suite_named
from srdma.pd import PD
from srdma.qp import DEPTH, TIMEOUT
from srdma.uri import check_pattern

if TYPE_CHECKING:
    from srdma.connection import Connection

CONNECT_TIMEOUT = 30.0
REKEY_EVERY = 3600.0  # seconds between renewals (protocol.md 8.5)
REKEY_LEAST, REKEY_MOST = 0.1, 1e6
MAX_SECRET_AGE = 24 * 3600.0
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
    """Options of a connection: the keywords of `connect()` and `listen()`. LocalError if illegal.

    identity: credentials of this end: a Credentials, or the path NAME of the files NAME.pem and
        NAME.key, with ca.pem in the same folder. With a system agent: a name in its policy.
    peer: permitted identities of the other end (URIs); * in the path stands for any characters of
        one segment. Without any, every identity of the CA is permitted.
    qps: number of QPs made by one key exchange, 1 to 256.
    suites: names in order of preference (protocol.md 3.3); default: AEAD_SUITES or MAC_SUITES.
        "auto": the recommended suites of the level, fastest on the local worker first.
    tag_len: length of the tag in bytes; only with named suites, of which each must support it.
        0: the default of the suite.
    level: "aead", "packet", "header" (with unprotected_payload=True), or "none" (protocol.md 4.5).
    require: "packet" or "aead": the least level. A suite below it is an error of these options, and
        a peer without one at it is refused before keys exist (agent.md 6).
    mode: key mode, "basic", "pd", "mem" or "pd+mem" (protocol.md 3.4), or several in order of
        preference. Default: a client offers "basic", a listener allows all. If the PD has a trust
        group, "pd" is possible with peers of that group only.
    data: up to 256 bytes for the peer, which can read them before it uses the QPs; or a function
        that returns them. It is called for each connection, with the Connection, when its QPs
        exist and before the peer gets keys: so that it can register a region with one of them as
        scope, and send its name. `qps` is known then, and at a listener `identity`.
    sq, rq, mtu, qp_timeout: as sq, rq, mtu and timeout of SecureQP, for each QP.
    timeout: seconds to connect, the key exchange included.
    rekey_every: seconds between renewals of the secrets (protocol.md 8.5), 0.1 to 10^6; 0: this
        end starts no periodic renewals.
    max_secret_age: seconds after which the QPs end if their secrets were not renewed (agent.md 5),
        1 to 10^6. Certificates that expire end them earlier.
    """

    identity: Credentials | str | Path
    peer: str | Sequence[str] = ()
    qps: int = 1
    suites: Sequence[str] = ()
    tag_len: int = 0
    level: str = ""
    require: str = ""
    mode: str | Sequence[str] = ()
    unprotected_payload: bool = False
    data: bytes | Callable[[Connection], bytes] = b""
    sq: int = DEPTH
    rq: int = DEPTH
    mtu: int = 0
    qp_timeout: float = TIMEOUT
    timeout: float = CONNECT_TIMEOUT
    rekey_every: float = REKEY_EVERY
    max_secret_age: float = MAX_SECRET_AGE
    wanted: tuple[Suite, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.qps <= QPS_MAX:
            raise LocalError(f"qps={self.qps}: one connection has 1 to {QPS_MAX}")
        if not callable(self.data):
            _check_data(self.data)
        if self.rekey_every and not REKEY_LEAST <= self.rekey_every <= REKEY_MOST:
            raise LocalError(
                f"rekey_every={self.rekey_every}: it must be {REKEY_LEAST} to {REKEY_MOST} seconds,"
                " or 0 for never"
            )
        if not 1 <= self.max_secret_age <= REKEY_MOST:
            raise LocalError(
                f"max_secret_age={self.max_secret_age}: it must be 1 to {REKEY_MOST} seconds"
            )
        self._check_peers()
        object.__setattr__(self, "wanted", self._wanted())
        self._check_require()
        self._check_modes()

    def data_for(self, connection: Connection) -> bytes:
        """`data` of a connection. Raises LocalError, and what the function raises."""
        data = self.data(connection) if callable(self.data) else self.data
        _check_data(data)
        return data

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
            raise LocalError(f"level {level!r}: give one of {', '.join(LEVELS)}")
        if level == "header" and not self.unprotected_payload:
            raise LocalError(
                f'level="header" leaves the payload unprotected. {HEADER_ONLY} '
                "To accept this, give unprotected_payload=True"
            )
        if self.unprotected_payload and level != "header":
            raise LocalError('unprotected_payload=True is legal with level="header" only')

    def _check_suites(self, level: str) -> None:
        if level == "none" and self.suites:
            raise LocalError('level="none" has no suite: leave suites out')
        if isinstance(self.suites, str) and not self.auto:
            raise LocalError(f'suites={self.suites!r}: give a list of names, or "auto"')
        if AUTO in self.suites and not self.auto:
            raise LocalError('"auto" cannot be combined with suites: give suites="auto", or names')
        if self.tag_len and (self.auto or not self.suites):
            raise LocalError(f"tag_len={self.tag_len}: name the suites too; each must support it")
        if "none" in self.suites:
            raise LocalError('"none" is no suite: to have no protection, give level="none"')

    def _check_require(self) -> None:
        if not self.require:
            return
        if self.require not in REQUIRED:
            raise LocalError(f"require={self.require!r}: give one of {', '.join(REQUIRED)}")
        if below := [s for s in self.wanted if s.level < LEVELS[self.require]]:
            raise LocalError(
                f"require={self.require!r}, but these options permit "
                f"{'; '.join(map(describe, below))}: leave it out"
            )

    def _check_peers(self) -> None:
        for pattern in self.peers:
            try:
                check_pattern(pattern)
            except ValueError as e:
                raise LocalError(
                    f"peer={pattern!r:.300} is no pattern of identities: {e}; give a URI such as "
                    "spiffe://example.org/host-a, in whose path * may stand"
                ) from None

    def _check_modes(self) -> None:
        for name in self.mode_names:
            if name not in MODES:
                raise LocalError(f"mode {name!r}: give one of {', '.join(MODES)}")
        if len(set(self.mode_names)) != len(self.mode_names):
            raise LocalError(f"mode={self.mode!r}: name each mode once")
        if self.wanted == (UNPROTECTED,) and {*self.mode_names} - {mode_name(MODE_BASIC)}:
            raise LocalError(
                f'mode={self.mode!r}: level="none" has no keys, so it has "basic" only'
            )

    @property
    def mode_names(self) -> list[str]:
        """Key modes that the option names; empty for the default."""
        return [self.mode] if isinstance(self.mode, str) else list(self.mode)

    def modes(self, role: Role) -> list[int]:
        """Key modes that an end of this role offers (client) or allows (server)."""
        if self.mode_names:
            return [MODES[name] for name in self.mode_names]
        if role == "client" or self.wanted == (UNPROTECTED,):
            return [MODE_BASIC]
        return list(MODES.values())

    @property
    def auto(self) -> bool:
        """True if the recommended suites are used in the order of their speed."""
        return self.suites == AUTO or list(self.suites) == [AUTO]

    @property
    def peers(self) -> list[str]:
        return [self.peer] if isinstance(self.peer, str) else list(self.peer)

    def allowed_by(self, pd: PD) -> tuple[Suite, ...]:
        """The suites of `wanted` that the local worker has; without any, raises LocalError.

        With "auto" they are in the order of speed that the worker measured at its start.
        """
        hello = pd.ctx.hello
        if self.wanted == (UNPROTECTED,):
            if not hello.allow_unprotected:
                raise LocalError(
                    'level="none" needs a worker started with --allow-unprotected, '
                    f"and {hello.name} was not"
                )
            return self.wanted
        available = tuple(suite for suite in self.wanted if suite.id in hello.suites)
        if not available:
            raise LocalError(f"the worker {hello.name} has none of the requested suites")
        return (
            tuple(sorted(available, key=lambda s: hello.suites.index(s.id)))
            if self.auto
            else available
        )


def _check_data(data: object) -> None:
    if not isinstance(data, bytes):
        raise LocalError(f"data is a {type(data).__name__}: it must be bytes")
    if len(data) > DATA_MAX:
        raise LocalError(f"{len(data)} bytes of data: at most {DATA_MAX} can be sent")
