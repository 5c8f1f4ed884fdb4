"""A program with many connections, in one event loop: the load of the agents.

It speaks to its agent over channels (docs/agent.md 2) as the API does, but without a thread per
connection. Its QPs have queues of depth 1, and are made (INIT) as those of the API.

    python -m srdma_bench.keys.program CONFIG

runs an end that accepts all peers until the end of stdin. CONFIG is JSON with the fields of
Accepting. It prints one JSON line with the addresses of its listeners and the pid of its agent.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbor2

from srdma import plain_cbor
from srdma.agent.client import SystemAgent
from srdma.agent.private import PrivateAgent
from srdma.connection import REKEY_LIMIT
from srdma.context import Context
from srdma.embedded import Closing
from srdma.errors import DeviceError
from srdma.keyex.exchange import Role
from srdma.options import Options
from srdma.pd import PD
from srdma.qp import SecureQP

BACKLOG = 1024
RING = 65536  # completion ring: room for 21,845 QPs of depth 1
FOREVER = 1e6  # seconds


class Channel:
    """A channel to the agent: messages go out, events come in."""

    def __init__(self, agent: SystemAgent | PrivateAgent) -> None:
        self._sock = agent.open()

    async def open(self, fields: Mapping[str, Any], listening: socket.socket | None = None) -> None:
        """Send the first message."""
        raw = cbor2.dumps(fields, canonical=True)
        raw = len(raw).to_bytes(4, "big") + raw
        if listening:
            raw = raw[socket.send_fds(self._sock, [raw], [listening.fileno()]) :]
        self._reader, self._writer = await asyncio.open_unix_connection(sock=self._sock)
        self._writer.write(raw)

    def send(self, fields: Mapping[str, Any]) -> None:
        raw = cbor2.dumps(fields, canonical=True)
        self._writer.write(len(raw).to_bytes(4, "big") + raw)

    async def event(self) -> dict[str, Any]:
        """The next event. Raises DeviceError at the end of the channel."""
        try:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            found = plain_cbor.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, OSError):
            raise DeviceError("the agent closed a channel: see its log") from None
        assert isinstance(found, dict)
        return found

    async def until(self, name: str) -> dict[str, Any]:
        """The next event of this name. Raises DeviceError if an error or `closed` comes instead."""
        while (event := await self.event())["event"] != name:
            if event["event"] in ("error", "closed"):
                raise DeviceError(f"the agent reports {event.get('text', 'a closed connection')}")
        return event

    def close(self) -> None:
        self._writer.close()


@dataclass
class Session:
    """A connection whose QPs are in RTS. seconds: from INIT of its QPs until then."""

    channel: Channel
    qps: list[SecureQP]
    seconds: float
    wishes: int = 0

    async def renew(self) -> None:
        """Make new secrets take effect."""
        self.wishes += 1
        self.channel.send({"do": "renew", "wish": self.wishes})
        while (await self.channel.until("renewed"))["wish"] < self.wishes:
            pass

    def close(self) -> None:
        self.channel.close()
        for qp in self.qps:
            qp.close()


class Program(Closing):
    """A Context with one PD. agent: path of a system agent's socket; "": a private agent."""

    def __init__(self, worker: Path, agent: str, timeout: float = 30.0) -> None:
        self._context = Context(worker, agent=agent)
        self._timeout = timeout
        self._pd = PD(self._context, RING)
        self.agent = self._context.agent()

    @property
    def agent_pid(self) -> int:
        """Process of the private agent; 0 for a system agent."""
        return self.agent.pid if isinstance(self.agent, PrivateAgent) else 0

    async def session(
        self, role: Role, identity: str, peer: Mapping[str, Any], qps: int, limit: float
    ) -> Session:
        """Make a connection. peer: the fields of `connect` or `accept`. limit: REKEY_LIMIT, or
        more seconds if many renewals are under way at the same time."""
        start = time.perf_counter()
        made = [SecureQP(self._pd, 1, 1) for _ in range(qps)]
        options = Options(identity=identity, qps=qps, timeout=self._timeout, rekey_every=0)
        channel = Channel(self.agent)
        await channel.open({
            **peer,
            "identity": identity,
            "peer": [],
            "worker": str(self._pd.path),
            "token": self._pd.token,
            "suites": [list(suite) for suite in options.allowed_by(self._pd)],
            "modes": options.modes(role),
            "group": "",
            "qps": [vars(qp.info) for qp in made],
            "data": b"",
            "timeout": options.timeout,
            "every": options.rekey_every,
            "limit": limit,
            "max_age": options.max_secret_age,
        })  # fmt: skip
        await channel.until("ready")
        for qp in made:
            qp.connected = True
        return Session(channel, made, time.perf_counter() - start)

    async def connect(
        self, identity: str, address: Sequence[Any], qps: int = 1, limit: float = REKEY_LIMIT
    ) -> Session:
        peer = {"do": "connect", "address": list(address)}
        return await self.session("client", identity, peer, qps, limit)

    async def listen(self, identity: str) -> tuple[Channel, tuple[str, int]]:
        """The channel of a new listener, and its address."""
        sock = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        channel = Channel(self.agent)
        await channel.open({"do": "listen", "identity": identity, "peer": []}, sock)
        address = sock.getsockname()[:2]
        sock.close()
        await channel.until("listening")
        return channel, address

    def close(self) -> None:
        self._context.close()


@dataclass
class Accepting:
    """An end that accepts all peers. identities: one listener per entry. qps: per connection.
    agent: as in Program; timeout: of an exchange; limit: of a renewal, seconds."""

    worker: str
    agent: str
    identities: list[str]
    qps: int = 1
    timeout: float = 30.0
    limit: float = REKEY_LIMIT
    _tasks: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def run(self) -> None:
        with Program(Path(self.worker), self.agent, self.timeout) as program:
            listeners = [(name, *await program.listen(name)) for name in self.identities]
            print(
                json.dumps({
                    "addresses": [address for _, _, address in listeners],
                    "agent": program.agent_pid,
                }),
                flush=True,
            )  # fmt: skip
            for name, channel, _ in listeners:
                self._start(self._accept(program, name, channel))
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(sys.stdin, ended.set)
            await ended.wait()
            for task in [*self._tasks]:
                task.cancel()

    async def _accept(self, program: Program, identity: str, channel: Channel) -> None:
        while True:
            event = await channel.event()
            if event["event"] == "arrived":
                self._start(self._serve(program, identity, event["arrival"]))

    async def _serve(self, program: Program, identity: str, arrival: int) -> None:
        peer = {"do": "accept", "arrival": arrival}
        try:
            session = await program.session("server", identity, peer, self.qps, self.limit)
        except DeviceError as error:  # the other end reports it, and fails
            print(f"a peer was not accepted: {error}", file=sys.stderr)
            return
        try:
            while (await session.channel.event())["event"] not in ("error", "closed"):
                pass
        except DeviceError:
            pass
        session.close()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


if __name__ == "__main__":
    asyncio.run(Accepting(**json.loads(sys.argv[1])).run())
