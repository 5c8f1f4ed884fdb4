"""The proxy of a host whose agent runs on the host: the NIC has none (control-link.md 7)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial

from srdma.agent.audit import Audit
from srdma.agent.closing import close_drained
from srdma.agent.remote.proxy import Proxy
from srdma.agent.remote.proxy_file import ProxyFile
from srdma.control import peer_of
from srdma.keyex.fields import ExchangeError


class Forward(Proxy):
    """Control sockets like those of the worker, each connection of which is a stream to it."""

    def __init__(self, file: ProxyFile, audit: Audit) -> None:
        super().__init__(file, audit)
        self._paths = [str(path) for path in file.worker_paths()]
        self._own = os.geteuid()

    def takers(self) -> list[Callable[[socket.socket], None]]:
        return [partial(self._take, path) for path in self._paths]

    def _take(self, path: str, sock: socket.socket) -> None:
        """Carry a connection, whose socket is owned from now on, to the worker process at path."""
        uid = peer_of(sock)[1]
        if uid in (self._own, 0):
            self._begin_task(self._carry(path, sock, uid))
            return
        text = f"only user {self._own} and root may connect"
        self._audit("refused", uid=uid, code="policy", text=text)
        close_drained(uid, sock)

    async def _carry(self, path: str, sock: socket.socket, uid: int) -> None:
        await self.tried.wait()
        try:
            # Without a link it does not wait: the agent waits for each answer of its worker.
            link = self._up_now()
        except ExchangeError as error:
            close_drained(uid, sock)
            self._failed(uid, error)
            return
        try:
            relay = await self._carried(link, sock, uid, path)
        except ExchangeError as error:
            self._failed(uid, error)
        else:
            relay.start()
