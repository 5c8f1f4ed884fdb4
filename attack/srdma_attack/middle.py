"""A man in the middle of two workers, or an observer beside them: a thread that passes the
datagrams between two sockets of 127.0.0.1 and obeys a rule.

Each worker was told the address of a socket of the middle as that of its peer.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterable

from srdma_attack import datagrams
from srdma_attack.datagrams import Address
from tests.reference.icrc import ICRC_LEN

LEFT, RIGHT = 0, 1

# (side that sent the packet, packet) -> packets for sides, in order
Rule = Callable[[int, bytes], Iterable[tuple[int, bytes]]]


def pass_on(side: int, packet: bytes) -> Iterable[tuple[int, bytes]]:
    """The rule that changes nothing."""
    return ((1 - side, packet),)


class Middle:
    """The middle of the workers at these addresses. A context manager."""

    def __init__(self, left: Address, right: Address) -> None:
        self.rule: Rule = pass_on
        self.seen: list[tuple[int, bytes]] = []  # sender's side, packet
        self._workers = left, right
        self._sockets = datagrams.open_socket(), datagrams.open_socket()
        self._stop, self._stopped = socket.socketpair()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def address(self, side: int) -> Address:
        """The address that stands for the peer of the worker on this side."""
        host, port = self._sockets[side].getsockname()
        return host, port

    def last(self, side: int) -> bytes:
        """The newest packet from this side."""
        return next(packet for sender, packet in reversed(self.seen) if sender == side)

    def give(self, side: int, packet: bytes) -> None:
        """Sends a packet to the worker on this side, from where its peer's packets come."""
        datagrams.send(self._sockets[side], packet, self._workers[side])

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for side, sock in enumerate(self._sockets):
                selector.register(sock, selectors.EVENT_READ, side)
            selector.register(self._stopped, selectors.EVENT_READ, None)
            while True:
                sides = [key.data for key, _ in selector.select()]
                if None in sides:
                    return
                for side in sides:
                    self._pass(side)

    def _pass(self, side: int) -> None:
        packet = self._sockets[side].recv(datagrams.LONGEST)[:-ICRC_LEN]
        self.seen.append((side, packet))
        for receiver, data in self.rule(side, packet):
            self.give(receiver, data)

    def __enter__(self) -> Middle:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.close()
        self._thread.join()
        for sock in (*self._sockets, self._stopped):
            sock.close()
