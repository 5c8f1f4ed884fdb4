"""A TCP relay between two agents, which a test cuts, blocks or records."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from collections.abc import Callable

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST


class TcpRelay:
    """Forwards TCP connections to `target` in a thread.

    accepted: number of connections so far. sees(): called with each piece of data.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self.target = target
        self.accepted = 0
        self.sees: Callable[[bytes], None] = lambda data: None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = self._server.getsockname()
        self._others: dict[socket.socket, socket.socket] = {}
        self._orders, self._order = socket.socketpair()
        self._done = threading.Event()
        self._blocked = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def cut(self, *, reset: bool = True) -> None:
        """Ends all connections, by RST or by FIN. New ones are accepted."""
        self._do(b"r" if reset else b"f")

    def block(self, *, blocked: bool = True) -> None:
        """Refuses new connections from now on, or no longer."""
        self._do(b"b" if blocked else b"o")

    def close(self) -> None:
        self._order.close()
        self._thread.join()
        self._server.close()

    def _do(self, order: bytes) -> None:
        self._done.clear()
        self._order.send(order)
        assert self._done.wait(10)

    def _run(self) -> None:
        with selectors.DefaultSelector() as self._selector, self._orders:
            for sock in (self._server, self._orders):
                self._selector.register(sock, selectors.EVENT_READ)
            while True:
                for key, _ in self._selector.select():
                    sock = key.fileobj
                    assert isinstance(sock, socket.socket)
                    if sock is self._orders:
                        if not self._obey():
                            return
                    elif sock is self._server:
                        self._accept()
                    elif sock in self._others:
                        self._forward(sock)

    def _obey(self) -> bool:
        order = self._orders.recv(1)
        if order in (b"r", b"f", b""):
            for sock in [*self._others]:
                self._end(sock, reset=order == b"r")
        else:
            self._blocked = order == b"b"
        self._done.set()
        return bool(order)

    def _accept(self) -> None:
        near, _ = self._server.accept()
        if self._blocked:
            near.close()
            return
        self.accepted += 1
        try:
            far = socket.create_connection(self.target)
        except OSError:
            near.close()
            return
        for one, other in ((near, far), (far, near)):
            self._others[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, sock: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(65536)
            if data:
                self.sees(data)
                self._others[sock].sendall(data)
        if not data:
            self._end(sock, reset=False)

    def _end(self, sock: socket.socket, *, reset: bool) -> None:
        other = self._others.pop(sock, None)
        if other is None:
            return
        del self._others[other]
        for end in (sock, other):
            self._selector.unregister(end)
            with contextlib.suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            end.close()
