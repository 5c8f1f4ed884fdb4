"""Connections: QPs of two hosts that authenticated each other (protocol.md 7, 8).

`connect()` and `Listener.accept()` make the QPs at the local worker (INIT), then run the key
exchange in a separate process, `python -m srdma.keyex`. Only that process handles secrets. It
lives as long as the connection and holds its TLS connection: if one end closes, so does the other.
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

REKEY_LIMIT = 30.0  # seconds that an exchange may take (protocol.md 8.5)

TRUST_GROUP = (
    "Every member of a trust group has its keys: it can read and forge all packets between any "
    "two other members. Use a group only for machines that trust each other completely."
)

Address = tuple[str, int]


class Connection(Resource):
    """QPs that are connected to one peer; made by connect() and Listener.accept().

    Closing it closes its QPs and ends them at the peer with reason PEER_CLOSED.
    """

    def __init__(
        self, pd: PD, sock: socket.socket, role: Role, options: Options,
        address: Address | None = None,
    ) -> None:  # fmt: skip
        """sock: connected TCP socket, closed here. address: of the listener; None if accepted."""
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
        """The first QP; most connections have only one."""
        return self.qps[0]

    @property
    def identity(self) -> str:
        """URI of the peer's certificate."""
        return self._peer.identity

    @property
    def data(self) -> bytes:
        """The peer's option `data`, at most 256 bytes; both ends are authenticated."""
        return self._peer.data

    @property
    def suite(self) -> Suite:
        """Suite and level that protect the packets (protocol.md 3.3, 4.5)."""
        return self._peer.suite

    @property
    def mode(self) -> str:
        """Key mode: "basic", "pd", "mem" or "pd+mem"."""
        return mode_name(self._peer.mode)

    @property
    def trust_group(self) -> str:
        """Trust group whose key the secrets are derived from; "" if there is none."""
        return self._peer.trust_group

    @property
    def group(self) -> str:
        """Name of the group of the TLS key agreement."""
        return self._peer.group

    def fileno(self) -> int:
        """File descriptor that is readable when alive() may have changed."""
        self.ensure_alive()
        assert self._process is not None
        return self._process.fileno()

    def alive(self) -> bool:
        """False once the peer closed the connection, or the key-exchange process ended."""
        self.ensure_mine()
        return self._process is not None and not self._process.ended()

    def reconnect(self) -> Connection:
        """Close this connection and connect again with the same address, PD and options.

        For clients whose QPs have failed, for example with WIRE_LOST after the peer's worker was
        restarted. A failed path alone ends no QP: the workers connect it again (protocol.md 7.4).
        The new connection has new keys and new QPs. Regions and capabilities of the local PD stay
        valid; those of the peer may have ended with its worker, so the peer sends new ones, for
        example in `data`. Raises LocalError at a listener's end, WorkerGone if the local worker
        ended, and the errors of connect().
        """
        address, pd, options = self.route()
        self.close()
        return Connection(pd, dial(address, options.timeout), "client", options, address)

    def route(self) -> tuple[Address, PD, Options]:
        """Address, PD and options for reconnect(), which states the errors raised."""
        self.ensure_mine()
        if self._address is None:
            raise LocalError(
                "this end was accepted by a listener: reconnect at the client, and accept() here"
            )
        self._pd.ensure_alive()
        if not self._pd.control.alive():
            raise WorkerGone(
                "the local worker ended, and its PDs with it: start it, open a Context and a PD, "
                "and connect() with them"
            )
        return self._address, self._pd, self._options

    def rekey(self, timeout: float = CONNECT_TIMEOUT) -> None:
        """Renew the secrets of all QPs by a new key exchange; requests continue (protocol.md 8.5).

        Returns when both directions of each QP use the new secrets. timeout: seconds; a Timeout
        does not end the exchange. An exchange that fails ends the connection. In key mode "pd" the
        secret of the local end is new only if the key of its PD may be rotated, see `PD.rotate()`.
        With a trust group the secrets stay, and the ends only authenticate again.
        """
        wish = self.wish()
        self.wait_renewed(wish, time.monotonic() + timeout)

    def wish(self) -> int:
        """Request new secrets. Returns the number to pass to wait_renewed()."""
        self.ensure_alive()
        if self.suite == UNPROTECTED:
            raise LocalError('level="none" has no secrets to renew')
        assert self._process is not None
        return self._process.wish()

    def wait_renewed(self, wish: int, deadline: float) -> None:
        """Wait until an exchange that began after the wish took effect; deadline: monotonic s."""
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
        """Close the QPs and the process; an error of one does not keep the others open."""
        with contextlib.suppress(ValueError):
            self._pd.sharers.remove(self)
        with contextlib.ExitStack() as stack:
            if self._process is not None:
                stack.callback(self._process.close)
            for qp in reversed(self.qps):
                stack.callback(qp.close)


class Listener(Resource):
    """A TCP listener that makes a Connection per peer; made by listen()."""

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
        """(host, port); the port is the actual one if port 0 was given."""
        host, port = self.sock.getsockname()[:2]
        return host, port

    @property
    def sock(self) -> socket.socket:
        self.ensure_alive()
        assert self._sock is not None
        return self._sock

    def fileno(self) -> int:
        """File descriptor that is readable when a peer waits to be accepted."""
        return self.sock.fileno()

    def accept(self, timeout: float | None = None) -> Connection:
        """Accept the next peer and run the key exchange with it.

        timeout: seconds until a peer connects, None for no limit; the key exchange has the limit
        `timeout` of the options. Raises Timeout, or the error of a failed key exchange; the
        listener stays usable.
        """
        return self.meet(self.take(timeout))

    def take(self, timeout: float | None) -> socket.socket:
        """Accept a TCP connection. Returns its socket, which the caller passes to meet()."""
        self.sock.settimeout(timeout)
        try:
            sock, _ = self.sock.accept()
        except (TimeoutError, BlockingIOError) as e:  # BlockingIOError: timeout 0
            raise Timeout(f"no peer connected in {timeout} s") from e
        except OSError as e:
            raise LocalError(f"the listener ended: {e.strerror}") from e
        return sock

    def meet(self, sock: socket.socket) -> Connection:
        """Run the key exchange on a socket of take(). The socket is closed."""
        return Connection(self._pd, sock, "server", self._options)

    def _release(self) -> None:
        if self._sock is not None:
            self._sock.close()


def listen(address: Address, pd: PD, **options: object) -> Listener:
    """Listen at (host, port). The keywords are the fields of `Options`.

    Raises LocalError for illegal options, DeviceError if the address cannot be used.
    """
    return Listener(address, pd, Options(**options))  # type: ignore[arg-type]


def connect(address: Address, pd: PD, **options: object) -> Connection:
    """Connect to a listener at (host, port). The keywords are the fields of `Options`.

    Raises LocalError for illegal options or an unknown host name, RemoteError if the peer refuses
    or cannot be reached, IntegrityError if it cannot be authenticated, DeviceError for the local
    worker, or Timeout.
    """
    chosen = prepared(pd, options)
    return Connection(pd, dial(address, chosen.timeout), "client", chosen, address)


def prepared(pd: PD, options: Mapping[str, object]) -> Options:
    """Options of a client, checked before the peer is contacted."""
    pd.ensure_alive()
    chosen = Options(**options)  # type: ignore[arg-type]
    chosen.allowed_by(pd)
    chosen.credentials()
    return chosen


def _attached(pd: PD) -> Control:
    """A new control connection that may use the PD's leg; the caller closes it."""
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
        raise RemoteError(f"no listener at {_where(address)}") from e
    except OSError as e:
        raise RemoteError(f"cannot reach {_where(address)}: {e.strerror or e}") from e
