"""Connections: QPs of two hosts that authenticated each other (protocol.md 7, 8).

`connect()` and `Listener.accept()` make the QPs at the local worker (INIT), then let the agent of
the Context run the key exchange (agent.md). Only the agent handles secrets. It holds the TLS
connection as long as the Connection lives: if one end closes, so does the other.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from srdma._engine.resource import Resource
from srdma.agent.client import Arrival, Attempt, ConnectionChannel, ListenerChannel, Peer
from srdma.errors import ClosedError, DeviceError, LocalError, Timeout, WorkerGone
from srdma.gid import QPName
from srdma.identity import Credentials
from srdma.keyex.exchange import Role, mode_name
from srdma.keyex.offers import LEVELS, MODE_PD, UNPROTECTED, Suite
from srdma.options import CONNECT_TIMEOUT, HEADER_ONLY, Options
from srdma.pd import PD
from srdma.qp import SecureQP

log = logging.getLogger("srdma")

REKEY_LIMIT = 60.0  # seconds from when new secrets are due until they are in effect (agent.md 4)
FOREVER = float("inf")

TRUST_GROUP = (
    "Every member of a trust group has its keys: it can read and forge all packets between any "
    "two other members. Use a group only for machines that trust each other completely."
)

Address = tuple[str, int]


class Connection(Resource):
    """QPs that are connected to one peer; made by connect(), Listener.accept() and
    Rendezvous.connect().

    Closing it closes its QPs and ends them at the peer with reason PEER_CLOSED.
    """

    def __init__(
        self, pd: PD, options: Options, peer: Address | Arrival | QPName, *,
        attempt: Attempt | None = None, qps: Sequence[SecureQP] = (),
    ) -> None:  # fmt: skip
        """peer: the address of a listener, a peer to accept, or the peer's QP. attempt: lets
        another thread cancel this call. qps: new ones, which belong to the connection from now
        on; those that the options demand besides are made."""
        super().__init__(pd)
        self._pd = pd
        self._options = options
        self._address = None if isinstance(peer, Arrival | QPName) else peer
        self.qps: list[SecureQP] = [*qps]
        self._channel: ConnectionChannel | None = None
        self._identity = peer.identity if isinstance(peer, Arrival) else ""
        self._peer: Peer | None = None
        role: Role = "server" if isinstance(peer, Arrival) else "client"
        deadline = time.monotonic() + options.timeout
        try:
            suites = options.allowed_by(pd)
            for _ in range(options.qps - len(self.qps)):
                self.qps.append(new_qp(pd, options))
            settings = {
                **_identity(pd, options),
                "worker": str(pd.path),
                "token": pd.token,
                "suites": [list(suite) for suite in suites],
                "modes": options.modes(role),
                "group": pd.group,
                "qps": [vars(qp.info) for qp in self.qps],
                "data": options.data_for(self),
                "timeout": options.timeout,
                "every": options.rekey_every,
                "limit": REKEY_LIMIT,
                "max_age": options.max_secret_age,
            }
            self._channel = ConnectionChannel(pd.ctx.agent(), settings | _goal(peer))
            if attempt:
                attempt.begins(self._channel)
            self._peer = self._channel.wait_ready(deadline)
            self._identity = self._peer.identity
        except BaseException:
            self.close()
            raise
        for qp in self.qps:
            qp.connected, qp.mode = True, self.mode
        if self._agreed.mode & MODE_PD:
            pd.sharers.append(self)
        self._warn()

    @property
    def qp(self) -> SecureQP:
        """The first QP; most connections have only one."""
        return self.qps[0]

    @property
    def identity(self) -> str:
        """URI of the peer's certificate."""
        if not self._identity:
            raise LocalError("a client knows the peer's identity when it is connected, not before")
        return self._identity

    @property
    def _agreed(self) -> Peer:
        if self._peer is None:
            raise LocalError("the connection is not made yet: only its QPs exist")
        return self._peer

    @property
    def data(self) -> bytes:
        """The peer's option `data`, at most 256 bytes; both ends are authenticated."""
        return self._agreed.data

    @property
    def suite(self) -> Suite:
        """Suite and level that protect the packets (protocol.md 3.3, 4.5)."""
        return self._agreed.suite

    @property
    def mode(self) -> str:
        """Key mode: "basic", "pd", "mem" or "pd+mem"."""
        return mode_name(self._agreed.mode)

    @property
    def trust_group(self) -> str:
        """Trust group whose key the secrets are derived from; "" if there is none."""
        return self._agreed.trust_group

    @property
    def group(self) -> str:
        """Name of the group of the TLS key agreement."""
        return self._agreed.group

    def fileno(self) -> int:
        """File descriptor that is readable when alive() may have changed."""
        self.ensure_alive()
        assert self._channel is not None
        return self._channel.fileno()

    def alive(self) -> bool:
        """False once the peer closed the connection, or the agent, the worker or the leg ended."""
        self.ensure_mine()
        if self._channel is None or self._channel.ended():
            return False
        return not self._pd.engine.ended

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
        return Connection(pd, options, address)

    def route(self) -> tuple[Address, PD, Options]:
        """Address, PD and options for reconnect(), which states the errors raised."""
        self.ensure_mine()
        if self._address is None:
            raise LocalError(
                "this end has no address: it was accepted by a listener, or met its peer in a "
                "rendezvous. Reconnect at the client and accept() here, or make a new Rendezvous"
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
        assert self._channel is not None
        return self._channel.wish()

    def wait_renewed(self, wish: int, deadline: float) -> None:
        """Wait until an exchange that began after the wish took effect; deadline: monotonic s."""
        assert self._channel is not None
        self._channel.wait_renewed(wish, deadline)

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
        """Close the QPs and the channel; an error of one does not keep the others open."""
        with contextlib.suppress(ValueError):
            self._pd.sharers.remove(self)
        with contextlib.ExitStack() as stack:
            if self._channel is not None:
                stack.callback(self._channel.close)
            for qp in reversed(self.qps):
                stack.callback(qp.close)


class Listener(Resource):
    """A TCP listener that makes a Connection per peer; made by listen()."""

    def __init__(self, address: Address, pd: PD, options: Options) -> None:
        super().__init__(pd)
        self._pd = pd
        self._options = options
        self._address = address
        self._channel: ListenerChannel | None = None
        try:
            options.allowed_by(pd)
            settings, agent = {"do": "listen", **_identity(pd, options)}, pd.ctx.agent()
            if pd.ctx.remote:
                settings["address"] = [*address]
                self._channel = ListenerChannel.open(agent, settings, None)
                self._address = self._channel.address
            else:
                sock = _listen(address)
                self._address = sock.getsockname()[:2]
                self._channel = ListenerChannel.open(agent, settings, sock)
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> Address:
        """(host, port); the port is the actual one if port 0 was given."""
        return self._address

    @property
    def channel(self) -> ListenerChannel:
        self.ensure_alive()
        assert self._channel is not None
        return self._channel

    def fileno(self) -> int:
        """File descriptor that is readable when a peer may wait to be accepted."""
        return self.channel.fileno()

    def accept(self, timeout: float | None = None) -> Connection:
        """Accept the next authorised peer and run the key exchange with it.

        timeout: seconds until such a peer arrives, None for no limit; the key exchange has the
        limit `timeout` of the options. A peer that is not authorised is refused and logged, and
        does not end the call. Raises Timeout, or the error of a failed key exchange; the listener
        stays usable.
        """
        return self.meet(self.take(timeout))

    def take(self, timeout: float | None) -> Arrival:
        """Wait for an authorised peer, which the caller passes to meet()."""
        deadline = time.monotonic() + (FOREVER if timeout is None else timeout)
        while True:
            try:
                found = self.channel.next(deadline)
            except Timeout:
                raise Timeout(f"no authorised peer connected in {timeout} s") from None
            except ClosedError:
                raise ClosedError("the listener was closed") from None
            if isinstance(found, Arrival):
                return found
            log.warning("refused a peer at %s: %s", found.address, found.text)

    def meet(self, arrival: Arrival, attempt: Attempt | None = None) -> Connection:
        """Run the key exchange with a peer of take(). attempt: as in Connection."""
        return Connection(self._pd, self._options, arrival, attempt=attempt)

    def _release(self) -> None:
        if self._channel is not None:
            self._channel.close()


def listen(address: Address, pd: PD, **options: object) -> Listener:
    """Listen at (host, port). The keywords are the fields of `Options`.

    With a worker on another computer the address is one of the NIC, which the policy of its agent
    permits (control-link.md 4).

    Raises LocalError for illegal options, DeviceError if the address cannot be used.
    """
    return Listener(address, pd, Options(**options))  # type: ignore[arg-type]


def connect(address: Address, pd: PD, **options: object) -> Connection:
    """Connect to a listener at (host, port). The keywords are the fields of `Options`.

    Raises LocalError for illegal options or an unknown host name, RemoteError if the peer refuses
    or cannot be reached, IntegrityError if it cannot be authenticated, DeviceError for the local
    worker, or Timeout.
    """
    return Connection(pd, prepared(pd, options), address)


def _goal(peer: Address | Arrival | QPName) -> dict[str, object]:
    """The settings that name the peer."""
    match peer:
        case Arrival(number=number):
            return {"do": "accept", "arrival": number}
        case QPName():
            return {"do": "connect", "to": list(peer)}
        case _:
            return {"do": "connect", "address": peer}


def new_qp(pd: PD, options: Options) -> SecureQP:
    """A QP in state INIT."""
    return SecureQP(pd, options.sq, options.rq, timeout=options.qp_timeout, mtu=options.mtu)


def prepared(pd: PD, options: Mapping[str, object]) -> Options:
    """Options of a client, checked before the peer is contacted."""
    pd.ensure_alive()
    chosen = Options(**options)  # type: ignore[arg-type]
    chosen.allowed_by(pd)
    return chosen


def _identity(pd: PD, options: Options) -> dict[str, object]:
    """The settings `identity` and `peer`. Only the agent reads the key behind a path or name."""
    identity = options.identity
    if isinstance(identity, Credentials):
        known = vars(identity)
    elif pd.ctx.has_system_agent:
        known = {"identity": str(identity)}
    else:
        known = {"identity": str(Path(identity).absolute())}
    return {**known, "peer": options.peers}


def _where(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _listen(address: Address) -> socket.socket:
    try:
        family = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server(address, family=family)
    except OSError as e:
        raise DeviceError(f"cannot listen at {_where(address)}: {e.strerror or e}") from e
