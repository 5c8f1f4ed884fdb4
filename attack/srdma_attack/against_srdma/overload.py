"""An authorised peer that demands more than its share of a worker. The neighbour, another peer of
the same worker, must not notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from srdma import RecvWR
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import DEPTH as NEIGHBOUR_DEPTH
from srdma_attack.lab import RIGHTS, WAIT, Counters, Lab, lab
from srdma_attack.peer import DEPTH, Peer, read, write
from tests.reference import wire
from tests.reference.ack import Kind

SIZE = 1 << 16
ROUNDS = 400  # of packets of a flood
FAR = 1 << 20  # request ids beyond what a target keeps
MESSAGES = NEIGHBOUR_DEPTH  # of the neighbour during an attack


def _beside(settings: Settings, attack: Callable[[Lab, Peer], bool]) -> Finding:
    """Runs the attack while the neighbour sends messages. It succeeds if it returns True or if the
    neighbour loses a message."""
    with lab(settings) as it:
        pair, peer = it.pair(), Peer(it)
        counters = Counters(it.server)
        for number in range(MESSAGES // 2):
            pair.client.write(number.to_bytes(4, "big"), pair.remote, 4 * number, timeout=WAIT)
        succeeded = attack(it, peer)
        for number in range(MESSAGES // 2, MESSAGES):
            pair.client.write(number.to_bytes(4, "big"), pair.remote, 4 * number, timeout=WAIT)
        sent = b"".join(number.to_bytes(4, "big") for number in range(MESSAGES))
        lost = bytes(pair.region.buf[: len(sent)]) != sent
        return Finding(outcome(succeeded or lost or not pair.works()), counters.rose())


def completion_storm(settings: Settings) -> Finding:
    """Sends more messages with immediate data than the victim has posted RECVs."""

    def attack(it: Lab, peer: Peer) -> bool:
        for _ in range(DEPTH):
            peer.qp.post_recv(RecvWR())
        storm = wire.Packet(wire.Op.SEND_ONLY_IMM, imm=7)
        for _ in range(4 * DEPTH):
            peer.request(storm)
        completions = 0
        while found := peer.qp.poll(DEPTH, WAIT):
            completions += len(found)
        return completions > DEPTH

    return _beside(settings, attack)


def read_queue(settings: Settings) -> Finding:
    """Asks for more READs at once than the victim has response slots, and acknowledges nothing."""

    def attack(it: Lab, peer: Peer) -> bool:
        region = it.undo.enter_context(it.server.pd.alloc(SIZE, RIGHTS, scope="pd"))
        slots = peer.qp.info.reads
        for number in range(8 * slots):
            peer.send(replace(read(region.addr, region.rkey, SIZE), request_id=number))
        return False

    return _beside(settings, attack)


def slow_paths(settings: Settings) -> Finding:
    """Sends what takes a worker longer than a new packet: PINGs, duplicates, requests far ahead."""

    def attack(it: Lab, peer: Peer) -> bool:
        region = it.undo.enter_context(it.server.pd.alloc(SIZE, RIGHTS, scope="pd"))
        first = write(region.addr, region.rkey, b"first")
        peer.request(first)
        for _ in range(ROUNDS):
            peer.control(Kind.PING)
            peer.send(first)
            peer.send(replace(first, request_id=FAR))
        return bytes(region.buf[:5]) != b"first"

    return _beside(settings, attack)
