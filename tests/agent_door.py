"""The private agent behind a Unix socket, for programs with libsrdma (agent.md 2): each connection
of the socket is passed through the agent's door as a channel.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

WAIT = 20


class DoorAgent:
    """A private agent, in the folder of its identities. It serves until close()."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self._door, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "srdma.agent", "--door-fd", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)},
            )
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._sock.bind(str(path))
        self._sock.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        self._door.close()
        self._process.wait(WAIT)

    def _accept(self) -> None:
        while True:
            try:
                channel, _ = self._sock.accept()
            except OSError:
                return
            with channel:
                socket.send_fds(self._door, [b"c"], [channel.fileno()])
