"""A control socket on a host that stands for a worker on its NIC (the other end: c/bridge.c).

python -m tests.smartnic.bridge PATH ADDRESS
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
from collections.abc import Callable

PORT = 82
LENGTH = struct.Struct(">I")
MAX_MESSAGE = 8192


def serve(path: str, address: str) -> None:
    """Joins each connection to `path` with a new one to the NIC."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            program, _ = listener.accept()
            nic = socket.create_connection((address, PORT))
            nic.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for forward in (_forward, _back):
                threading.Thread(target=_until_an_end, args=(forward, program, nic)).start()


def _until_an_end(
    forward: Callable[[socket.socket, socket.socket], bool],
    program: socket.socket,
    nic: socket.socket,
) -> None:
    """Forwards messages in one direction; then both connections end."""
    try:
        while forward(program, nic):
            pass
    except OSError:
        pass
    for sock in (program, nic):
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def _forward(program: socket.socket, nic: socket.socket) -> bool:
    message = program.recv(MAX_MESSAGE)
    if message:
        nic.sendall(LENGTH.pack(len(message)) + message)
    return message != b""


def _back(program: socket.socket, nic: socket.socket) -> bool:
    head = nic.recv(LENGTH.size, socket.MSG_WAITALL)
    if len(head) < LENGTH.size:
        return False
    message = nic.recv(*LENGTH.unpack(head), socket.MSG_WAITALL)
    program.send(message)
    return True


if __name__ == "__main__":
    serve(*sys.argv[1:])
