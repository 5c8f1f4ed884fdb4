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
from collections.abc import Mapping

from srdma._engine.resource import Resource
from srdma.control import Control, forked
from srdma.errors import DeviceError, LocalError, RemoteError, Timeout, WorkerGone
from srdma.keyex.exchange import Role, mode_name
from srdma.keyex.messages import LEVELS, MODE_PD, UNPROTECTED, Suite
from srdma.keyex.process import KeyProcess
from srdma.options import CONNECT_TIMEOUT, HEADER_ONLY, Options
from srdma.pd import PD
from srdma.qp import SecureQP

log = logging.getLogger("srdma")

REKEY_LIMIT = 30.0  # seconds, protocol.md 8.5

TRUST_GROUP = (
    "Every member of a trust group has its keys: it can read and forge what any two others of it "
    "say. It is for machines that trust each other wholly."
)

Address = tuple[str, int]


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
