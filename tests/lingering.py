"""Files whose close() blocks, as hostile programs pass them."""

from __future__ import annotations

import contextlib
import socket
import struct

LINGER = 20  # seconds
PEERS: list[socket.socket] = []  # of lingering(), which must not end


def lingering() -> socket.socket:
    """A file whose last close blocks for LINGER s: a TCP socket with unsent bytes, SO_LINGER."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sock = socket.create_connection(server.getsockname())
        linger(sock)
        sock.setblocking(False)
        peer, _ = server.accept()
        PEERS.append(peer)
        with contextlib.suppress(BlockingIOError):
            while True:
                sock.send(bytes(65536))
    return sock


def linger(sock: socket.socket) -> None:
    """Let close() wait until all bytes are acknowledged, LINGER s at most."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER))


def inside() -> socket.socket:
    """A Unix socket with a lingering file in its queue."""
    outer, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with lingering() as sock, other:
        socket.send_fds(other, [b"x"], [sock.fileno()])
    return outer


def release() -> None:
    """End the peers: no close() blocks any more."""
    while PEERS:
        PEERS.pop().close()
