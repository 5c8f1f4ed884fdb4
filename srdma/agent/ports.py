"""The ports of a GID, and the UD QPs, that programs serve (agent.md 13)."""

from __future__ import annotations

import contextlib
import hmac
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from srdma.agent.accounts import User, group
from srdma.agent.channel import Channel
from srdma.agent.settings import Identity
from srdma.keyex.fields import ExchangeError
from srdma.keyex.talks import QPN_BIT, name_of

PRIVILEGED = 1024  # the first port that any user may serve
FREE_PORTS = range(32_768, 61_000)
PER_USER, PER_HOST = 4096, 16_384  # ports of a user, and of all users of another computer
KEY_LEN = 16

Own = Callable[[], Identity]


@dataclass(eq=False)
class Service:
    """A program serves a port, or a UD QP (srdma.keyex.talks). key: only this program knows it;
    empty if it gave none."""

    port: int
    channel: Channel
    own: Own
    key: bytes


class Ports:
    """All ports that are served."""

    def __init__(self, ended: Callable[[Service], None]) -> None:
        """ended: called when a program serves a port no longer."""
        self._ended = ended
        self._services: dict[int, Service] = {}
        self._counts: Counter[User] = Counter()  # of users, and of groups of users
        self._taken: Counter[User] = Counter()  # as _counts, of FREE_PORTS
        self._in_use = 0  # of FREE_PORTS

    def at(self, port: int) -> Service | None:
        return self._services.get(port)

    @contextlib.contextmanager
    def served(self, channel: Channel, own: Own, port: int, key: bytes) -> Iterator[Service]:
        """Serve a port, 0 for a free one, or a UD QP. Raises ExchangeError."""
        service = self._begin(channel, own, port, key)
        try:
            yield service
        finally:
            self._end(service)

    # Internal ---------------------------------------------------------------

    def _begin(self, channel: Channel, own: Own, port: int, key: bytes) -> Service:
        if len(key) not in (0, KEY_LEN):
            raise ExchangeError("config", f"the key of a port has {KEY_LEN} bytes")
        if 0 < port < PRIVILEGED and channel.uid != 0:
            raise ExchangeError("policy", f"port {port}: only root may serve one below 1024")
        if former := self._services.get(port):
            if not (_comes_back(former, channel, key) or _is_new_qp(former, port, key)):
                raise ExchangeError("taken", f"another program serves {name_of(port)}")
            former.channel.drop()  # its end was not noticed yet, or it no longer has the UD QP
            self._end(former)
        for who, most in _limits(channel.uid).items():
            if self._counts[who] >= most:
                raise ExchangeError(
                    "quota", f"the programs of {who} serve {most} ports: end some of them first"
                )
        if not former and (not port or port in FREE_PORTS):
            self._check_free(channel.uid)
        port = port or self._free_port()
        service = self._services[port] = Service(port, channel, own, key)
        self._count(service, 1)
        return service

    def _check_free(self, user: User) -> None:
        """Raise ExchangeError unless a user may serve one more of FREE_PORTS: it has not more of
        them than others find."""
        free = len(FREE_PORTS) - self._in_use
        if not free:
            raise ExchangeError("taken", "no port is free")
        for who in _limits(user):
            if self._taken[who] >= free:
                raise ExchangeError(
                    "quota",
                    f"only {free} ports from {FREE_PORTS[0]} on are free, and the programs "
                    f"of {who} serve {self._taken[who]}: end some of them first",
                )

    def _count(self, service: Service, more: int) -> None:
        """more: 1 for a service that begins, -1 for one that ends."""
        of_free = more * (service.port in FREE_PORTS)
        self._in_use += of_free
        for who in _limits(service.channel.uid):
            for counts, change in ((self._counts, more), (self._taken, of_free)):
                counts[who] += change
                if not counts[who]:
                    del counts[who]

    def _end(self, service: Service) -> None:
        """The program serves its port no longer; without effect the second time."""
        if self._services.get(service.port) is not service:
            return
        del self._services[service.port]
        self._count(service, -1)
        self._ended(service)

    def _free_port(self) -> int:
        """One of FREE_PORTS. The caller knows that there is one."""
        return random.choice([port for port in FREE_PORTS if port not in self._services])


def _limits(user: User) -> dict[User, int]:
    """The most ports of a user, and of all users of its computer: a host can name any number."""
    host = group(user)
    return {user: PER_USER} | ({host: PER_HOST} if host else {})


def _is_new_qp(former: Service, port: int, key: bytes) -> bool:
    """True if the worker has given the QPN of a UD QP to another leg, whose token is the key."""
    return bool(port & QPN_BIT) and not hmac.compare_digest(former.key, key)


def _comes_back(former: Service, channel: Channel, key: bytes) -> bool:
    """True if a channel is of the program that serves a port, by a newer control link."""
    return (
        former.channel.link < channel.link
        and former.channel.uid == channel.uid
        and bool(key)
        and hmac.compare_digest(former.key, key)
    )
