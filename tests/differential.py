"""Connections of two ends, each implemented in C and in the Python reference. Both must agree.
Used by test_differential.py and test_modes_differential.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests import fields
from tests.native import bindings
from tests.reference import protect, random_packets, wire
from tests.reference.pd import PdKeys, with_secrets
from tests.reference.protect import Mode
from tests.reference.reasons import RefusedError
from tests.reference.session import Params, Session
from tests.reference.suites import SUITES, Level
from tests.reference.wire import Flag, Op, Packet

HELD = 0.08  # share of datagrams that arrive late
TWICE = 0.05  # share of datagrams that arrive twice


def forms() -> list[tuple[int, Level, int]]:
    """Every suite, level and tag length."""
    found = [(0, Level.NONE, 0)]
    for suite in SUITES.values():
        found += [(suite.id, level, n) for level in suite.levels for n in suite.tag_sizes]
    return found


FORMS = forms()


@dataclass
class End:
    """One end of a connection in both implementations, which must agree."""

    native: bindings.Session
    reference: Session
    pd: PdKeys | None  # in mode pd with policy owner: the PD of this end
    last_id: int = 0

    def advance(self, now: int, told: int) -> int:
        began = self.native.advance(now, told)
        assert began == self.reference.advance(now, told)
        epochs = self.reference.tx.epoch, self.reference.rx.epoch
        assert self.native.epochs == epochs
        return began

    def renew(self, direction: int, secret: bytes) -> None:
        derived = direction == 1 and self.pd
        self.native.renew(direction, bytes(len(secret)) if derived else secret)
        self.reference.renew(direction, secret)

    def seal(self, packet: Packet, access_key: bytes | None = None) -> bytes:
        given = fields.of_packet(packet) | {"access_key": access_key}
        sealed = self.native.seal(given, packet.payload)
        assert sealed == self.reference.seal(packet, access_key), packet
        return sealed

    def open(self, data: bytes) -> Any:
        """Returns the result of both, or the counter that both incremented on refusal."""
        in_c = verdict(self.native.open, data)
        in_python = verdict(self._reference_open, data)
        assert in_c == in_python, data.hex()
        return in_c

    def _reference_open(self, data: bytes) -> Any:
        pn, opened = self.reference.open(data)
        if opened.flags & Flag.PROOF and self.reference.params.level:
            assert self.native.claim() == protect.proof_data(self.reference.opened_in, pn, opened)
        return fields.of_opened(pn, opened)


def verdict(opener: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        return opener(data)
    except (RefusedError, bindings.RefusedError) as refused:
        return refused.counter


@dataclass(frozen=True)
class Workers:
    """The workers of a client and of a server: their PDs and key caches. A
    trust group has one PD twice."""

    pds: tuple[PdKeys, PdKeys]
    caches: tuple[bindings.KeyCache, bindings.KeyCache]

    @property
    def shared(self) -> bool:
        return self.pds[0] == self.pds[1]

    def native(self, params: Params, end: int) -> Any:
        """Returns the native form of one end's session, without the secrets
        that its worker derives."""
        if not params.mode & Mode.PD:
            return fields.of_params(params)
        none = bytes(len(params.rx_secret))
        return fields.of_params(params) | {
            "rx_secret": none,
            "tx_secret": none if self.shared else params.tx_secret,
            "group_key": self.pds[end].group_key,
            "shared": self.shared,
            "key_cache": self.caches[end],
        }


def random_workers(rng: Random, shared: bool, contexts: tuple[int, int]) -> Workers:
    pds = [PdKeys(rng.randbytes(16), rng.randbytes(32)) for _ in range(2)]
    own, peer = (bindings.KeyCache(n) for n in contexts)
    return Workers((pds[0], pds[0] if shared else pds[1]), (own, peer))


def ends(params: Params, workers: Workers) -> list[End]:
    if params.mode & Mode.PD:
        params = with_secrets(params, *workers.pds)
    owner = params.mode & Mode.PD and not workers.shared
    return [
        End(bindings.Session(workers.native(p, i)), Session(p), workers.pds[i] if owner else None)
        for i, p in enumerate((params, params.mirrored()))
    ]


def random_params(rng: Random, form: tuple[int, Level, int], mode: int = Mode.BASIC) -> Params:
    suite, level, tag_len = form
    params = random_packets.params(rng, suite, level, rng.getrandbits(1), tag_len)
    first = rng.choice((1 << 24, 1 << 32, 1 << 61)) - rng.randrange(1, 999)
    return replace(
        params,
        tx_pn=first,
        window=rng.choice((64, 1024)),
        mode=mode,
        rekey_packets=first % 3 * 20 + 3,
        rekey_bytes=(5000, 1 << 36)[first % 2],
        rekey_ns=(40, 10**9)[first % 7 % 2],
    )


def next_packet(rng: Random, sender: End, receiver: End) -> Packet:
    op = rng.choice(list(Op))
    size = rng.choice((0, 1, 2, 3, 4, rng.randrange(200), rng.randrange(4097), 4096))
    payload = random_packets.payload_for(rng, op, size)
    if wire.ROWS[op].request:
        sender.last_id += rng.choice((0, 1, 2)) if rng.random() < 0.98 else rng.getrandbits(22)
        request_id = sender.last_id
    else:
        request_id = max(receiver.last_id - rng.choice((0, 1, rng.getrandbits(21))), 0)
    return random_packets.packet(rng, op, request_id, payload, proof=rng.random() < 0.3)


def flip(rng: Random, data: bytes) -> bytes:
    """Flips one bit, in the headers with probability 3/4."""
    end = len(data) if rng.random() < 0.25 else min(len(data), 140)
    changed = bytearray(data)
    changed[rng.randrange(end)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def damage(rng: Random, data: bytes) -> bytes:
    kind = rng.randrange(8)
    if kind == 0:
        return data[: rng.randrange(len(data))]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 65))
    if kind == 2:
        at = rng.randrange(len(data))
        return data[:at] + rng.randbytes(4) + data[at + 4 :]
    return flip(rng, data)


def promised(level: Level, tag_len: int, data: bytes, damaged: bytes) -> bool:
    """True if the protocol promises to detect this damage. False for level none, for the byte
    that a router may change, and for payload at level header."""
    if len(damaged) != len(data) or level == Level.NONE:
        return level != Level.NONE
    free = {4}
    if level == Level.HEADER:
        packet = wire.parse(data, tag_len)
        start = len(data) - len(packet.payload) - -len(packet.payload) % 4
        free |= set(range(start, start + len(packet.payload)))
    return any(a != b for i, (a, b) in enumerate(zip(data, damaged, strict=True)) if i not in free)


def arrivals(rng: Random, held: list[bytes], data: bytes) -> Iterator[bytes]:
    """Yields the datagrams that arrive when `data` is sent: it may be late or arrive twice."""
    if rng.random() < HELD:
        held.append(data)
    else:
        yield data
    if rng.random() < TWICE:
        yield data
    while held and rng.random() < 0.02:
        yield held.pop(rng.randrange(len(held)))


class Conversation:
    """Packets of all kinds between two ends. Both implementations seal each packet, refuse a
    damaged copy of it, and open it, sometimes late or twice."""

    def __init__(self, rng: Random, form: tuple[int, Level, int], pair: list[End]) -> None:
        self.rng, self.form, self.pair = rng, form, pair
        self.proves = bool(pair[0].reference.params.mode & Mode.MEM)
        self.held: tuple[list[bytes], list[bytes]] = ([], [])
        self.counts: Counter[str] = Counter()  # outcomes of all arrivals
        self.epoch_rng = Random(f"epochs {form}")
        self.now = 0
        self.told = [0, 0]  # by sender: the highest packet number that the peer acknowledged

    def _change_epoch(self, sender: int) -> None:
        """Advances the epoch if that is due and permitted. Sometimes both
        ends get a new secret first."""
        rng, end, peer = self.epoch_rng, self.pair[sender], self.pair[1 - sender]
        self.now += rng.randrange(3)
        if rng.random() < 0.5:
            self.told[sender] = peer.reference.window.highest
        if rng.random() < 0.02:
            self._renew(end, peer)
        self.counts[f"advance {end.advance(self.now, self.told[sender])}"] += 1

    def _renew(self, end: End, peer: End) -> None:
        direction = end.reference.tx
        waits = end.reference.outgoing.fresh is not None
        derived = bool(direction.mode & Mode.PD)
        if waits or peer.reference.incoming.fresh is not None or not direction.level:
            return
        if derived and not peer.pd:  # the secrets of a group stay
            return
        secret = self.epoch_rng.randbytes(len(direction.secret))
        if derived:
            secret = direction.secret  # derived from the K_PD, which was not rotated
        peer.renew(1, secret)
        if self.epoch_rng.random() < 0.8:
            end.renew(2, secret)
        self.counts["renewed"] += 1

    def packet(self) -> None:
        rng = self.rng
        sender = rng.getrandbits(1)
        receiver = self.pair[1 - sender]
        self._change_epoch(sender)
        packet = next_packet(rng, self.pair[sender], receiver)
        made_here = self.proves and packet.flags & Flag.PROOF and rng.random() < 0.9
        data = self.pair[sender].seal(packet, rng.randbytes(16) if made_here else None)
        self.counts["proofs"] += bool(made_here)
        damaged = damage(rng, data)
        found = receiver.open(damaged)
        if damaged != data and promised(self.form[1], self.form[2], data, damaged):
            assert isinstance(found, str), f"accepted damage {damaged.hex()} of {data.hex()}"
            self.counts["damaged"] += 1
        for arriving in arrivals(rng, self.held[sender], data):
            found = receiver.open(arriving)
            self.counts[found if isinstance(found, str) else "accepted"] += 1
