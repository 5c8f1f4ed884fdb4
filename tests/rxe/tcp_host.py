"""Host B (tests/rxe/inside/host_b.py) in another machine, with requests over TCP."""

from __future__ import annotations

import socket
import time
from typing import Any

from srdma._engine.frames import read_frame, write_frame
from srdma.errors import DeviceError

PORT = 7001


class TcpHost:
    """As srdma.demo.stage.HostProcess. Host B listens for hosts at the address of its machine."""

    def __init__(self, address: str, patience: float, slow: float) -> None:
        """patience: seconds until the machine must be up; slow: seconds for an answer."""
        self._address, self._slow = address, slow
        deadline = time.monotonic() + patience
        while True:
            try:
                self._sock = socket.create_connection((address, PORT), 5)
                break
            except OSError:
                assert time.monotonic() < deadline, f"no host B at {address}"
                time.sleep(0.5)
        self._sock.setblocking(True)

    def request(self, do: str, **arguments: Any) -> None:
        if do == "listen":
            arguments["host"] = self._address
        write_frame(self._sock.fileno(), {"do": do, **arguments})

    def answer(self) -> dict[str, Any]:
        """The result of the last request. Raises DeviceError if it failed or host B ended."""
        answer = read_frame(self._sock.fileno(), self._slow)
        if answer is None:
            raise DeviceError("host B ended")
        if "error" in answer:
            raise DeviceError(f"host B: {answer['error']}")
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.request(do, **arguments)
        return self.answer()

    def close(self) -> None:
        self._sock.close()
