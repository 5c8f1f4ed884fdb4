"""A cable between two virtual machines through the man in the middle of tests/e2e/c/mitm.c.

It carries Ethernet frames as UDP datagrams (QEMU's `-netdev socket`).
"""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.e2e.mitm import Mitm, build


class UdpCable:
    """The cable; its ends have the numbers 0 and 1."""

    def __init__(self, folder: Path) -> None:
        """folder: for the program."""
        ports = _free_ports(4)
        self._ends = ports[:2], ports[2:]
        words = (str(port) for own, its in self._ends for port in (its, own))
        self.mitm = Mitm([str(build(folder)), "vms", *words])

    def netdev(self, name: str, end: int) -> str:
        """The argument of QEMU's option -netdev for a netdev of that name."""
        here, there = self._ends[end]
        return f"socket,id={name},udp=127.0.0.1:{there},localaddr=127.0.0.1:{here}"

    def close(self) -> None:
        self.mitm.close()


def _free_ports(n: int) -> list[int]:
    """Returns unused UDP ports of 127.0.0.1."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(n)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in socks]
