"""The proxy of a host whose worker is on another computer (control-link.md)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NoReturn

from srdma.agent.accounts import User
from srdma.agent.audit import Audit
from srdma.agent.channel import Channel
from srdma.agent.client import message_of
from srdma.agent.closing import close_drained
from srdma.agent.dial import dial
from srdma.agent.entrance import HANDSHAKE_TIMEOUT
from srdma.agent.remote.link import UNREACHABLE, Link, Wire
from srdma.agent.remote.proxy_file import ProxyFile
from srdma.agent.remote.relay import Relay
from srdma.agent.service import SETTINGS_TIMEOUT
from srdma.agent.tasks import cancelled
from srdma.agent.users import Users
from srdma.control import peer_of
from srdma.keyex.fields import ExchangeError
from srdma.keyex.policy import check_identity
from srdma.keyex.tls import PeerClosed

PAUSE_LEAST, PAUSE_MOST = 0.1, 5.0  # seconds between two attempts to connect
PATIENCE = 5.0  # seconds after the end of a link, for which programs wait for another one
ANOTHER = ExchangeError("policy", "the file of the proxy names another NIC")
WITHDRAWN = ExchangeError("policy", "the file of the proxy does not grant the identity any more")
# First messages with the name of an identity.
NAMED = {"connect", "accept", "listen", "rejoin", "serve", "talk", "answer", "group"}


class Proxy:
    """Serves the programs of this host by the agent of its NIC."""

    def __init__(self, file: ProxyFile, audit: Audit) -> None:
        self._file, self._audit = file, audit
        self._containers = [*file.doors]  # a file that is read again brings no other sockets
        self._link: Link | None = None
        self._way = file.way  # of the link
        self._usable = asyncio.Event()
        self.tried = asyncio.Event()  # set after the first attempt to connect
        self._why = ExchangeError(UNREACHABLE, "the proxy has just started")
        self._lost_at = time.monotonic()
        self._users = Users()  # control connections count as channels
        self._channels: dict[Relay, tuple[str, User]] = {}  # with identity and user
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, sock: socket.socket, container: str = "") -> None:
        """Serve a program at a new socket, which is owned from now on. container: through whose
        socket it came."""
        user: User = container or peer_of(sock)[1]
        if not self._users.may_enter(user):
            close_drained(user, sock)
            return
        self._users.enter(user)
        self._begin_task(self._serve(sock, user))

    def takers(self) -> list[Callable[[socket.socket], None]]:
        """A function for new connections of each of ProxyFile.places()."""
        return [self.open, *(partial(self.open, container=name) for name in self._containers)]

    def withdraw(self) -> int:
        """The file was read again. End the link if it leads to another NIC, else the
        channels whose user may not use their identity any more. Returns how many."""
        if self._link and self._way != self._file.way:
            self._link.stop(ANOTHER)
            return len(self._channels)
        found = [
            relay
            for relay, (name, user) in self._channels.items()
            if name and not self._file.permits(name, user)
        ]
        for relay in found:
            relay.fail(WITHDRAWN)
        return len(found)

    async def close(self) -> None:
        """End all programs' attempts."""
        for task in [*self._tasks]:
            await cancelled(task)

    async def run(self) -> NoReturn:
        """Keep a link to the NIC's agent."""
        pause = PAUSE_LEAST
        while True:
            try:
                self._why = await self._linked()
            except ExchangeError as error:
                self._why = error
            except (OSError, PeerClosed, TimeoutError) as error:
                text = str(error) or "it closed, or did not answer"
                self._why = ExchangeError(UNREACHABLE, text)
            if self._link:
                pause, self._lost_at = PAUSE_LEAST, time.monotonic()
            self._link = None
            self._audit("unlinked", code=self._why.code, text=self._why.text)
            self.tried.set()
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MOST)

    # Internal ---------------------------------------------------------------

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _failed(self, user: User, error: ExchangeError) -> None:
        self._audit("failed", uid=user, code=error.code, text=error.text)

    async def _linked(self) -> ExchangeError:
        """Connect, and serve the link until it ends. Returns the reason."""
        file = self._file
        self._way = file.way
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            sock = await dial(*file.nic)
            link = Link(await Wire.open(sock, "client", file.control, expected=file.peer))
            try:
                await link.handshake()
                check_identity(link.identity, [file.peer])
            except BaseException:
                link.drop()
                raise
        link.greeted = lambda: self._greeted(link)
        return await link.run()

    def _greeted(self, link: Link) -> None:
        if self._way != self._file.way:  # the file was replaced meanwhile
            link.stop(ANOTHER)
            return
        self._link = link
        self._usable.set()
        self.tried.set()
        self._audit("linked", peer=self._file.peer, computer=link.name, ahead=link.ahead)

    async def _up(self) -> Link:
        """A link, for which a program waits a little. Raises ExchangeError."""
        now = time.monotonic()
        since = now if self._link else self._lost_at  # a link that is not usable ends now
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(since + PATIENCE - now, 0)):
                while not (self._link and self._link.usable):
                    self._usable.clear()
                    await self._usable.wait()
        return self._up_now()

    def _up_now(self) -> Link:
        """A link. Raises ExchangeError."""
        if self._link and self._link.usable:
            return self._link
        raise ExchangeError(
            "worker",
            f"no link to the NIC at {self._file.nic[0]}:{self._file.nic[1]}: {self._why.text}",
        )

    async def _serve(self, sock: socket.socket, user: User) -> None:
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT):
                channel = await Channel.open(sock, user, room=self._users.room(user))
        except (OSError, TimeoutError):
            close_drained(user, sock)
            self._users.leave(user)
            return
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT):
                settings = await channel.message()
            if settings is not None:
                await self._begin(channel, user, settings)
        except ExchangeError as error:
            self._failed(user, error)
            channel.report("error", code=error.code, text=error.text)
        except TimeoutError:
            text = f"no settings in {SETTINGS_TIMEOUT:g} s"
            channel.report("error", code="config", text=text)
        except Exception as error:  # a fault of this program must not end it
            text = f"a fault of the proxy, please report it: {type(error).__name__}: {error}"
            self._audit("fault", uid=user, text=text)
            channel.report("error", code="worker", text=text)
        finally:
            self._users.leave(user)
            await channel.close()

    async def _begin(self, channel: Channel, user: User, settings: dict[str, Any]) -> None:
        """Do what the first message says. Raises ExchangeError."""
        if channel.listening:
            raise ExchangeError(
                "config",
                "the worker is on another computer, whose agent opens the listening socket: give "
                "its address",
            )
        if settings.get("do") == "status":
            self._tell(channel)
            return
        link = await self._up()
        match settings:
            case {"do": "open", "worker": str(path)}:
                await self._worker(link, channel, user, path)
            case {"do": str()}:
                self._agent(link, channel, user, settings)
            case _:
                raise ExchangeError("config", "the first message has no `do`")

    def _tell(self, channel: Channel) -> None:
        """Report the state of the link."""
        link, (host, port) = self._link, self._file.nic
        fields: dict[str, Any] = {"nic": f"{host}:{port}", "peer": self._file.peer}
        if link:
            fields |= {"computer": link.name, "ahead": link.ahead, "streams": link.streams}
        else:
            fields["text"] = self._why.text
        channel.report("status", **fields)

    async def _worker(self, link: Link, channel: Channel, user: User, path: str) -> None:
        """Pass one end of a control connection to the program."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.closing(theirs):
            relay = await self._carried(link, ours, user, path)
            relay.start()
            try:
                channel.pass_on("opened", theirs.fileno(), remote=True)
            except OSError:  # the program has ended
                relay.fail(None)

    async def _carried(self, link: Link, sock: socket.socket, user: User, path: str) -> Relay:
        """A stream to the worker, which carries nothing before Relay.start().

        sock: is owned from now on. Raises ExchangeError.
        """
        relay = self._relay(link, sock, "", user)
        relay.ready = asyncio.get_running_loop().create_future()
        link.open(relay, {"to": "worker", **_named(user), "path": path})
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT):
                await relay.ready
        except TimeoutError:
            relay.fail(None)
            raise ExchangeError("timeout", "the NIC did not answer") from None
        except BaseException:
            relay.fail(None)
            raise
        return relay

    def _agent(self, link: Link, channel: Channel, user: User, settings: dict[str, Any]) -> None:
        """Carry a channel to the NIC's agent."""
        name = ""
        if settings["do"] in NAMED:
            name = settings.get("identity", "")
            self._check(name, user)
        sock, rest = channel.detach()
        relay = self._relay(link, sock, str(name), user)
        link.open(relay, {"to": "agent", **_named(user)})
        relay.start(message_of(settings) + rest)

    def _check(self, name: object, user: User) -> None:
        if not self._file.permits(name, user):
            raise ExchangeError(
                "policy", f"the proxy grants no identity {name!r:.80} to programs of user {user}"
            )

    def _relay(self, link: Link, sock: socket.socket, name: str, user: User) -> Relay:
        relay = Relay(link, sock, partial(self._over, user), user)
        self._channels[relay] = name, user
        self._users.enter(user)
        return relay

    def _over(self, user: User, relay: Relay) -> None:
        del self._channels[relay]
        self._users.leave(user)


def _named(user: User) -> dict[str, User]:
    """The user of a program, for OPEN."""
    return {"container" if isinstance(user, str) else "uid": user}
