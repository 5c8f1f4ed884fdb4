"""Admission to a listening TCP socket, until the handshake is complete (agent.md 3).

A *candidate* is a peer that is not authorised: first it is silent, then TLS is under way. It costs
little, and it is closed for a newer one when there are too many.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from srdma.agent.accept import accepted, listens
from srdma.agent.tasks import cancelled
from srdma.gid import plain_address
from srdma.keyex.fields import ExchangeError

CANDIDATES_MAX = 512
CANDIDATES_PER_ADDRESS = 64
CANDIDATES_KNOWN = 64  # reserved for the addresses of sessions' peers
SILENT_TIMEOUT = HANDSHAKE_TIMEOUT = 10.0  # seconds
PAUSE = 0.1  # seconds without accept() when the system has no resources for a connection
SHUT_DOWN = "the listening socket was shut down, or the program made accept() block on it"


@dataclass(eq=False)
class Candidate:
    """A peer that is not authorised. task: brings it to its arrival. known: the peer of a session
    was last at its address."""

    address: str
    known: bool
    task: asyncio.Task[None] = field(init=False)


class Entrance(ABC):
    """Accepts the connections of one listening socket, and limits those that are candidates."""

    def __init__(self, sock: socket.socket, know: Callable[[str], bool]) -> None:
        """know: True for an address whose candidates have reserved places."""
        self._sock, self._know = sock, know
        self._closed = False
        self._candidates: dict[Candidate, None] = {}  # the oldest first
        self._turns = asyncio.Lock()

    @abstractmethod
    async def _bring(self, candidate: Candidate, sock: socket.socket) -> None:
        """Complete the handshake, or close the socket, which has bytes to read. It is a candidate
        until this returns."""

    async def run(self) -> NoReturn:
        """Admit peers until this is cancelled. Raises ExchangeError if the socket is shut down."""
        try:
            while True:
                try:
                    sock, address = await accepted(self._sock)
                except ConnectionAbortedError:
                    continue
                except OSError:  # no descriptors or memory
                    if not listens(self._sock):
                        raise ExchangeError("config", SHUT_DOWN) from None
                    self._evict(lambda _: True)
                    await asyncio.sleep(PAUSE)
                    continue
                self._admit(sock, plain_address(str(address[0])))
        finally:
            self._closed = True
            for candidate in [*self._candidates]:
                await cancelled(candidate.task)

    def _admit(self, sock: socket.socket, address: str) -> None:
        known = self._know(address)
        like = Counter(c.address for c in self._candidates if c.known == known)
        if known and like.total() >= CANDIDATES_KNOWN:
            ((most, _),) = like.most_common(1)
            self._evict(lambda c: c.known and c.address == most)
        elif not known and like[address] >= CANDIDATES_PER_ADDRESS:
            self._evict(lambda c: not c.known and c.address == address)
        elif not known and like.total() >= CANDIDATES_MAX:
            self._evict(lambda c: not c.known)
        candidate = Candidate(address, known)
        self._candidates[candidate] = None
        candidate.task = asyncio.ensure_future(self._serve(candidate, sock))

    def _evict(self, fits: Callable[[Candidate], bool]) -> None:
        """Close the oldest candidate that fits, first among those that are not known."""
        found = [c for c in self._candidates if fits(c)]
        if found:
            oldest = min(found, key=lambda c: c.known)
            del self._candidates[oldest]
            oldest.task.cancel()

    async def _serve(self, candidate: Candidate, sock: socket.socket) -> None:
        """Bring a peer to its arrival, or close it."""
        try:
            try:
                speaks = await _speaks(sock)
            except BaseException:
                sock.close()
                raise
            if speaks:
                await self._bring(candidate, sock)
        finally:
            self._candidates.pop(candidate, None)

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
        sock.close()
        return False
    finally:
        loop.remove_reader(sock)
    return True
