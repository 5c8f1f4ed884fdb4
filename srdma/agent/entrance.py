"""Admission to a listening TCP socket, until the handshake is complete (agent.md 3).

A *candidate* is a peer that is not authorised: first it is silent, then TLS is under way. It costs
little, and it is closed for a newer one when there are too many.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, NoReturn, Protocol, TypeVar

from srdma.agent.accept import Acceptor, listens
from srdma.agent.settings import Identity
from srdma.agent.tasks import cancelled
from srdma.errors import Error
from srdma.gid import plain_address
from srdma.keyex.fields import ExchangeError
from srdma.keyex.tls import PeerClosed, no_wait

CANDIDATES_MAX = 512
CANDIDATES_PER_ADDRESS = 64
CANDIDATES_KNOWN = 64  # reserved for the addresses of sessions' peers
CANDIDATES_OF_OWNER = 4096  # at all entrances of a user, or of all users of another computer
SILENT_TIMEOUT = HANDSHAKE_TIMEOUT = 10.0  # seconds
PAUSE = 0.1  # seconds without accept() when the system has no resources for a connection
SHUT_DOWN = "the listening socket was shut down, or the program made accept() block on it"


def network(address: str) -> str:
    """The network of an address, whose other addresses one attacker may have too: /24 or /64."""
    host, _, scope = address.partition("%")
    bits = 24 if ipaddress.ip_address(host).version == 4 else 64
    return f"{ipaddress.ip_network((host, bits), strict=False)}%{scope}"


@dataclass(eq=False)
class Candidate:
    """A peer that is not authorised. task: brings it to its arrival. known: the peer of a session
    was last at its address. silent: its socket until its first bytes. shaking: its handshake is
    under way."""

    address: str
    known: bool
    silent: socket.socket | None
    shaking: bool = False
    network: str = field(init=False)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.network = network(self.address)

    def speaks(self) -> bool:
        """True if its handshake is under way, or can begin."""
        if self.silent is None:
            return self.shaking
        try:
            return bool(self.silent.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:
            return False

    def over(self) -> None:
        """Its task has ended, possibly before it began."""
        if self.silent:
            self.silent.close()


class Connection(Protocol):
    """A connection whose handshake is under way."""

    async def handshake(self, turn: Callable[[], Awaitable[None]]) -> None:
        """Complete it. turn: see Outer. Raises ExchangeError, PeerClosed."""

    def drop(self) -> None:
        """Close it at once."""


class Crowded(Protocol):
    """An entrance, for its owner."""

    def evict(self) -> None:
        """Close one of its candidates."""


class Owner:
    """The user of any number of entrances. acceptor: for their sockets."""

    def __init__(self) -> None:
        self.acceptor = Acceptor()
        self._crowds: dict[Crowded, int] = {}  # candidates of each entrance that has some
        self._total = 0

    def enter(self, entrance: Crowded) -> None:
        """An entrance has one more candidate. If there are too many, the entrance that has the
        most closes one."""
        if self._total >= CANDIDATES_OF_OWNER:
            max(self._crowds, key=self._crowds.__getitem__).evict()
        self._crowds[entrance] = self._crowds.get(entrance, 0) + 1
        self._total += 1

    def leave(self, entrance: Crowded) -> None:
        self._total -= 1
        self._crowds[entrance] -= 1
        if not self._crowds[entrance]:
            del self._crowds[entrance]


C = TypeVar("C", bound="Connection")


class Entrance(ABC, Generic[C]):
    """Accepts the connections of one listening socket, and limits those that are candidates."""

    def __init__(self, sock: socket.socket, know: Callable[[str], bool], owner: Owner) -> None:
        """know: True for an address whose candidates have reserved places."""
        self._sock, self._know, self._owner = sock, know, owner
        self._closed = False
        self._candidates: dict[Candidate, None] = {}  # the oldest first
        self._turns = asyncio.Lock()

    @abstractmethod
    async def _opened(self, sock: socket.socket) -> tuple[C, Identity]:
        """A connection that owns the socket, and the local identity of its handshake. Raises Error,
        OSError."""

    @abstractmethod
    def _taken(self, connection: C, own: Identity) -> None:
        """The handshake is complete: check the peer, and own the connection. Raises
        ExchangeError."""

    @abstractmethod
    async def _refuse(self, address: str, connection: C, error: ExchangeError) -> None:
        """Report the error, here and to the peer at this address."""

    async def run(self) -> NoReturn:
        """Admit peers until this is cancelled. Raises ExchangeError if the socket is shut down."""
        try:
            while True:
                try:
                    sock, address = await self._owner.acceptor.accepted(self._sock)
                except ConnectionAbortedError:
                    continue
                except OSError:  # no descriptors or memory
                    if not listens(self._sock):
                        raise ExchangeError("config", SHUT_DOWN) from None
                    self._close_one(lambda _: True)
                    await asyncio.sleep(PAUSE)
                    continue
                self._admit(sock, plain_address(str(address[0])))
        finally:
            self._closed = True
            for candidate in [*self._candidates]:
                await cancelled(candidate.task)
                self._forget(candidate)  # its task may not have begun

    def evict(self) -> None:
        """See Crowded."""
        if all(candidate.known for candidate in self._candidates):
            self._close_one(lambda _: True)
        else:
            self._evict_of_largest()

    # RFC 5042 R6.4.1-2
    def _admit(self, sock: socket.socket, address: str) -> None:
        known = self._know(address)
        like = Counter(c.address for c in self._candidates if c.known == known)
        if known and like.total() >= CANDIDATES_KNOWN:
            ((most, _),) = like.most_common(1)
            self._close_one(lambda c: c.known and c.address == most)
        elif not known and like[address] >= CANDIDATES_PER_ADDRESS:
            self._close_one(lambda c: not c.known and c.address == address)
        elif not known and like.total() >= CANDIDATES_MAX:
            self._evict_of_largest()
        self._owner.enter(self)
        candidate = Candidate(address, known, sock)
        self._candidates[candidate] = None
        candidate.task = asyncio.ensure_future(self._serve(candidate, sock))
        candidate.task.add_done_callback(lambda _: candidate.over())

    def _evict_of_largest(self) -> None:
        """Close a candidate of the networks that have the most of those that are not known."""
        sizes = Counter(c.network for c in self._candidates if not c.known)
        most = max(sizes.values())
        self._close_one(lambda c: not c.known and sizes[c.network] == most)

    def _close_one(self, fits: Callable[[Candidate], bool]) -> None:
        """Close a candidate that fits, first among those that are not known: the oldest that is
        silent or was refused, else the oldest."""
        fitting = [c for c in self._candidates if fits(c)]
        found = [c for c in fitting if not c.known] or fitting
        if found:
            closed = next((c for c in found if not c.speaks()), found[0])
            self._forget(closed)
            closed.task.cancel()

    def _forget(self, candidate: Candidate) -> None:
        """It is no candidate any more; without effect the second time."""
        if candidate in self._candidates:
            del self._candidates[candidate]
            self._owner.leave(self)

    async def _serve(self, candidate: Candidate, sock: socket.socket) -> None:
        """Bring a peer to its arrival, or close it."""
        try:
            if await _speaks(sock):
                candidate.silent, candidate.shaking = None, True
                await self._bring(candidate, sock)
        finally:
            self._forget(candidate)

    async def _bring(self, candidate: Candidate, sock: socket.socket) -> None:
        """Complete the handshake, or close the socket, which has bytes to read. It is a candidate
        until this returns."""
        try:
            connection, own = await self._opened(sock)
        except (Error, OSError):
            sock.close()
            return
        except BaseException:
            sock.close()
            raise
        kept = False
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                own.clock.check(own.credentials)
                await connection.handshake(no_wait if candidate.known else self._turn)
            self._taken(connection, own)
            kept = True
        except ExchangeError as error:
            candidate.shaking = False
            await self._refuse(candidate.address, connection, error)
        except (TimeoutError, PeerClosed):
            pass
        finally:
            if not kept:
                connection.drop()

    async def _turn(self) -> None:
        """Wait for the turn of an unknown address: one in each pass of the event loop."""
        async with self._turns:
            await asyncio.sleep(0)


async def _speaks(sock: socket.socket) -> bool:
    """Wait until a socket has bytes to read, or has ended. False: it stays silent."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        async with asyncio.timeout(SILENT_TIMEOUT):
            await ready.wait()
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(sock)
    return True
