"""Connections: QPs of two hosts that have proved who they are (protocol.md 7, 8).

`connect()` and `Listener.accept()` INIT the QPs on the own worker, then run the
key exchange in a program of its own, `python -m srdma.keyex`, which alone sees
secrets. It lives as long as the connection: its end is the peer's, and the
other way round.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from srdma import forked
from srdma.control import Control
from srdma.errors import DeviceError, LocalError, RemoteError, Timeout, WorkerGone
from srdma.exchange import Role, mode_name
from srdma.exchange_messages import (
    DATA_MAX,
    LEVELS,
    MODE_BASIC,
    MODE_PD,
    MODES,
    QPS_MAX,
    UNPROTECTED,
    ExchangeError,
    Suite,
)
from srdma.identity import CA_CERT, Credentials
from srdma.keyprocess import KeyProcess
from srdma.pd import PD
from srdma.policy import recommended, suite_named
from srdma.qp import DEPTH, TIMEOUT, SecureQP
from srdma.resource import Resource

log = logging.getLogger("srdma")

CONNECT_TIMEOUT = 30.0
REKEY_EVERY, REKEY_LIMIT = 3600.0, 30.0  # seconds, protocol.md 8.5
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

TRUST_GROUP = (
    "Every member of a trust group has its keys: it can read and forge what any two others of it "
    "say. It is for machines that trust each other wholly."
)

Address = tuple[str, int]


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


class Connection(Resource):
    """QPs connected to one peer. `data` and `identity` are the peer's."""

    def __init__(
        self, pd: PD, sock: socket.socket, role: Role, options: Options,
        address: Address | None = None,
    ) -> None:  # fmt: skip
        """address: of the listener that was called; None at the listener's end."""
        super().__init__(pd)
        self._pd = pd
        self._options = options
        self._address = address
        self.qps: list[SecureQP] = []
        self._process: KeyProcess | None = None
        deadline = time.monotonic() + options.timeout
        forked.drop(sock)
        try:
            suites = options.allowed_by(pd)
            for _ in range(options.qps):
                qp = SecureQP(
                    pd, options.sq, options.rq, timeout=options.qp_timeout, mtu=options.mtu
                )
                self.qps.append(qp)
            config = {
                "role": role,
                **vars(options.credentials()),
                "peer": options.peers,
                "suites": [list(suite) for suite in suites],
                "modes": options.modes(role),
                "group": pd.group,
                "leg": pd.leg,
                "qps": [vars(qp.info) for qp in self.qps],
                "data": options.data,
                "timeout": options.timeout,
                "every": options.rekey_every,
                "limit": REKEY_LIMIT,
            }
            self._process = KeyProcess(sock, _attached(pd), config)
            self._peer = self._process.wait_ready(deadline)
        except BaseException:
            self.close()
            raise
        finally:
            sock.close()
        for qp in self.qps:
            qp.connected, qp.mode = True, self.mode
        if self._peer.mode & MODE_PD:
            pd.sharers.append(self)
        self._warn()

    @property
    def qp(self) -> SecureQP:
        """The first QP, of most connections the only one."""
        return self.qps[0]

    @property
    def identity(self) -> str:
        """Of the peer, as its certificate says."""
        return self._peer.identity

    @property
    def data(self) -> bytes:
        """What the peer sent along."""
        return self._peer.data

    @property
    def suite(self) -> Suite:
        return self._peer.suite

    @property
    def mode(self) -> str:
        """Key mode: "basic", "pd", "mem" or "pd+mem"."""
        return mode_name(self._peer.mode)

    @property
    def trust_group(self) -> str:
        """The one whose key makes the secrets; "" if they are of these two ends alone."""
        return self._peer.trust_group

    @property
    def group(self) -> str:
        """Of the TLS key agreement."""
        return self._peer.group

    def fileno(self) -> int:
        """Readable when alive() may have changed."""
        self.ensure_alive()
        assert self._process is not None
        return self._process.fileno()

    def alive(self) -> bool:
        """False once the peer closed the connection, or its key exchange ended."""
        self.ensure_mine()
        return self._process is not None and not self._process.ended()

    def reconnect(self) -> Connection:
        """Close this connection and make the same again: address, PD and options.

        For the client's end when QPs have failed, as with WIRE_LOST where the peer's worker or
        machine started again: a wire that dies alone is connected again by the workers, and ends
        no QP. The new connection has new keys and new QPs; regions and capabilities of the PD stay
        as they are, what was the peer's may be gone with its worker, and comes anew in `data`.
        """
        address, pd, options = self.route()
        self.close()
        return Connection(pd, dial(address, options.timeout), "client", options, address)

    def route(self) -> tuple[Address, PD, Options]:
        """What it was made of; raises where it cannot be made again."""
        self.ensure_mine()
        if self._address is None:
            raise LocalError(
                "this end was called: the client connects again, and the listener accepts it"
            )
        self._pd.ensure_alive()
        if not self._pd.control.alive():
            raise WorkerGone(
                "the own worker is gone, and its PDs with it: start it, open a Context and a PD, "
                "and connect() with them"
            )
        return self._address, self._pd, self._options

    def rekey(self, timeout: float = CONNECT_TIMEOUT) -> None:
        """New secrets for all QPs, by a new key exchange, while they go on (protocol.md 8.5).

        Returns when both directions of each QP use what it brought. A Timeout does not end the
        exchange; one that fails ends the connection. In key mode "pd" the own end's secret is new
        if its PD's key may be rotated, see `PD.rotate()`; with a trust group the secrets stay, and
        only who the ends are is proved anew.
        """
        wish = self.wish()
        self.wait_renewed(wish, time.monotonic() + timeout)

    def wish(self) -> int:
        """Ask for new secrets; what to give to wait_renewed()."""
        self.ensure_alive()
        if self.suite == UNPROTECTED:
            raise LocalError('level="none" has no secrets that could be renewed')
        assert self._process is not None
        return self._process.wish()

    def wait_renewed(self, wish: int, deadline: float) -> None:
        """Until an exchange that began after the wish took effect."""
        assert self._process is not None
        self._process.wait_renewed(wish, deadline)

    def _warn(self) -> None:
        if self.suite.level == LEVELS["header"]:
            log.warning("SRDMA_UNPROTECTED_PAYLOAD: %d QPs. %s", len(self.qps), HEADER_ONLY)
        elif self.suite == UNPROTECTED:
            log.warning("%d QPs without any protection (level none)", len(self.qps))
        if self.trust_group:
            log.warning(
                "SRDMA_TRUST_GROUP: %d QPs in %r. %s", len(self.qps), self.trust_group, TRUST_GROUP
            )

    def _release(self) -> None:
        """All of it, also where one fails."""
        with contextlib.suppress(ValueError):
            self._pd.sharers.remove(self)
        with contextlib.ExitStack() as stack:
            if self._process is not None:
                stack.callback(self._process.close)
            for qp in reversed(self.qps):
                stack.callback(qp.close)


class Listener(Resource):
    """Waits for peers at a TCP address."""

    def __init__(self, address: Address, pd: PD, options: Options) -> None:
        super().__init__(pd)
        self._pd = pd
        self._options = options
        self._sock: socket.socket | None = None
        try:
            options.allowed_by(pd)
            options.credentials()
            self._sock = _listen(address)
            forked.drop(self._sock)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """With the port that the system chose for port 0."""
        host, port = self.sock.getsockname()[:2]
        return host, port

    @property
    def sock(self) -> socket.socket:
        self.ensure_alive()
        assert self._sock is not None
        return self._sock

    def fileno(self) -> int:
        """Readable when accept() would not wait for a peer to come."""
        return self.sock.fileno()

    def accept(self, timeout: float | None = None) -> Connection:
        """The next peer. timeout: for one to come; the key exchange has its own.

        A peer that fails raises; the listener stays usable.
        """
        return self.meet(self.take(timeout))

    def take(self, timeout: float | None) -> socket.socket:
        """The socket of the next peer."""
        self.sock.settimeout(timeout)
        try:
            sock, _ = self.sock.accept()
        except (TimeoutError, BlockingIOError) as e:  # the latter for timeout 0
            raise Timeout(f"nobody connected in {timeout} s") from e
        except OSError as e:
            raise LocalError(f"the listener ended: {e.strerror}") from e
        return sock

    def meet(self, sock: socket.socket) -> Connection:
        """The peer at a socket of take()."""
        return Connection(self._pd, sock, "server", self._options)

    def _release(self) -> None:
        if self._sock is not None:
            self._sock.close()


def listen(address: Address, pd: PD, **options: object) -> Listener:
    """Wait for peers at (host, port); the keywords are those of `Options`."""
    return Listener(address, pd, Options(**options))  # type: ignore[arg-type]


def connect(address: Address, pd: PD, **options: object) -> Connection:
    """Connect to a listener at (host, port); the keywords are those of `Options`."""
    chosen = prepared(pd, options)
    return Connection(pd, dial(address, chosen.timeout), "client", chosen, address)


def prepared(pd: PD, options: Mapping[str, object]) -> Options:
    """Options of a client, checked before anybody is called."""
    pd.ensure_alive()
    chosen = Options(**options)  # type: ignore[arg-type]
    chosen.allowed_by(pd)
    chosen.credentials()
    return chosen


def _attached(pd: PD) -> Control:
    """A control connection that may use the PD's leg."""
    control = pd.connect()
    try:
        control.attach(pd.token)
    except BaseException:
        control.close()
        raise
    return control


def _where(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _listen(address: Address) -> socket.socket:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(address, family=family)
    except OSError as e:
        raise DeviceError(f"cannot listen at {_where(address)}: {e.strerror or e}") from e


def dial(address: Address, timeout: float) -> socket.socket:
    try:
        return socket.create_connection(address, timeout)
    except TimeoutError as e:
        raise Timeout(f"{_where(address)} did not answer in {timeout} s") from e
    except socket.gaierror as e:
        raise LocalError(f"{_where(address)}: no such host: {e.strerror}") from e
    except ConnectionRefusedError as e:
        raise RemoteError(f"nobody listens at {_where(address)}") from e
    except OSError as e:
        raise RemoteError(f"cannot reach {_where(address)}: {e.strerror or e}") from e
