"""Serves channels (agent.md 2): the part that a private agent and a system agent have in common."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from srdma import gid as gids
from srdma.agent.accounts import User, account, host_of, restricted
from srdma.agent.audit import Audit, no_audit
from srdma.agent.channel import Absent, Channel, until_closed
from srdma.agent.closing import close_drained
from srdma.agent.listener import Admission, Listener
from srdma.agent.meeting import Address, Meeting
from srdma.agent.memberships import Use
from srdma.agent.peers import Peer
from srdma.agent.policy import Policy
from srdma.agent.port import Port
from srdma.agent.record import Record
from srdma.agent.remote.sockets import Sockets
from srdma.agent.rule import Rule
from srdma.agent.session import Session
from srdma.agent.settings import Identity, Terms
from srdma.agent.takeover import Keeper
from srdma.agent.tasks import RESTART, WITHDRAWN
from srdma.agent.users import Users
from srdma.agent.worker import Worker
from srdma.agent.workers import Workers
from srdma.control import Control, peer_of, thread_path
from srdma.errors import (
    DeviceError,
    Error,
    LocalError,
    NoWorkerError,
    RefusedError,
    Timeout,
    WorkerGone,
)
from srdma.gid import QPName
from srdma.keyex.fields import ExchangeError
from srdma.keyex.groups import group_of
from srdma.keyex.offers import QPS_MAX, qpn_of
from srdma.keyex.pace import Turns
from srdma.keyex.secrets import unless_ended

SETTINGS_TIMEOUT = 10.0  # seconds for the first message of a channel
ADOPT_EVERY = 0.01  # seconds between two adopted sessions: about half a core
BACK_EVERY = 0.25  # seconds between two attempts to reach a worker on another computer
FIRST = "connect, listen, accept, rejoin, rotate, serve, talk, answer, group or open"
AWAY = "no link to the computer of the worker: see the proxy"

Own = Callable[[], Identity]
Kept = tuple[Session, Worker] | None


class Service:
    """Channels, and the workers, sessions and arrivals that are common to all of them."""

    def __init__(
        self,
        rule: Rule,
        audit: Audit = no_audit,
        keeper: Keeper | None = None,
        port: Address | None = None,
    ) -> None:
        """keeper and port: of a system agent. port: where it listens for peers, if it does."""
        self._rule, self.audit, self._keeper = rule, audit, keeper
        self._admission = Admission(audit, self.peer_at, rule.group_at, port)
        self.sessions, self.links = self._admission.sessions, self._admission.links
        self.rendezvous, self.callers = self._admission.rendezvous, self._admission.callers
        self.turns = Turns()
        self._workers = Workers(rule, keeper, self._admission.know)
        self._away = False  # the worker is on another computer, and there is no link
        self._adopted: dict[tuple[Path, int], tuple[Session, asyncio.Task[None]]] = {}
        self._tasks: dict[asyncio.Task[None], tuple[Identity, User] | None] = {}
        self._users = Users()
        self._sockets = Sockets()

    def open(self, sock: socket.socket, user: User | None = None, link: int = 0) -> None:
        """Serve a channel, whose socket it owns from now on. One that is too many is closed.

        user: if it is not the uid at the other end. link: number of the control link by which the
        program came; newer links have higher ones.
        """
        uid = peer_of(sock)[1] if user is None else user
        if not self._users.may_enter(uid):
            close_drained(uid, sock)
            return
        self._users.enter(uid)
        task = asyncio.ensure_future(self._serve(sock, uid, link))
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._over(task, uid, sock))

    def _over(self, task: asyncio.Task[None], uid: User, sock: socket.socket) -> None:
        close_drained(uid, sock)  # also if the task was cancelled before it began
        del self._tasks[task]
        self._users.leave(uid)

    async def close(self, *, restart: bool = False) -> None:
        """End all channels. restart: without close_notify, so that the peers' QPs go on."""
        if restart:
            self._admission.memberships.silence()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel(*([RESTART] if restart else []))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.links.close(restart=restart)

    async def serve_port(self, sock: socket.socket, policy: Policy) -> NoReturn:
        """Admit peers at the port of the agent."""
        with contextlib.closing(sock):
            await Port(sock, policy.granted, self._admission).run()

    async def take_over(self, path: Path) -> None:
        """Adopt the sessions that the worker keeps. path: of the control socket of its process 0.

        Raises RefusedError if another agent serves the worker.
        """
        assert self._keeper
        path = self._rule.worker_at(path)  # as that of a program that comes back
        try:
            first = await self._workers.kept(path)
            hello = first.control.hello()
        except (NoWorkerError, WorkerGone):  # one that starts later keeps nothing
            self._away = self.worker_remote
            return
        number, whole = itertools.count(), True
        for thread in range(hello.threads):
            socket_path = thread_path(path, thread)
            try:
                worker = await self._keeper.worker(socket_path)
                for record in self._keeper.kept(worker):
                    self._adopt(socket_path, worker, record, next(number) * ADOPT_EVERY)
            except (NoWorkerError, WorkerGone, Timeout) as error:
                self.audit("failed", code="worker", text=f"no take-over: {error}")
                whole = False
        self._away = self.worker_remote and not whole

    @property
    def worker_remote(self) -> bool:
        """See House."""
        return self._rule.worker_remote

    async def follow(self, path: Path) -> NoReturn:
        """The worker is on another computer: at each end of the link, do what the end and the
        next start of an agent do (control-link.md 7). path: as in take_over()."""
        while True:
            try:
                worker = await self._workers.kept(self._rule.worker_at(path))
            except (DeviceError, Timeout):
                await asyncio.sleep(BACK_EVERY)
                continue
            with contextlib.suppress(DeviceError, Timeout):
                if self._away:
                    await self.take_over(path)
            if self._away:  # not wholly taken over
                await asyncio.sleep(BACK_EVERY)
            else:
                await asyncio.wait([worker.ended])
                self._away = True
            await self.close(restart=True)  # another take-over would adopt sessions again

    def peer_at(self, gid: bytes) -> Peer:
        """See Peers.at()."""
        return self._rule.peer_at(gid)

    def keep(self, record: Record, worker: Worker) -> None:
        """See House. Without it the session goes on, until the agent ends."""
        if not self._keeper:
            return
        try:
            self._keeper.keep(record, worker.path)
        except (LocalError, RefusedError) as error:
            self.audit("failed", uid=record.uid, own=record.own, code="keep", text=str(error))

    def withdraw(self, permits: Callable[[str, User], bool]) -> int:
        """End the channels whose user may not use their identity any more. Returns how many. The
        uses of groups are checked too."""
        found = [
            task
            for task, used in self._tasks.items()
            if used and not permits(used[0].name, used[1])
        ]
        for task in found:
            task.cancel(WITHDRAWN)
        self._admission.policy_changed()
        return len(found)

    def _adopt(self, path: Path, worker: Worker, record: Record, pause: float) -> None:
        settings = {"identity": record.own, "peer": []}
        try:
            own = self._rule.current(settings, record.uid)
        except ExchangeError as error:  # the policy changed meanwhile
            self.audit("failed", uid=record.uid, code=error.code, text=error.text)
            for qpn in record.agreement.qpns:
                with unless_ended():
                    worker.control.expire(qpn)
            return
        session = Session(Absent(record.uid), own, self)
        task = asyncio.ensure_future(session.adopt(worker, record, pause))
        self._tasks[task] = own(), record.uid
        keys = [(path, qpn) for qpn in record.agreement.qpns if qpn]
        self._adopted |= dict.fromkeys(keys, (session, task))
        task.add_done_callback(lambda task: self._adopted_over(task, keys))

    def _adopted_over(self, task: asyncio.Task[None], keys: list[tuple[Path, int]]) -> None:
        del self._tasks[task]
        self._forget(task, keys)
        if not task.cancelled() and (fault := task.exception()):
            self.audit("fault", text=f"{type(fault).__name__}: {fault}")

    def _forget(self, task: asyncio.Task[None], keys: list[tuple[Path, int]]) -> None:
        """The programs of a session cannot come back any more. A QPN may be of a newer session."""
        for key in keys:
            if key in self._adopted and self._adopted[key][1] is task:
                del self._adopted[key]

    async def _serve(self, sock: socket.socket, uid: User, link: int) -> None:
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT):
                room = self._users.room(uid)
                channel = await Channel.open(sock, uid, link, room)
        except (OSError, TimeoutError):
            return
        worker: Worker | None = None
        try:
            if kept := await self._do(channel, room.turn):
                session, worker = kept
                del kept
                with self._returnable(session, worker):
                    await session.keep()
        except ExchangeError as error:
            self.audit("failed", uid=channel.uid, code=error.code, text=error.text)
            channel.report("error", code=error.code, text=error.text)
        except Error as error:
            channel.report("error", code="worker", text=str(error))
        except TimeoutError:
            text = f"no settings in {SETTINGS_TIMEOUT:g} s"
            channel.report("error", code="config", text=text)
        except Exception as error:  # a fault of this program must not end it
            text = f"a fault of the agent, please report it: {type(error).__name__}: {error}"
            self.audit("fault", uid=channel.uid, text=text)
            channel.report("error", code="worker", text=text)
        except asyncio.CancelledError as end:
            if RESTART in end.args:  # it does not wait for programs that do not read
                channel.drop()
            elif WITHDRAWN in end.args:
                channel.report("error", code="policy", text=WITHDRAWN)
            raise
        finally:
            if worker:
                self._workers.release(worker)
            await channel.close()

    @contextlib.contextmanager
    def _returnable(self, session: Session, worker: Worker) -> Iterator[None]:
        """A program of another computer may come back (control-link.md 2.5)."""
        task = asyncio.current_task()
        assert task
        keys = [(worker.path, qpn) for qpn in session.qpns if session.remote]
        self._adopted |= dict.fromkeys(keys, (session, task))
        try:
            yield
        finally:
            self._forget(task, keys)

    async def _do(self, channel: Channel, turn: asyncio.Lock) -> Kept:
        """Do what the first message says, when it is its turn among those of this user. Returns a
        session that is READY."""
        async with asyncio.timeout(SETTINGS_TIMEOUT):
            settings = await channel.message() or {}
        async with turn:
            await asyncio.sleep(0)  # one of each user in a pass of the event loop
        if self._away:
            raise ExchangeError("worker", AWAY)
        match settings:
            case {"do": "listen"}:
                await self._listen(channel, settings)
            case {"do": "connect", "address": [str(host), int(port)]}:
                own = self._own(channel, settings)
                return await self._session(channel, own, settings, (host, port))
            case {"do": "connect", "to": [bytes(gid), int(qpn)]} if len(gid) == gids.LEN:
                own = self._own(channel, settings)
                return await self._session(channel, own, settings, QPName(gid, qpn))
            case {"do": "accept", "arrival": number}:
                meeting = self._admission.arrivals.take(number, channel.uid)
                return await self._accept(channel, settings, meeting)
            case {
                "do": "rejoin", "identity": str(), "worker": str(), "token": bytes(),
                "qpns": [*qpns],
            } if len(qpns) <= QPS_MAX:  # fmt: skip
                await self._rejoin(channel, settings)
            case {"do": "rotate", "worker": str(path), "token": bytes(token), "age": int(age)}:
                await self._rotate(channel, Path(path), token, age)
            case {"do": "open", "worker": str(path)}:
                await self._pass_on(channel, Path(path))
            case {"do": "serve" | "talk" | "answer", "worker": str(path)}:
                await self._talk(channel, settings, Path(path))
            case {
                "do": "group", "worker": str(path), "token": bytes(token), "group": bytes(),
                "qpn": int(), "member": 0 | 1,
            }:  # fmt: skip
                await self._use_group(channel, settings, Path(path), token)
            case _:
                raise ExchangeError("config", f"a channel begins with {FIRST}")
        return None

    def _own(self, channel: Channel, settings: Mapping[str, Any]) -> Own:
        """The identity that the settings name. Raises ExchangeError."""
        own = self._rule.current(settings, channel.uid)
        task = asyncio.current_task()
        assert task
        self._tasks[task] = own(), channel.uid
        return own

    async def _listen(self, channel: Channel, settings: Mapping[str, Any]) -> None:
        own = self._own(channel, settings)
        if "address" in settings:
            entry = self._rule.host_at(channel.uid)
            channel.listening = await self._sockets.listen(channel, entry, settings["address"])
        elif channel.listening:
            channel.report("listening")
        else:
            raise ExchangeError("config", "no listening TCP socket beside the message")
        listener = Listener(channel, channel.listening, own, self._admission)
        await until_closed(channel, listener.run())

    async def _talk(self, channel: Channel, settings: Mapping[str, Any], path: Path) -> None:
        own = self._own(channel, settings)
        path = self._rule.worker_at(path)
        if self._keeper:  # else the GID is not known
            await self._workers.kept(path)
        match settings:
            case {"do": "serve", "qpn": int(qpn), "token": bytes(token)}:
                await self._check_qp(channel, path, token, qpn_of("qpn", qpn))
        await self._admission.talks.serve(channel, own, settings)

    async def _check_qp(self, channel: Channel, path: Path, token: bytes, qpn: int) -> None:
        """Raise ExchangeError unless the QP is one of the program that is not connected. Uses of a
        former QP with its QPN end."""
        async with self._workers.held(path, token) as worker:
            await worker.attach(token, channel.uid)
            worker.check_new(qpn)
        self._admission.memberships.given_out(qpn, (path, token))

    async def _use_group(
        self, channel: Channel, settings: Mapping[str, Any], path: Path, token: bytes
    ) -> None:
        own = self._own(channel, settings)
        path = self._rule.worker_at(path)
        group, qpn = group_of(settings, "group"), qpn_of("qpn", settings["qpn"])
        self._rule.group_at(group).check_own(own().name)
        kept = await self._workers.kept(path)  # not of a private agent, which has no groups

        async def made() -> Use:
            await self._check_qp(channel, path, token, qpn)
            return Use(channel, own, group, qpn, (path, token), settings["member"] == 1)

        await self._admission.multicast.run(channel, made, kept.ended)

    async def _accept(
        self, channel: Channel, settings: Mapping[str, Any], meeting: Meeting
    ) -> Kept:
        try:
            own = self._own(channel, settings)
            meeting.check(own())
            return await self._session(channel, own, settings, meeting)
        except Error as error:  # in the settings, or the worker is gone
            told = (
                error if isinstance(error, ExchangeError) else ExchangeError("worker", str(error))
            )
            await meeting.fail(told)
            raise
        except BaseException:
            meeting.drop()
            raise

    async def _session(
        self,
        channel: Channel,
        own: Own,
        settings: Mapping[str, Any],
        peer: Meeting | Address | QPName,
    ) -> Kept:
        """Returns the session, with its worker, which the caller releases."""
        terms = own().narrowed(Terms.of(settings))
        session = Session(channel, own, self)
        worker = await self._workers.hold(self._rule.worker_at(terms.worker), terms.token)
        ready = False
        try:
            ready = await session.begin(worker, terms, peer)
        finally:
            if not ready:
                self._workers.release(worker)
        return (session, worker) if ready else None

    async def _rejoin(self, channel: Channel, settings: Mapping[str, Any]) -> None:
        """A program is back after a restart of the agent, or a loss of its link."""
        self._rule.check_user(channel.uid)
        path = self._rule.worker_at(Path(settings["worker"]))
        keys = [(path, qpn) for qpn in settings["qpns"] if isinstance(qpn, int)]
        sessions = [self._adopted[key] for key in keys if key in self._adopted]
        if not sessions:
            raise ExchangeError("closed", "the session of these QPs has ended")
        session, task = sessions[0]
        used = self._tasks[task]
        # A proxy has checked this identity.
        if not used or used[0].name != settings["identity"]:
            raise ExchangeError("closed", "the session of these QPs has another identity")
        async with self._workers.held(path, settings["token"]) as worker:
            leg = await worker.attach(settings["token"], channel.uid)
            if leg != session.leg or not session.returned(channel):
                raise ExchangeError("closed", "the session of these QPs is not of this program")
            # The program may be lost again: a further channel takes the place of this one then.
            await asyncio.wait({task, channel.gone()}, return_when=asyncio.FIRST_COMPLETED)

    async def _rotate(self, channel: Channel, path: Path, token: bytes, age: int) -> None:
        """ROTATE for a program, whose own connection to the worker may not send it."""
        self._rule.check_user(channel.uid)
        async with self._workers.held(self._rule.worker_at(path), token) as worker:
            leg = await worker.attach(token, channel.uid)
            rotation = worker.control.rotate(leg, age)
        channel.report("rotated", serial=rotation.serial, behind=rotation.behind)

    async def _pass_on(self, channel: Channel, path: Path) -> None:
        control = await self.restricted(path, channel.uid)
        with contextlib.closing(control), contextlib.suppress(OSError):  # the program has ended
            lasting = {"lasting": True} if self.worker_remote else {}
            channel.pass_on("opened", control.fileno(), **lasting)

    async def restricted(self, path: Path, user: User) -> Control:
        """A connection to the worker for a program that may not connect itself (agent.md 9). The
        caller closes it.

        Raises ExchangeError (`policy`, `quota`, `worker`, `config`), NoWorkerError.
        """
        if not self._keeper:
            raise ExchangeError("config", "a private agent passes no connection to the worker")
        self._rule.check_user(user)
        path = self._rule.worker_at(path)
        await self._keeper.worker(path)
        limits = self._rule.limits(user)
        try:
            keep = self.worker_remote or host_of(user) != ""
            control = restricted(path, self._rule.worker_user, user, limits, keep=keep)
        except RefusedError as error:
            code = "quota" if error.errno == errno.EDQUOT else "worker"
            raise ExchangeError(code, str(error)) from None
        self.audit("passed", uid=user, account=account(user))
        return control
