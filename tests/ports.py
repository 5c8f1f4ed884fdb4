"""TCP ports for listeners of tests."""

from __future__ import annotations

import random
import socket
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")  # of connections without a bind()
_random = random.SystemRandom()


def free_port() -> int:
    """A port at which nothing listens.

    It is below the range from which connections get theirs: no connection can take it before the
    listener is there, or while the listener restarts.
    """
    low = int(_RANGE.read_text().split()[0])
    while True:
        port = _random.randrange(low // 2, low) if low >= 4096 else 0
        try:
            with socket.create_server(("", port)) as sock:
                return int(sock.getsockname()[1])
        except OSError:
            continue
