"""Memory keys and tokens: the reference's vectors through C, and random cases in both."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.native.capability import Token
from tests.native import memkeys
from tests.reference import memory
from tests.reference.make_vectors import VECTORS

CASES = 20_000  # of each kind

CONTENTS = json.loads((VECTORS / "memory.json").read_text())
REGIONS = CONTENTS["regions"]


def by_name(row: dict[str, Any]) -> str:
    return row["name"]


def owner(row: dict[str, Any]) -> memkeys.Region:
    hexes = {name: bytes.fromhex(row[name]) for name in ("pd_key", "salt")}
    return memkeys.Region(
        hexes["pd_key"], tuple(row["region"]), row["rkey"], row["generation"], hexes["salt"]
    )


# --- vectors ------------------------------------------------------------------


@pytest.mark.parametrize("row", REGIONS, ids=by_name)
def test_keys(row: dict[str, Any]) -> None:
    region = owner(row)
    assert region.mr_key.hex() == row["mr_key"]
    for case in row["nodes"]:
        depth, _, lo, hi = node = tuple(case["node"])
        assert region.find(depth, lo) == region.find(depth, hi - 1) == node
        assert region.node_key(case["right"], depth, lo).hex() == case["key"]


@pytest.mark.parametrize("row", REGIONS, ids=by_name)
def test_proofs(row: dict[str, Any]) -> None:
    region = owner(row)
    for case in row["nodes"]:
        depth, _, lo, hi = case["node"]
        for proof in case["proofs"]:
            claim: memkeys.Claim = {
                "right": case["right"],
                "depth": depth,
                "addr": row["region"][0] + lo,
                "len": hi - lo,
                "holder": bytes.fromhex(proof["holder"]),
                "expiry": proof["expiry"],
                "ad": bytes.fromhex(proof["ad"]),
                "proof": bytes.fromhex(proof["proof"]),
            }
            region.check(claim, 76)
            for name in ("proof", "holder", "ad"):
                wrong = claim | {name: bytes(len(claim[name]))}  # type: ignore[literal-required]
                if wrong != claim:
                    with pytest.raises(memkeys.RefusedError, match="EBADMSG"):
                        region.check(wrong, 76)  # type: ignore[arg-type]


@pytest.mark.parametrize("row", REGIONS, ids=by_name)
def test_tokens(row: dict[str, Any]) -> None:
    open_ = owner(row).grant(*row["grant"]["scope"])
    bearer = memory.holder_id("spiffe://example.org/alice"), 1_900_000_000
    made = {
        "grant": open_,
        "narrowed": open_.narrow(*row["narrowed"]["scope"]),
        "sealed": open_.seal(*bearer),
    }
    for name, token in made.items():
        wanted = row[name]
        assert token.encode().hex() == wanted["token"]
        again = Token(token.encode())
        assert again.encode().hex() == wanted["token"]
        assert " ".join(f"{depth}.{index}" for depth, index, _, _ in again.nodes) == wanted["nodes"]
        assert (again.scope, again.region) == (tuple(wanted["scope"]), tuple(row["region"]))
        assert (again.rkey, again.sealed) == (row["rkey"], name == "sealed")
        assert (again.holder, again.expiry) == (bearer if again.sealed else (bytes(16), 0))


@pytest.mark.parametrize("case", CONTENTS["refused"], ids=lambda case: case["why"])
def test_refused_tokens(case: dict[str, str]) -> None:
    with pytest.raises(memkeys.RefusedError):
        Token(bytes.fromhex(case["token"]))
    with pytest.raises(ValueError):
        memory.decode(bytes.fromhex(case["token"]))


# --- C and the reference on random cases ----------------------------------------


@dataclass
class Owner:
    """One region in both implementations."""

    native: memkeys.Region
    reference: memory.Region
    mr_key: bytes
    rkey: int


def random_owner(rng: Random, most: int) -> Owner:
    """Returns a region of up to 2^most blocks."""
    log2_block = rng.randrange(6, 31)
    length = rng.randrange(1, 1 << rng.randrange(1, min(most + log2_block, 63) + 1))
    if rng.random() < 0.2:
        length &= -length
    start = rng.randrange(0, (1 << 64) - length)
    limit = rng.choice((48, rng.randrange(1, 49), rng.randrange(1, 5)))
    pd_key, salt = rng.randbytes(16), rng.randbytes(16)
    rkey, generation = rng.randrange(1, 1 << 32), rng.getrandbits(64)
    region = memory.Region(start, start + length, 1 << log2_block, limit)
    native = memkeys.Region(pd_key, (start, region.end, log2_block, limit), rkey, generation, salt)
    mr_key = memory.mr_key(pd_key, region, rkey, generation, salt)
    assert native.mr_key == mr_key
    return Owner(native, region, mr_key, rkey)


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """Returns the result of the call, or None if it refuses."""
    try:
        return call(*args)
    except (ValueError, OverflowError):
        return None


def flip(rng: Random, data: bytes) -> bytes:
    changed = bytearray(data)
    changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def key_case(rng: Random, owner: Owner) -> bool:
    """One node, its key and a proof. Some nodes do not exist, some proofs are wrong."""
    region = owner.reference
    depth = rng.randrange(region.depth + 2)
    offset = rng.randrange(region.length + rng.choice((0, 0, 0, 9)))
    node = attempt(region.at, depth, offset)
    found = attempt(owner.native.find, depth, offset)
    assert found == (node and (node.depth, node.index, node.lo, node.hi))
    if node is None:
        return False
    right, now = rng.choice(memory.RIGHTS), rng.choice((4, 5))
    key = memory.node_key(owner.mr_key, region, right, node)
    assert owner.native.node_key(right, depth, offset) == key
    bearer = rng.choice((bytes(16), rng.randbytes(16))), rng.choice((0, 5))
    ad = rng.randbytes(rng.choice((96, 112, 255)))
    proof = memory.proof(memory.access_key(key, node, *bearer), ad)
    damaged = rng.random() < 0.3
    claim: memkeys.Claim = {
        "right": right,
        "depth": depth,
        "addr": region.start + offset,
        "len": rng.randrange(node.hi - offset + 1),
        "holder": bearer[0],
        "expiry": bearer[1],
        "ad": ad,
        "proof": flip(rng, proof) if damaged else proof,
    }
    good = not damaged and (not bearer[1] or now < bearer[1])
    assert attempt(lambda: owner.native.check(claim, now) is None) is (good or None)
    return good


def random_range(rng: Random, region: memory.Region, lo: int, hi: int) -> tuple[int, int]:
    """Returns a range in [lo, hi), mostly made of whole granules."""
    granule = region.granule
    if rng.random() < 0.1:
        return rng.randrange(-5, hi + 9), rng.randrange(-5, hi + 9)
    count = -(-(hi - lo) // granule)
    first = rng.randrange(count)
    last = rng.randrange(first, count)
    return lo + first * granule, min(lo + (last + 1) * granule, hi)


@dataclass
class Pair:
    """One capability in both implementations."""

    native: Token
    reference: memory.Capability

    def less(self, how: str, *args: Any) -> Pair | None:
        """Returns the narrowed or sealed pair."""
        return pair(getattr(self.native, how), getattr(self.reference, how), *args)


def pair(native: Callable[..., Any], reference: Callable[..., Any], *args: Any) -> Pair | None:
    """Makes a token in both implementations. They must be equal. Returns None if both refuse."""
    made = attempt(native, *args), attempt(reference, *args)
    tokens = [cap and cap.encode() for cap in made]
    assert tokens[0] == tokens[1]
    return Pair(*made) if tokens[0] else None


def granted(owner: Owner, lo: int, hi: int, rights: int) -> Pair | None:
    made_by = partial(memory.grant, owner.mr_key, owner.reference, owner.rkey)
    return pair(owner.native.grant, made_by, lo, hi, rights)


def token_case(rng: Random, owner: Owner) -> bool:
    """Grants, narrows and seals in any order. Both must give the same tokens and refusals."""
    region = owner.reference
    made = granted(owner, *random_range(rng, region, 0, region.length), rng.randrange(10))
    for _ in range(3 if made else 0):
        cap = made.reference
        if rng.random() < 0.3:
            holder = rng.choice((bytes(16), rng.randbytes(16)))
            less = made.less("seal", holder, rng.choice((0, 9, 1 << 31)))
        else:
            part = random_range(rng, region, cap.lo, cap.hi)
            less = made.less("narrow", *part, cap.rights & rng.choice((7, 7, 7, 3, 8)))
        made = less or made
    return made is not None


def decode_case(rng: Random, owner: Owner) -> bool:
    """Decodes a token, mostly damaged and mostly with a recomputed checksum, in both
    implementations. Both accept it or both refuse it."""
    region = owner.reference
    made = granted(owner, *random_range(rng, region, 0, region.length), rng.randrange(1, 8))
    if made is None:
        return False
    if rng.random() < 0.4:
        made = made.less("seal", rng.randbytes(16), rng.choice((0, 1)))
        assert made
    body = made.native.encode()[:-8]
    for _ in range(rng.randrange(3)):
        body = flip(rng, body[:64]) + body[64:]
    shorter, longer = body[: -rng.randrange(1, 33)], body + bytes(rng.randrange(33))
    body = rng.choice((body, body, body, shorter, longer))
    data = body + sha256(body).digest()[:8]
    data = flip(rng, data) if rng.random() < 0.1 else data
    found = pair(Token, memory.decode, data)
    assert found is None or found.native.encode() == data
    return found is not None


KINDS = [(key_case, 40), (token_case, 10), (decode_case, 10)]


@pytest.mark.parametrize(("case", "most"), KINDS, ids=["keys", "tokens", "decode"])
def test_random_cases(case: Callable[[Random, Owner], bool], most: int) -> None:
    rng = Random(case.__name__)
    taken = 0
    for number in range(CASES):
        if number % 8 == 0:
            owner = random_owner(rng, most)
        taken += case(rng, owner)
    assert CASES * 0.2 < taken < CASES * 0.9


def test_key_lengths_are_checked() -> None:
    region = (0, 4096, 12, 48)
    with pytest.raises(ValueError, match="K_PDmem has 16"):
        memkeys.Region(bytes(15), region, 1, 1, bytes(16))
    with pytest.raises(ValueError, match="salt has 16"):
        memkeys.Region(bytes(16), region, 1, 1, bytes(17))
    with pytest.raises(memkeys.RefusedError, match="EINVAL"):
        memkeys.Region(bytes(16), (4096, 4096, 12, 48), 1, 1, bytes(16))


# --- key separation --------------------------------------------------------------


@dataclass(frozen=True)
class Name:
    """All parameters in which registrations can differ."""

    start: int
    length: int
    rkey: int
    generation: int
    salt: bytes

    def owner(self) -> memkeys.Region:
        shape = (self.start, self.start + self.length, 6, 48)
        return memkeys.Region(bytes(16), shape, self.rkey, self.generation, self.salt)

    def range(self, first: int, blocks: int) -> tuple[int, int]:
        """Returns the bytes of `blocks` blocks of 64 bytes from block `first` on, cut off at the
        region's end."""
        lo = 64 * first % (self.length - self.length % 64)
        return lo, min(lo + 64 * blocks, self.length)

    def grant(self, drawn: Drawn) -> Token:
        token = self.owner().grant(*self.range(drawn.first, drawn.blocks), drawn.rights)
        open_ = not any(drawn.holder) and not drawn.expiry
        return token if open_ else token.seal(drawn.holder, drawn.expiry)


@dataclass(frozen=True)
class Drawn:
    """A capability of a region."""

    name: Name
    first: int
    blocks: int
    rights: int
    holder: bytes
    expiry: int


# Few values per field, so that two names often differ in one field only.
names = st.builds(
    Name,
    st.sampled_from((0, 64, 1 << 40)),
    st.sampled_from((320, 321, 383, 64)),
    st.sampled_from((1, 2)),
    st.sampled_from((1, 2, 1 << 63)),
    st.sampled_from((bytes(16), bytes(15) + b"\1")),
)
holders = st.sampled_from((bytes(16), bytes(16), b"\1" + bytes(15), b"\2" + bytes(15)))
capabilities = st.builds(
    Drawn,
    names,
    st.integers(0, 5),
    st.integers(1, 6),
    st.integers(1, 7),
    holders,
    st.sampled_from((0, 0, 1, 2)),
)


@given(st.lists(capabilities, min_size=2, max_size=12))
@settings(max_examples=300, deadline=None)
def test_no_two_names_have_the_same_key(drawn: list[Drawn]) -> None:
    """Keys differ if region, generation, salt, node, right, holder or expiry differ."""
    name_of: dict[bytes, tuple[Any, ...]] = {}
    key_of: dict[tuple[Any, ...], bytes] = {}
    for one in drawn:
        token = one.name.grant(one)
        for (right, node), key in memory.decode(token.encode()).entries().items():
            full = (one.name, right, node, token.holder, token.expiry)
            assert name_of.setdefault(key, full) == full
            assert key_of.setdefault(full, key) == key


@given(capabilities, st.data())
@settings(max_examples=1000, deadline=None)
def test_forged_token_proves_nothing_more(drawn: Drawn, data: st.DataObject) -> None:
    """A changed token with a recomputed checksum is refused, or proves only what was granted."""
    body = bytearray(drawn.name.grant(drawn).encode()[:-8])
    fields = st.sampled_from((15, 23, 31, 39, 55, 59, 61, 62))  # the low byte of each field
    changed = fields | st.integers(64, len(body) - 1) | st.integers(8, len(body) - 1)
    for at in data.draw(st.lists(changed, min_size=1, max_size=3)):
        body[at] = data.draw(st.sampled_from((0, 1, 2, 4, 7, 64, 128, 192)) | st.integers(0, 255))
    forged = attempt(Token, bytes(body) + sha256(body).digest()[:8])
    if forged is None:
        return
    for right in memory.split(forged.scope[2]):
        for node in forged.nodes:
            if proves(drawn.name.owner(), forged, right, node):
                at = forged.region[0] + node[2] - drawn.name.start
                lo, hi = drawn.name.range(drawn.first, drawn.blocks)
                assert right & drawn.rights and lo <= at and at + node[3] - node[2] <= hi
                assert (forged.holder, forged.expiry) == (drawn.holder, drawn.expiry)


def proves(owner: memkeys.Region, token: Token, right: int, node: memkeys.Node) -> bool:
    """True if the owner accepts an access to the whole node of the token."""
    depth, _, lo, hi = node
    _, proof = token.proof(right, lo, b"associated data")
    claim: memkeys.Claim = {
        "right": right,
        "depth": depth,
        "addr": token.region[0] + lo,
        "len": hi - lo,
        "holder": token.holder,
        "expiry": token.expiry,
        "ad": b"associated data",
        "proof": proof,
    }
    return attempt(lambda: owner.check(claim, 0) is None) is True
