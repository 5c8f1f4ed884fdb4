"""Other processes at a worker: control connections that belong to a process of their own.

A worker knows a client by the process that connected (SO_PEERCRED). A neighbour is a child that
connects, hands the connection to the test, and lives until the test ends it.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.daemon import PATIENCE, Client

_CHILD = """
import socket, sys
channel, worker = socket.socket(fileno=0), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
worker.connect(sys.argv[1])
socket.send_fds(channel, [b"x"], [worker.fileno()])
channel.recv(1)
"""


@contextmanager
def neighbour(control: Path) -> Iterator[Client]:
    """A client whose process is not the test's."""
    here, there = socket.socketpair()
    here.settimeout(PATIENCE)
    command = [sys.executable, "-c", _CHILD, str(control)]
    with here, subprocess.Popen(command, stdin=there.fileno()) as child:
        there.close()
        try:
            _, (fd,), _, _ = socket.recv_fds(here, 1, 1)
            client = Client.of(socket.socket(fileno=fd))
            yield client
            client.close()
        finally:
            child.kill()
