"""The goodput of a tenant of a worker while 80 QPs of another identity misbehave, in each known
way.

The tenant writes as fast as it can. The packets of the other one are sealed before, and leave in
the time of the measurement from a process of its own. The control is the same with a closed port in
place of the worker: the costs outside of the worker are about the same (docs/attacks.md). With two
tenants the fair share is half of the control.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from srdma import MR, SendWR, WROpcode
from srdma_attack.attack import Settings
from srdma_attack.datagrams import LOOPBACK, Address, with_icrc
from srdma_attack.lab import REGION, RIGHTS, WAIT, Counters, Lab, Pair, lab
from srdma_attack.peer import Peer, read, write
from tests.reference import wire
from tests.reference.ack import Kind

QPS, PACKETS = 80, 100  # misbehaving QPs, and packets of each
SECONDS, ROUNDS = 1.0, 3  # of a measurement; measurements, in turn
OUTSTANDING = 16  # WRITEs of the tenant
CLOSED = (LOOPBACK, 9)
FAR = 1 << 20  # request ids beyond what a target keeps
TENANTS = 2

Datagrams = Sequence[tuple[socket.socket, bytes]]


@dataclass(frozen=True)
class Way:
    """A way to misbehave: packet number n of a QP, sealed. once: the first packet of a QP is sent
    in place of its others too."""

    name: str
    packet: Callable[[Peer, MR, int], bytes]
    once: bool = False


@dataclass(frozen=True)
class Goodput:
    """goodput, control: MB/s, medians of the rounds. sent: packets of the other tenant. refused:
    packets that the worker dropped, by counter."""

    name: str
    goodput: float
    control: float
    sent: int
    refused: dict[str, int]

    @property
    def of_all(self) -> float:
        return self.goodput / self.control

    @property
    def of_fair_share(self) -> float:
        return TENANTS * self.of_all


def _request(
    make: Callable[[MR], wire.Packet], first: int = 0, step: int = 1
) -> Callable[[Peer, MR, int], bytes]:
    """Requests with the ids first, first + step, and so on."""

    def packet(peer: Peer, region: MR, number: int) -> bytes:
        return peer.seal(replace(make(region), request_id=first + step * number))

    return packet


def _forged(peer: Peer, region: MR, number: int) -> bytes:
    packet = peer.seal(_small(region))
    return packet[:-4] + os.urandom(4)


def _ping(peer: Peer, region: MR, number: int) -> bytes:
    return peer.sealed_control(Kind.PING)


def _small(region: MR) -> wire.Packet:
    return write(region.addr, region.rkey, b"evil")


def _read(region: MR) -> wire.Packet:
    return read(region.addr, region.rkey, REGION)


def _wrong(region: MR) -> wire.Packet:
    return write(region.addr, region.rkey ^ 1, b"evil")


def _add(region: MR) -> wire.Packet:
    return wire.Packet(wire.Op.FETCH_ADD, va=region.addr, rkey=region.rkey, swap_add=1)


WAYS = (
    Way("small WRITEs without a pause", _request(_small)),
    Way("READs whose responses are not confirmed", _request(_read)),
    Way("atomics", _request(_add)),
    Way("packets behind a gap", _request(_small, first=1)),
    Way("requests far ahead", _request(_small, first=FAR)),
    Way("requests that were executed", _request(_small, step=0)),
    Way("PINGs", _ping),
    Way("packets to QPs that failed", _request(_wrong)),
    Way("replays", _request(_small), once=True),
    Way("forged tags", _forged),
)


def beside(way: Way, rounds: int = ROUNDS) -> Goodput:
    """Measures in turn beside the way and beside its control."""
    runs: dict[bool, list[float]] = {False: [], True: []}
    refused: dict[str, int] = {}
    for _ in range(rounds):
        for closed in (True, False):
            goodput, dropped = _run(way, closed)
            runs[closed].append(goodput)
            for name, count in dropped.items():
                refused[name] = refused.get(name, 0) + count
    medians = {closed: statistics.median(found) for closed, found in runs.items()}
    return Goodput(way.name, medians[False], medians[True], rounds * QPS * PACKETS, refused)


def _run(way: Way, closed: bool) -> tuple[float, dict[str, int]]:
    with lab(Settings()) as it:
        pair = it.pair()
        to = CLOSED if closed else it.server.wire
        datagrams = _prepared(it, way, to)
        counters = Counters(it.server)
        with _sending(datagrams, to):
            goodput = _written(pair)
        pair.client.write(b"last", pair.remote, timeout=WAIT)  # behind all of them
        rose = counters.rose()
        return goodput, {name: n for name, n in rose.items() if name.startswith("refused_")}


def _prepared(it: Lab, way: Way, to: Address) -> Datagrams:
    """The datagrams of all QPs, in turn."""
    region = it.undo.enter_context(it.server.pd.alloc(REGION, RIGHTS, scope="pd"))
    of_qps = []
    for peer in [Peer(it) for _ in range(QPS)]:
        sealed = [way.packet(peer, region, n) for n in range(1 if way.once else PACKETS)]
        sent = [(peer.socket, with_icrc(peer.socket, packet, to)) for packet in sealed]
        of_qps.append(sent * (PACKETS // len(sent)))
    return [one for in_turn in zip(*of_qps, strict=True) for one in in_turn]


@contextmanager
def _sending(datagrams: Datagrams, to: Address) -> Iterator[None]:
    process = multiprocessing.get_context("fork").Process(target=_send, args=(datagrams, to))
    process.start()
    try:
        yield
        process.join(WAIT)
    finally:
        process.kill()
        process.join()


def _send(datagrams: Datagrams, to: Address) -> None:
    """Sends them at equal distances in the time of a measurement."""
    start = time.monotonic()
    for number, (sock, data) in enumerate(datagrams):
        due = start + SECONDS * number / len(datagrams)
        if (wait := due - time.monotonic()) > 0:
            time.sleep(wait)
        sock.sendto(data, to)


def _written(pair: Pair) -> float:
    """MB/s of WRITEs that completed."""
    remote = pair.remote
    with pair.client.pd.alloc(REGION) as own:

        def post() -> None:
            request = SendWR(0, WROpcode.RDMA_WRITE, [own.sge()])
            request.set_wr_rdma(remote.rkey, remote.address)
            pair.client.post_send(request)

        done, start = 0, time.monotonic()
        for _ in range(OUTSTANDING):
            post()
        while (passed := time.monotonic() - start) < SECONDS:
            for completion in pair.client.poll(OUTSTANDING, WAIT):
                completion.raise_for_status()
                done += 1
                post()
        left = OUTSTANDING
        while left:
            left -= len(pair.client.poll(OUTSTANDING, WAIT))
        return done * REGION / passed / 1e6
