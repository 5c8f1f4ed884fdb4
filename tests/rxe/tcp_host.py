"""Host B (tests/rxe/inside/host_b.py) in another machine, with requests over TCP."""

from __future__ import annotations

import socket
import time
from typing import Any

from srdma.demo.stage import FarHost

PORT = 7001


class TcpHost(FarHost):
    """Host B listens for hosts at the address of its machine."""

    def __init__(self, address: str, patience: float, slow: float) -> None:
        """patience: seconds until the machine must be up; slow: seconds for an answer."""
        self._address = address
        deadline = time.monotonic() + patience
        while True:
            try:
                self._sock = socket.create_connection((address, PORT), 5)
                break
            except OSError:
                assert time.monotonic() < deadline, f"no host B at {address}"
                time.sleep(0.5)
        self._sock.setblocking(True)
        super().__init__(self._sock.fileno(), self._sock.fileno(), slow)

    def request(self, do: str, **arguments: Any) -> None:
        if do == "listen":
            arguments["host"] = self._address
        super().request(do, **arguments)

    def close(self) -> None:
        self._sock.close()
