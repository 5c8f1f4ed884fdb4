"""The laboratory for attacks on srdma: workers with UDP wires on 127.0.0.1, and QPs between them.

The kit is the agent of both ends (tests/keying.py), so that it has no TLS to wait for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from srdma import MR, PD, Access, Context, RemoteMR, SecureQP
from srdma.control import Keys, QPState
from srdma.embedded import Embedded, Worker
from srdma.errors import Error
from srdma.keyex.offers import UNPROTECTED
from srdma.keyex.policy import suite_named
from srdma_attack.attack import KitError, Settings
from srdma_attack.datagrams import LOOPBACK, Address, parse_address
from srdma_attack.middle import LEFT, RIGHT, Middle
from tests.keying import End, Protection, key, until_running
from tests.reference import wire

WAIT = 60.0  # seconds; long enough for a busy machine
SUITE = suite_named("aes-128-gcm")
RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
REGION = 1 << 16
DEPTH = 32
RING = 4096
CLIENT, SERVER = "spiffe://lab/client", "spiffe://lab/server"


@dataclass(frozen=True)
class Host:
    """A host with one PD at a worker."""

    worker: Worker
    ctx: Context
    pd: PD

    @property
    def wire(self) -> Address:
        return parse_address(self.ctx.hello.wire)

    def stats(self) -> dict[str, int]:
        return dict(self.ctx.stats())


def until(condition: Callable[[], bool], what: str) -> None:
    """Waits for the condition. Raises KitError."""
    deadline = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > deadline:
            raise KitError(f"waited {WAIT:g} s for {what}")
        time.sleep(0.005)


class Counters:
    """The counters of hosts' workers since this object was made."""

    def __init__(self, *hosts: Host) -> None:
        self._hosts = hosts
        self._before = [host.stats() for host in hosts]

    def rose(self) -> dict[str, int]:
        """The sums of the counters that rose."""
        found: dict[str, int] = {}
        for host, before in zip(self._hosts, self._before, strict=True):
            for name, value in host.stats().items():
                if name and value > before[name]:
                    found[name] = found.get(name, 0) + value - before[name]
        return found

    def taken(self) -> int:
        """The number of packets that were dropped without an answer, or accepted unprotected."""
        return sum(
            n
            for name, n in self.rose().items()
            if name.startswith("refused_") or name == "packets_unprotected_received"
        )


@dataclass(frozen=True)
class Pair:
    """Two connected QPs. The client may write and read `region`, which is the server's."""

    client: SecureQP
    server: SecureQP
    region: MR

    @property
    def remote(self) -> RemoteMR:
        return self.region.remote()

    @property
    def untouched(self) -> bool:
        """True if the region has zeros only."""
        return not any(self.region.buf)

    @property
    def alive(self) -> bool:
        """True if both workers have their QP in state RTS."""
        states = [qp.pd.control.wait(qp.qp_num, WAIT)[0] for qp in (self.client, self.server)]
        return states == [QPState.RTS, QPState.RTS]

    def works(self) -> bool:
        """True if the client can still write and read. It restores the bytes."""
        if not self.alive:
            return False
        before = bytes(self.region.buf[:4])
        try:
            self.client.write(b"work", self.remote, timeout=WAIT)
            read = self.client.read(self.remote, 0, 4, timeout=WAIT)
            self.client.write(before, self.remote, timeout=WAIT)
        except Error:
            return False
        return read == b"work"


class Lab:
    """Workers and hosts for one attack. protected=False: the sessions have level `none`."""

    def __init__(self, nics: Embedded, undo: contextlib.ExitStack, protected: bool) -> None:
        self._nics = nics
        self.undo = undo
        self.suite = SUITE if protected else UNPROTECTED
        self.client = self.host(self.worker("client"))
        self.server = self.host(self.worker("server"))

    def worker(self, name: str) -> Worker:
        words = ["--wire-dev", "udp", "--wire-listen", f"{LOOPBACK}:0"]
        if self.suite is UNPROTECTED:
            words.append("--allow-unprotected")
        return self._nics.launch(name, words)

    def host(self, worker: Worker) -> Host:
        ctx = self.undo.enter_context(Context(worker.control))
        return Host(worker, ctx, self.undo.enter_context(PD(ctx, RING)))

    def middle(self) -> Middle:
        """A man in the middle of client and server."""
        return self.undo.enter_context(Middle(self.client.wire, self.server.wire))

    def pair(self, middle: Middle | None = None, *, timeout: float = WAIT) -> Pair:
        """Connects two new QPs. timeout: of their requests, in seconds."""
        client, server = (
            self.undo.enter_context(SecureQP(host.pd, DEPTH, DEPTH, timeout=timeout))
            for host in (self.client, self.server)
        )
        ends = (
            End(self.client.pd.control, client.info, CLIENT),
            End(self.server.pd.control, server.info, SERVER),
        )
        key(
            ends[0],
            ends[1],
            Protection(self.suite),
            spoil_client=lambda keys: _through(middle, LEFT, keys),
            spoil_server=lambda keys: _through(middle, RIGHT, keys),
        )
        until_running(ends[0], ends[1], WAIT)
        client.connected = server.connected = True
        region = self.undo.enter_context(self.server.pd.alloc(REGION, RIGHTS))
        return Pair(client, server, region)

    def forged(self, packet: wire.Packet) -> bytes:
        """The packet with a random tag: the forger has no key."""
        return wire.build(replace(packet, tag=os.urandom(self.suite.tag_len)))


def _through(middle: Middle | None, side: int, keys: Keys) -> Keys:
    """The keys with the address of the middle as that of the peer."""
    if middle is None:
        return keys
    host, port = middle.address(side)
    return replace(keys, peer_wire=f"{host}:{port}")


@contextlib.contextmanager
def lab(settings: Settings) -> Iterator[Lab]:
    with Embedded() as nics, contextlib.ExitStack() as undo:
        yield Lab(nics, undo, settings.protected)
