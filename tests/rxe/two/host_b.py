"""Host B in a separate machine: tests/rxe/inside/host_b.py with requests over TCP from one host A.

    python -m tests.rxe.two.host_b

The first response also names its worker.
"""

from __future__ import annotations

import os
import socket
import sys

from srdma._engine.frames import write_frame
from srdma.demo.host import main
from tests.rxe.inside.host_b import Host
from tests.rxe.tcp_host import PORT
from tests.rxe.two import end


def serve() -> int:
    with (
        end.worker(1) as worker,
        socket.create_server((end.address(1), PORT)) as server,
    ):
        sock, _ = server.accept()
        with sock:
            write_frame(sock.fileno(), {"worker": str(worker.control)})
            os.dup2(sock.fileno(), sys.stdin.fileno())
            os.dup2(sock.fileno(), sys.stdout.fileno())
            return main(Host())


if __name__ == "__main__":
    sys.exit(serve())
