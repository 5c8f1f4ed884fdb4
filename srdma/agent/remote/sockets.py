"""Listening sockets that the agent has for programs of other computers (agent.md 3)."""

from __future__ import annotations

import socket
from weakref import WeakValueDictionary

from srdma.agent.accounts import User
from srdma.agent.channel import Channel
from srdma.agent.remote.entries import HostEntry
from srdma.keyex.fields import ExchangeError


class Sockets:
    """The channels of listeners of other computers, by user and address, until they are freed."""

    def __init__(self) -> None:
        self._channels = WeakValueDictionary[tuple[User, str, int], Channel]()

    async def listen(self, channel: Channel, entry: HostEntry, address: object) -> socket.socket:
        """The socket at [host, port] that the program of a channel asks for, which is told.
        Raises ExchangeError.

        entry: of the program's computer. A listener of the same user there whose channel came by an
        older control link is ended: its end was not noticed yet.
        """
        match address:
            case [str(host), int(port)] if not channel.listening:
                pass
            case _:
                raise ExchangeError("config", "address is not [host, port], or beside a socket")
        former = self._channels.get((channel.uid, host, port))
        if former and former.link < channel.link:
            former.drop()
        sock = await entry.bound_soon(host, port)
        host, port = sock.getsockname()[:2]
        self._channels[channel.uid, host, port] = channel
        channel.report("listening", address=[host, port])
        return sock
