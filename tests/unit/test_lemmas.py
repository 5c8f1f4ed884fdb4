"""z3 proves the lemmas of tests/proofs and refutes their twins; the formulas are those of C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

pytest.importorskip("z3", reason="z3-solver is not installed: .ci/setup test")

import z3

from tests import fields
from tests.native import arithmetic, memkeys
from tests.native.bindings import RefusedError, Session, infer, parse
from tests.proofs import lengths, nonce, numbers, tree, window
from tests.proofs.lemma import Lemma, number, value
from tests.reference import protect, wire
from tests.reference.session import Params
from tests.reference.suites import SUITES, Level
from tests.reference.wire import Op, Packet

MODULES = (numbers, window, lengths, tree, nonce)
LEMMAS: dict[str, Lemma] = {name: lemma for m in MODULES for name, lemma in m.LEMMAS.items()}
TWINS = [(name, twin) for name, lemma in LEMMAS.items() for twin in lemma.twins]
TOP = (1 << 64) - 1
END = 1 << 62
CASES = 1000  # of each formula but that of trees
TREES = 60

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", LEMMAS)
def test_z3_proves_the_lemma(name: str) -> None:
    assert LEMMAS[name].proved() == z3.unsat


@pytest.mark.parametrize(("name", "twin"), TWINS)
def test_z3_refutes_the_twin(name: str, twin: str) -> None:
    assert LEMMAS[name].refuted(twin) == z3.sat


def test_each_lemma_has_a_twin() -> None:
    assert all(lemma.twins for lemma in LEMMAS.values())


# --- the formulas and the C functions -----------------------------------------


def near(random: Random, edges: tuple[int, ...], top: int = TOP) -> int:
    """A number near one of the edges, or any number."""
    if random.random() < 0.2:
        return random.randrange(top + 1)
    return min(max(random.choice(edges) + random.randint(-3, 3), 0), top)


def test_inferred_numbers() -> None:
    random = Random(1)
    half, cycle = numbers.HALF.as_long(), numbers.CYCLE.as_long()
    found = 0
    for _ in range(CASES):
        expected = near(random, (0, half, cycle, cycle + half, 5 * cycle, END - half, END), END)
        low = (expected + near(random, (0, half, cycle - 1), cycle - 1)) % cycle
        result = numbers.infer(number(expected), number(low))
        lemma = value(result.number) if value(result.found) else None
        found += lemma is not None
        assert infer(expected, low) == lemma, (expected, low)
    assert CASES / 3 < found < CASES


@pytest.mark.parametrize("size", [64, 1024])
@pytest.mark.parametrize("first", [0, 1, 63, 64, 5000, END - 3000])
def test_windows(first: int, size: int) -> None:
    """Tests and bitmaps of a window that is moved by steps of all kinds."""
    random = Random(first ^ size)
    formula, c = window.Formula(), arithmetic.Window(first, size)
    for _ in range(25):
        steps = (0, 1, 63, 64, 65, size, 2047, 2048, 2049, -1, -63, -64, -size, -size - 1)
        pn = min(max(c.next + random.choice(steps) + random.randint(-1, 1), 0), END - 1)
        before = window.concrete(c.next, size, c.seen)
        accepted = c.test(pn)
        assert accepted == value(formula.accepts(before, number(pn))), (c.next, pn)
        if not accepted:
            continue
        after = formula.commit(before, number(pn))
        c.commit(pn)
        assert c.next == value(after.next)
        edges = (pn % 2048, pn // 64 * 64 % 2048, c.next % 2048, 0, 2047)
        for i in {near(random, edges, 2047) for _ in range(15)}:
            assert c.seen >> i & 1 == value(after.seen(number(i))), (c.next, pn, i)


def test_bounds_of_regions() -> None:
    random = Random(2)
    allowed = 0
    for _ in range(CASES):
        base, length = near(random, (0, 4096, 1 << 63, TOP)), near(random, (0, 64, 1 << 63, TOP))
        addr = near(random, (base, (base + length) & TOP, 0, TOP))
        size = near(random, (0, length, (base + length - addr) & TOP, TOP))
        lemma = value(lengths.within(*map(z3.IntVal, (base, length, addr, size))))
        allowed += lemma
        assert arithmetic.allows(base, length, addr, size) == lemma, (base, length, addr, size)
    assert CASES / 20 < allowed < CASES * 0.95


# Names of the counters of wire.c that belong to a verdict. Every other one is of a later check.
VERDICTS = {"short": lengths.SHORT, "length": lengths.LENGTH_OF_PAYLOAD}
TAGS = {0: 0, 12: 1, 16: 2, 64: 7}  # size code by length (protocol.md 2.1)


class Case:
    """A datagram of zeros but for the fields that its layout depends on."""

    def __init__(self, random: Random) -> None:
        self.op = random.choice(list(wire.ROWS))
        self.row = wire.ROWS[self.op]
        self.tag, self.mtu = random.choice(list(TAGS)), random.choice((256, 4096))
        self.extension = sum(wire.SIZES[name] for name in self.row.headers)
        self.proof = self.row.proof and random.random() < 0.5
        self.ack = self.op == Op.ACKNOWLEDGE
        self.gaps = random.choice((0, 1, 8, 9, 255)) if self.ack else 0
        self.pad = random.randrange(4)
        header = 12 + self.extension + (32 if self.proof else 8) + self.tag
        body = header + (28 + 12 * self.gaps if self.ack else 0)
        ends = (0, 12, 20, header, header + 28, body, body + self.mtu, lengths.MAX_PACKET)
        self.length = near(random, ends, 5000)
        data = bytearray(5000)
        data[:12] = bytes([self.op, self.pad << 4, 255, 255, *bytes(8)])
        data[8] = TAGS[self.tag] << 4
        data[12 + self.extension + 3] = 0x80 if self.proof else 0
        if self.ack:
            data[header + 2] = self.gaps
        self.data = bytes(data[: self.length])

    def shape(self) -> lengths.Datagram:
        words = {name: getattr(self, name) for name in ("length", "extension", "gaps", "tag")}
        flags = {
            "proof": self.proof,
            "ack": self.ack,
            "payload": self.row.payload != wire.Payload.NONE,
            "only": self.op.name.endswith(("ONLY", "ONLY_IMM", "ONLY_INV")),
        }
        return lengths.Datagram(
            **{
                name: number(n, 32)
                for name, n in (words | {"pad": self.pad, "mtu": self.mtu}).items()
            },
            **{name: z3.BoolVal(flag) for name, flag in flags.items()},
        )


def test_layout_of_datagrams() -> None:
    random, seen = Random(3), set()
    for _ in range(CASES):
        case = Case(random)
        lemma = lengths.Parser()(case.shape())
        verdict = value(lemma.verdict)
        try:
            payload = len(parse(case.data, case.tag, case.mtu)["payload"])
        except RefusedError as refused:
            # The zeros of an ack body are refused by a later check of the same name.
            too_many = refused.counter == "ack_body" and case.gaps > lengths.MAX_GAPS
            expected = lengths.GAPS if too_many else VERDICTS.get(refused.counter, lengths.FINE)
            assert expected == verdict, (vars(case), refused)
        else:
            assert verdict == lengths.FINE
            assert payload == value(lemma.payload), vars(case)
        seen.add(verdict)
    assert seen == {lengths.SHORT, lengths.GAPS, lengths.LENGTH_OF_PAYLOAD, lengths.FINE}


def trees(random: Random) -> Iterator[tuple[memkeys.Region, tree.Tree, int]]:
    """Trees with blocks of 64 bytes to 1 GiB, up to the longest region."""
    for _ in range(TREES):
        log2_block, limit = random.choice((6, 12, 30)), random.choice((1, 3, 48))
        most = 1 << min(63, log2_block + random.choice((0, 2, 5, 60)))
        length = max(1, near(random, (most, most // 2, 1 << log2_block), most))
        region = memkeys.Region(bytes(16), (0, length, log2_block, limit), 1, 1, bytes(16))
        yield region, tree.Tree(number(length), number(log2_block), number(limit)), length


def test_nodes_and_covers() -> None:
    random, formula, covers = Random(4), tree.Formula(), 0
    for region, t, length in trees(random):
        depth = value(formula.depth(t))
        for d in {0, depth, random.randint(0, depth)}:
            offset = near(random, (0, length, length // 2), length - 1)
            node = formula.node(t, number(d), number(offset))
            assert region.find(d, offset) == (d, *map(value, node)), (length, d, offset)
        with pytest.raises(ValueError, match="EINVAL"):
            region.find(depth + 1, 0)
        lo, hi = cover_range(random, value(formula.span(t, number(depth))), length)
        covers += value(formula.granted(t, number(lo), number(hi)))
        check_cover(region, t, (lo, hi))
    assert TREES / 3 < covers < TREES


def cover_range(random: Random, granule: int, length: int) -> tuple[int, int]:
    lo = random.randrange(length) // granule * granule
    hi = min(length, lo + granule * random.randint(1, 9))
    return random.choice(((lo, hi), (lo, hi), (lo, length), (lo + 1, hi), (lo, hi + 1)))


def check_cover(region: memkeys.Region, t: tree.Tree, range_: tuple[int, int]) -> None:
    """Compares a cover with the nodes that the formula of greatest() finds."""
    formula, (lo, hi) = tree.Formula(), range_
    depth = value(formula.depth(t))
    try:
        nodes = region.cover(lo, hi)
    except (ValueError, OSError):
        nodes = []
    assert bool(nodes) == value(formula.granted(t, number(lo), number(hi))), (t, range_)
    for d, *found in nodes[:8] if depth <= 12 else []:
        greatest = formula.greatest(t, number(lo), number(hi), depth)
        assert found == [value(part) for part in greatest], (t, range_, d)
        lo = found[-1]


@pytest.mark.parametrize("role", [0, 1])
def test_nonces(monkeypatch: pytest.MonkeyPatch, role: int) -> None:
    """The reference opens packets of a C session with the nonce of the formula."""

    def of_formula(d: protect.Direction, iv: bytes, pn: int) -> bytes:
        words = (int.from_bytes(iv, "big"), 96), (d.direction, 8), (pn, 64)
        return value(nonce.nonce(*(z3.BitVecVal(*word) for word in words))).to_bytes(12, "big")

    monkeypatch.setattr(protect, "nonce", of_formula)
    random = Random(role)
    for _ in range(20):
        pn = near(random, (0, 1 << 23, 1 << 32, END - 100), END - 100)
        params = session_params(random, role, pn)
        packet = Packet(Op.SEND_ONLY, request_id=1, payload=b"payload")
        data = Session(vars(params)).seal(fields.of_packet(packet), packet.payload)
        parsed = replace(wire.parse(data, 16), request_id=1)
        opened = protect.unseal(params.directions()[0], pn, parsed)
        assert opened is not None and opened.payload == b"payload", pn


def session_params(random: Random, role: int, pn: int) -> Params:
    suite = next(suite for suite in SUITES.values() if suite.name == "aes-128-gcm")
    return Params(
        role,
        suite.id,
        Level.AEAD,
        16,
        *(random.randbytes(n) for n in (8, 16, 16)),
        local_qpn=5,
        peer_qpn=9,
        tx_pn=pn,
        rx_pn=1,
        tx_secret=random.randbytes(16),
        rx_secret=random.randbytes(16),
    )
