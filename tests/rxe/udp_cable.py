"""A cable between two virtual machines through the man in the middle of tests/e2e/c/mitm.c, and one
more who obeys a rule of the attack kit.

It carries Ethernet frames as UDP datagrams (QEMU's `-netdev socket`).
"""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from srdma_attack.against_plain.cable import LONGEST, Rule
from tests.e2e.mitm import Mitm, build


class Relay(threading.Thread):
    """Passes frames between two UDP peers, and obeys a rule. after: called after each frame."""

    def __init__(self, ports: Sequence[tuple[int, int]], rule: Rule, after: Callable[[], None]):
        """ports: of this end and of the peer, on each side."""
        super().__init__(daemon=True)
        self._rule, self._after = rule, after
        self._end = os.eventfd(0)
        self._sides = [socket.socket(type=socket.SOCK_DGRAM) for _ in ports]
        self._peers = [("127.0.0.1", peer) for _, peer in ports]
        for sock, (own, _) in zip(self._sides, ports, strict=True):
            sock.bind(("127.0.0.1", own))
        self.start()

    def run(self) -> None:
        while True:
            ready, _, _ = select.select([*self._sides, self._end], [], [])
            if self._end in ready:
                return
            for side, sock in enumerate(self._sides):
                if sock in ready:
                    for frame in self._rule(side, sock.recv(LONGEST)):
                        self._sides[1 - side].sendto(frame, self._peers[1 - side])
                    self._after()

    def close(self) -> None:
        os.eventfd_write(self._end, 1)
        self.join()
        for sock in self._sides:
            sock.close()
        os.close(self._end)


class UdpCable:
    """The cable; its ends have the numbers 0 and 1. The rule sees the frames beside end 1."""

    def __init__(self, folder: Path, rule: Rule, after: Callable[[], None]) -> None:
        """folder: for the program."""
        ports = _free_ports(6)
        self._ends = ports[:2], ports[2:4]
        own, its = ports[4:], self._ends[1]
        words = [self._ends[0][1], self._ends[0][0], its[1], own[0]]
        self.mitm = Mitm([str(build(folder)), "vms", *map(str, words)])
        self._relay = Relay([(own[0], its[1]), (own[1], its[0])], rule, after)
        self._ends[1][1] = own[1]

    def netdev(self, name: str, end: int) -> str:
        """The argument of QEMU's option -netdev for a netdev of that name."""
        here, there = self._ends[end]
        return f"socket,id={name},udp=127.0.0.1:{there},localaddr=127.0.0.1:{here}"

    def close(self) -> None:
        self._relay.close()
        self.mitm.close()


def _free_ports(n: int) -> list[int]:
    """Returns unused UDP ports of 127.0.0.1."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(n)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in socks]
