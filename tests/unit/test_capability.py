"""Capabilities in the application's view: srdma.capability over csrc/memory/capability.c."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from srdma import BoundsError, LocalError
from srdma.capability import Capability, CapabilityError, Right, holder_id
from tests.native.memkeys import Region

ALICE = "spiffe://example.org/alice"
START = 0x7F0011223000


def region(
    length: int, log2_block: int = 12, limit: int = 48, generation: int = 1, rkey: int = 7
) -> Region:
    tree = (START, START + length, log2_block, limit)
    return Region(b"K_PDmem of tests", tree, rkey, generation, b"salt of the tree")


def grant(length: int = 10 * 4096 - 5, lo: int = 4096, hi: int | None = None) -> Capability:
    return Capability(region(length).grant(lo, length if hi is None else hi, 7))


# --- any region, any range ------------------------------------------------------


@dataclass
class Case:
    """A capability over a range of a region of up to 2^48 bytes, and parts of that range."""

    owner: Region
    cap: Capability
    cuts: list[tuple[int, int]]  # offset and length, each relative to the previous part


def granules(length: int, granule: int) -> int:
    return -(-length // granule)


def part(data: st.DrawFn, length: int, granule: int) -> tuple[int, int]:
    """Draws (offset, length) of whole granules inside a range."""
    count = granules(length, granule)
    first = data(st.integers(0, count - 1))
    last = data(st.integers(first, count - 1))
    return first * granule, min((last + 1) * granule, length) - first * granule


@st.composite
def cases(draw: st.DrawFn) -> Case:
    length = draw(st.one_of(st.integers(1, 1 << 20), st.integers(1, 1 << 48)))
    owner = region(
        length, draw(st.integers(6, 30)), draw(st.one_of(st.just(48), st.integers(1, 9)))
    )
    rights = draw(st.integers(1, 7))
    whole = Capability(owner.grant(0, length, rights))
    offset, size = part(draw, length, whole.block_size)
    cap = whole.narrow(offset, size)
    cuts = []
    for _ in range(draw(st.integers(1, 3))):
        offset, size = part(draw, size, cap.block_size)
        cuts.append((offset, size))
    return Case(owner, cap, cuts)


@given(cases())
@settings(max_examples=300, deadline=None)
def test_narrowing_only_shrinks(case: Case) -> None:
    """Each step is inside the previous one and equals a direct grant by the owner."""
    cap = case.cap
    for offset, length in case.cuts:
        less = cap.narrow(offset, length)
        assert (less.length, less.rights) == (length, cap.rights)
        assert cap.address <= less.address == cap.address + offset
        assert less.address + less.length <= cap.address + cap.length
        end = less.offset + less.length
        assert less == Capability(case.owner.grant(less.offset, end, int(less.rights)))
        cap = less


@given(cases(), st.data())
@settings(max_examples=300, deadline=None)
def test_proofs_are_valid_for_the_granted_range_only(case: Case, data: st.DataObject) -> None:
    """The target accepts an access inside the range with its proof, and no access outside it
    with a proof from any key of the capability."""
    cap, ad = case.cap, b"associated data"
    lo, hi = cap.offset, cap.offset + cap.length
    start, end, *_ = cap._token.region
    near = st.sampled_from([lo, hi - 1, lo - 1, hi, 0, end - start - 1])
    offset = data.draw(near | st.integers(0, end - start - 1))
    assume(0 <= offset < end - start)
    right = data.draw(st.sampled_from(list(cap.rights)))
    inside = lo <= offset < hi
    (depth, _, first, last), proof = cap._token.proof(right, min(max(offset, lo), hi - 1), ad)
    assert lo <= first < last <= hi
    length = last - offset if inside else 1
    for at in range(depth + 2):
        claim = {"right": right, "depth": at, "addr": start + offset, "len": length}
        claim |= {"ad": ad, "proof": proof}
        try:
            case.owner.check(claim, 0)  # type: ignore[arg-type]
        except ValueError:
            assert not (inside and at == depth)
        else:
            assert inside and at == depth


@given(cases(), st.sampled_from(["holder", "expires", "both"]))
@settings(max_examples=200, deadline=None)
def test_sealed_capability_can_be_narrowed_to_whole_pieces_only(case: Case, how: str) -> None:
    options = {"holder": ALICE, "expires": 1_900_000_000}
    wanted = {k: v for k, v in options.items() if how in (k, "both")}
    sealed = case.cap.seal(**wanted)  # type: ignore[arg-type]
    for offset, length in case.cuts[:1]:
        whole = set(case.cap.narrow(offset, length).pieces)
        kept = {(at + offset, size) for at, size in whole} <= set(sealed.pieces)
        if kept:
            less = case.cap.narrow(offset, length).seal(**wanted)  # type: ignore[arg-type]
            assert sealed.narrow(offset, length) == less
        else:
            with pytest.raises(CapabilityError, match="whole pieces only"):
                sealed.narrow(offset, length)


@given(cases(), st.booleans())
@settings(max_examples=200, deadline=None)
def test_bytes_and_text_round_trip(case: Case, sealed: bool) -> None:
    cap = case.cap.seal(holder=ALICE) if sealed else case.cap
    data = cap.to_bytes()
    assert Capability.from_bytes(data) == cap and Capability.from_bytes(data).to_bytes() == data
    assert Capability.parse(str(cap)) == cap and str(Capability.parse(str(cap))) == str(cap)
    assert len(data) == 72 + 16 * len(cap.pieces) * len(list(cap.rights))


# --- mutated tokens -----------------------------------------------------------


@given(st.booleans(), st.data())
@settings(max_examples=400, deadline=None)
def test_mutated_bytes_are_refused(sealed: bool, data: st.DataObject) -> None:
    cap = grant().seal(holder=ALICE, expires=5) if sealed else grant()
    token = cap.to_bytes()
    kind = data.draw(st.sampled_from(["flip", "cut", "extend", "swap", "front"]))
    at = data.draw(st.integers(0, len(token) - 1))
    if kind == "flip":
        bad = token[:at] + bytes([token[at] ^ data.draw(st.integers(1, 255))]) + token[at + 1 :]
    elif kind == "cut":
        bad = token[:at]
    elif kind == "extend":
        bad = token + data.draw(st.binary(min_size=1, max_size=64))
    elif kind == "front":
        bad = data.draw(st.binary(min_size=1, max_size=64)) + token
    else:
        a, b = data.draw(st.tuples(*[st.integers(0, (len(token) - 72) // 16 - 1)] * 2))
        assume(a != b)
        keys = [token[i : i + 16] for i in range(64, len(token) - 8, 16)]
        keys[a], keys[b] = keys[b], keys[a]
        bad = token[:64] + b"".join(keys) + token[-8:]
    with pytest.raises(CapabilityError, match=f"these {len(bad)} bytes are no capability"):
        Capability.from_bytes(bad)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda token: token[:-1], "damaged"),
        (lambda token: b"", "the length does not match the range"),
        (lambda token: token * 30, "the length does not match the range"),
        (lambda token: b"xC" + token[2:], "no token of this version"),
        (lambda token: token[:2] + b"\2" + token[3:], "no token of this version"),
        (lambda token: token[:70] + bytes(1) + token[71:], "damaged"),
    ],
)
def test_refused_bytes_name_the_reason(change, why) -> None:
    with pytest.raises(CapabilityError, match=why):
        Capability.from_bytes(change(grant().to_bytes()))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda text: text.removeprefix("srdma-cap1:"), "begins with 'srdma-cap1:'"),
        (lambda text: "srdma-cap2:" + text[11:], "begins with 'srdma-cap1:'"),
        (lambda text: text + "=", "not base64url"),
        (lambda text: text[:20] + "!" + text[21:], "not base64url"),
        (lambda text: text[:20] + "+" + text[20:], "not base64url"),
        (lambda text: text[:40] + "\n" + text[40:], "not base64url"),
        (lambda text: text[:20] + "ä" + text[21:], "not base64url"),
        (lambda text: "srdma-cap1:", "length"),
        (lambda text: text + "A", "not base64url|damaged"),
        (lambda text: text[:-1], "not base64url|damaged"),
    ],
)
def test_text_is_strict(change, why) -> None:
    """Unused bits after the last byte must be zero, so that one capability has one text."""
    with pytest.raises(CapabilityError, match=why):
        Capability.parse(change(str(grant())))


def test_unused_bits_of_the_last_digit_must_be_zero() -> None:
    text = str(grant(4096, 0))  # 88 bytes: 4 bits of the last digit are unused
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    assert Capability.parse(f" {text}\n")
    for digit in digits.replace(text[-1], ""):
        with pytest.raises(CapabilityError):
            Capability.parse(text[:-1] + digit)


# --- narrowing and sealing by hand ------------------------------------------------


def test_parts_of_a_capability() -> None:
    cap = grant()
    assert (cap.offset, cap.length, len(cap)) == (4096, 9 * 4096 - 5, 9 * 4096 - 5)
    assert (cap.address, cap.rkey, cap.block_size) == (START + 4096, 7, 4096)
    assert cap.rights == Right.READ | Right.WRITE | Right.ATOMIC
    assert (cap.sealed, cap.holder, cap.expires) == (False, None, None)
    assert cap.pieces == [(0, 4096), (4096, 8192), (12288, 16384), (28672, 8187)]
    record = cap.narrow(8192, 4096, Right.READ)
    assert (record.address, record.length, record.rights) == (START + 12288, 4096, Right.READ)
    assert record.narrow() == record == cap.narrow(8192).narrow(0, 4096).narrow(rights=1)
    assert cap.narrow(28672).length == 8187


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ((1, 4096), CapabilityError, "multiple of the block size, 4096 bytes"),
        ((0, 4097), CapabilityError, "multiple of the block size, 4096 bytes"),
        ((28672, 8186), CapabilityError, "end of the region"),
        ((0, 9 * 4096), BoundsError, "not inside a capability of 36859 bytes"),
        ((-4096, 4096), BoundsError, "not inside"),
        ((0, 0), BoundsError, "empty, or not inside"),
        ((9 * 4096,), BoundsError, "not inside"),
        ((0, 1 << 64), BoundsError, "not inside"),
        ((4096, -4096), BoundsError, "not inside"),
        ((0, 4096, 0), CapabilityError, "at least one right"),
        ((0, 4096, 8), CapabilityError, "grants READ|WRITE|ATOMIC, not 8"),
    ],
)
def test_narrow_refuses(arguments, error, why) -> None:
    with pytest.raises(error, match=why.replace("|", r"\|")) as caught:
        grant().narrow(*arguments)
    assert isinstance(caught.value, LocalError) and isinstance(caught.value, ValueError)


def test_rights_can_only_be_removed() -> None:
    cap = grant().narrow(rights=Right.READ | Right.ATOMIC)
    assert cap.narrow(rights=Right.ATOMIC).rights == Right.ATOMIC
    with pytest.raises(CapabilityError, match=r"grants READ\|ATOMIC, not WRITE"):
        cap.narrow(rights=Right.READ | Right.WRITE)


def test_depth_limit_sets_the_granule() -> None:
    """Blocks of 4 KiB, but with a depth limit of 2 the granule is a quarter of the region."""
    cap = Capability(region(1 << 20, limit=2).grant(0, 1 << 20, 1))
    assert cap.block_size == 1 << 18
    with pytest.raises(CapabilityError, match=f"block size, {1 << 18} bytes"):
        cap.narrow(0, 4096)


def test_sealing() -> None:
    cap = grant()
    both = cap.seal(holder=ALICE, expires=1_900_000_000)
    assert both.sealed and both.holder == holder_id(ALICE) and both.expires == 1_900_000_000
    assert both.holder == sha256(ALICE.encode()).digest()[:16]
    assert cap.seal(holder=ALICE).expires is None
    assert cap.seal(expires=1).holder is None
    assert (both.address, both.length, both.rights) == (cap.address, cap.length, cap.rights)
    assert both.narrow(0, 4096, 1) == cap.narrow(0, 4096, 1).seal(
        holder=ALICE, expires=1_900_000_000
    )
    with pytest.raises(CapabilityError, match="begin at 0, 4096, 12288, 28672"):
        both.narrow(12288, 4096)
    with pytest.raises(CapabilityError, match="sealed already"):
        both.seal(expires=5)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "needs holder=, expires= or both"),
        ({"holder": ""}, "no identity"),
        ({"holder": "spiffe://example.org/ä"}, "no identity"),
        ({"expires": 0}, "no Unix time"),
        ({"expires": -1}, "no Unix time"),
        ({"expires": 1 << 32}, "no Unix time"),
        ({"expires": datetime(2030, 1, 1)}, "time zone"),
        ({"expires": datetime(2200, 1, 1, tzinfo=UTC)}, "no Unix time"),
    ],
)
def test_seal_refuses(options, why) -> None:
    with pytest.raises(CapabilityError, match=why):
        grant().seal(**options)


def test_expiry_by_date() -> None:
    zone = timezone(timedelta(hours=2))
    moment = datetime(2030, 1, 1, 2, 0, 0, 250_000, tzinfo=zone)
    assert grant().seal(expires=moment).expires == 1_893_456_001


# --- object behaviour -----------------------------------------------------------


def test_equal_tokens_are_equal_capabilities() -> None:
    cap = grant()
    for again in (grant(), pickle.loads(pickle.dumps(cap)), copy.copy(cap), copy.deepcopy(cap)):
        assert again == cap and hash(again) == hash(cap)
    others = [
        Capability(region(4096 * 10 - 5, generation=2).grant(4096, 4096 * 10 - 5, 7)),
        Capability(region(4096 * 10 - 5, rkey=8).grant(4096, 4096 * 10 - 5, 7)),
        cap.narrow(rights=1),
        cap.narrow(0, 4096),
        cap.seal(expires=1),
    ]
    assert len({cap, *others}) == 6
    assert cap != cap.to_bytes()


def test_capability_is_immutable() -> None:
    cap = grant()
    for name in ("rights", "length", "holder", "expires", "anything"):
        with pytest.raises(AttributeError):
            setattr(cap, name, 0)


def test_repr_shows_no_key() -> None:
    cap = grant().seal(holder=ALICE, expires=99)
    shown = repr(cap)
    assert "READ|WRITE|ATOMIC" in shown and "expires 99" in shown and "rkey 0x7" in shown
    data = cap.to_bytes()
    for at in range(64, len(data) - 2):
        assert data[at : at + 3].hex() not in shown.replace(cap.holder.hex(), "")
    assert str(cap)[20:40] not in shown


# --- the long run ------------------------------------------------------------------


@pytest.mark.soak
def test_hundred_thousand_random_regions() -> None:
    """tests/c/memory/test_capability.c, 100,000 random regions instead of 2,000."""
    root = Path(__file__).parents[2]
    program = "build/tests/c/memory/test_capability"
    subprocess.run(["make", "-s", program], cwd=root, check=True)
    run = subprocess.run(
        [root / program],
        env=os.environ | {"SRDMA_SOAK": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "100000 regions" in run.stdout


# --- as a dictionary key ---------------------------------------------------------


def test_equal_capabilities_are_one_dictionary_key() -> None:
    cap = grant()
    again = Capability.parse(str(cap))
    assert cap is not again
    assert {cap: 1, again: 2, cap.narrow(4096): 3} == {cap: 2, cap.narrow(4096): 3}
    assert len({cap, cap.seal(holder=ALICE), cap.narrow(rights=1)}) == 3


@pytest.mark.parametrize(
    ("has", "wanted", "missing"), [(1, 2, "WRITE"), (1, 7, r"WRITE\|ATOMIC"), (6, 1, "READ")]
)
def test_check_right(has: int, wanted: int, missing: str) -> None:
    cap = grant().narrow(rights=has)
    cap.check_right(Right(has))
    with pytest.raises(CapabilityError, match=f"grants .*, not {missing}$"):
        cap.check_right(wanted)
