"""The private agent behind a Unix socket, for programs with libsrdma (agent.md 2): each connection
of the socket is passed through the agent's door as a channel.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.unix_server import UnixServer

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
        self._server = UnixServer(path, self._pass)

    def close(self) -> None:
        self._server.close()
        self._door.close()
        self._process.wait(WAIT)

    def _pass(self, channel: socket.socket) -> None:
        with channel:
            socket.send_fds(self._door, [b"c"], [channel.fileno()])
