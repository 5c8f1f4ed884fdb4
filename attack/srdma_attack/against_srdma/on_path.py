"""A man in the middle of two workers, who may change, repeat, delay and turn back packets. All his
packets have right ICRCs."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from srdma.errors import Error
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import REGION, WAIT, Counters, Pair, lab
from srdma_attack.middle import LEFT, RIGHT, Rule, pass_on
from tests.reference import wire

DATA = bytes(range(256)) * (REGION // 256)
PAYLOAD_PACKET = 256  # bytes; shorter packets carry no part of DATA
EVERY = 5  # one packet in EVERY is attacked, so that the transfer goes on
SEED = 16

Packets = Iterable[tuple[int, bytes]]


def _intact(pair: Pair) -> bool:
    """Writes DATA and reads it. True if both work and the bytes are right."""
    try:
        pair.client.write(DATA, pair.remote, timeout=WAIT)
        placed = bytes(pair.region.buf) == DATA
        return placed and pair.client.read(pair.remote, timeout=WAIT) == DATA
    except Error:
        return False


def _under(settings: Settings, rule: Rule) -> Finding:
    """A transfer under the rule."""
    with lab(settings) as it:
        middle = it.middle()
        pair = it.pair(middle)
        counters = Counters(it.client, it.server)
        middle.rule = rule
        intact = _intact(pair)
        middle.rule = pass_on
        return Finding(outcome(not intact or not pair.works()), counters.rose())


class _EveryFifth:
    """A rule that changes one packet with payload in EVERY."""

    def __init__(self) -> None:
        self._dice = random.Random(SEED)
        self._count = 0

    def __call__(self, side: int, packet: bytes) -> Packets:
        if len(packet) < PAYLOAD_PACKET:
            return pass_on(side, packet)
        self._count += 1
        if self._count % EVERY:
            return pass_on(side, packet)
        return self.attack(side, packet)

    def attack(self, side: int, packet: bytes) -> Packets:
        raise NotImplementedError


class _Flip(_EveryFifth):
    def attack(self, side: int, packet: bytes) -> Packets:
        bit = self._dice.randrange(8 * len(packet))
        flipped = bytearray(packet)
        flipped[bit // 8] ^= 1 << bit % 8
        return ((1 - side, bytes(flipped)),)


class _Truncate(_EveryFifth):
    def attack(self, side: int, packet: bytes) -> Packets:
        return ((1 - side, packet[:-4]),)


class Reorder(_EveryFifth):
    """Holds a packet until the next one of its side has passed."""

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[int, bytes] = {}

    def __call__(self, side: int, packet: bytes) -> Packets:
        late = self._held.pop(side, None)
        passed = list(super().__call__(side, packet))
        return [*passed, *([(1 - side, late)] if late else [])]

    def attack(self, side: int, packet: bytes) -> Packets:
        self._held[side] = packet
        return ()


def flip(settings: Settings) -> Finding:
    """Flips a bit anywhere in a packet."""
    return _under(settings, _Flip())


def truncate(settings: Settings) -> Finding:
    """Cuts the end of the payload."""
    return _under(settings, _Truncate())


def reorder(settings: Settings) -> Finding:
    """Swaps neighbours."""
    return _under(settings, Reorder())


def replay(settings: Settings) -> Finding:
    """Repeats the packets of a WRITE after a newer WRITE to the same bytes."""
    with lab(settings) as it:
        middle = it.middle()
        pair = it.pair(middle)
        counters = Counters(it.server)
        pair.client.write(b"former", pair.remote, timeout=WAIT)
        recorded = [packet for side, packet in middle.seen if side == LEFT]
        pair.client.write(b"newest", pair.remote, timeout=WAIT)
        for packet in recorded:
            middle.give(RIGHT, packet)
        works = pair.works()  # by now the worker has taken the repeated packets
        replaced = bytes(pair.region.buf[:6]) != b"newest"
        return Finding(outcome(replaced or not works), counters.rose())


def reflect(settings: Settings) -> Finding:
    """Sends a client's packets back to it, readdressed to its QP under the numbers of its peer."""
    with lab(settings) as it:
        middle = it.middle()
        pair = it.pair(middle)
        counters = Counters(it.client)
        number = int.from_bytes(middle.last(RIGHT)[9:12], "big")

        def rule(side: int, packet: bytes) -> Packets:
            nonlocal number
            if side == RIGHT:
                return pass_on(side, packet)
            number = (number + 1) % (1 << 24)
            mirrored = bytearray(packet)
            mirrored[5:8] = pair.client.qp_num.to_bytes(3, "big")
            mirrored[9:12] = number.to_bytes(3, "big")
            return (LEFT, bytes(mirrored)), (RIGHT, packet)

        middle.rule = rule
        works = pair.works()
        return Finding(outcome(not works or not pair.untouched), counters.rose())


def downgrade(settings: Settings) -> Finding:
    """Sends, before each packet, a copy without tag whose code says that it has none, with other
    payload."""
    with lab(settings) as it:
        middle = it.middle()
        pair = it.pair(middle)
        counters = Counters(it.server)

        def rule(side: int, packet: bytes) -> Packets:
            if side == RIGHT or len(packet) < PAYLOAD_PACKET:
                return pass_on(side, packet)
            return (RIGHT, _without_tag(packet, it.suite.tag_len)), (RIGHT, packet)

        middle.rule = rule
        intact = _intact(pair)
        return Finding(outcome(not intact), counters.rose())


def _without_tag(packet: bytes, tag_len: int) -> bytes:
    """The packet as one of level `none`, with bytes of the attacker."""
    fields = wire.parse(packet, tag_len)
    payload = b"unprotected!"[:4] * (len(fields.payload) // 4)
    return wire.build(replace(fields, tag=b"", payload=payload))
