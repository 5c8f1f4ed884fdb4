"""Proofs and revocation at the target: the reference's vectors through C, and 20,000 accesses to
regions with random histories, checked by both."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from srdma.native.capability import Token
from tests import fields
from tests.judging import PEER, Both, guard_of
from tests.native import bindings
from tests.reference import memory
from tests.reference.jsonform import packet_from_json, params_from_json
from tests.reference.make_vectors import VECTORS
from tests.reference.memory import Capability, Region
from tests.reference.protect import Mode
from tests.reference.reasons import Reason
from tests.reference.target import (
    ATOMIC_LEN,
    MAX_REVOKED,
    Access,
    Claim,
    Registered,
    Tree,
    Want,
)

ACCESSES = 20_000
PROVEN = (Reason.NONE, Reason.PROOF_WRONG, Reason.PROOF_RANGE, Reason.PROOF_EXPIRED)


def load(name: str) -> Any:
    return json.loads((VECTORS / name).read_text())


def registered(row: dict[str, Any]) -> Registered:
    """The region before its first revocation."""
    tree = row["tree"]
    region = Region(tree["start"], tree["end"], 1 << row["log2_block"], row["depth_limit"])
    return Registered(
        pd=PEER.pd,
        pd_key=bytes.fromhex(row["pd_key"]),
        rkey=row["rkey"],
        access=row["access"],
        tree=Tree(region, bytes.fromhex(tree["salt"])),
    )


# --- vectors ------------------------------------------------------------------


@pytest.mark.parametrize("number", range(2))
def test_packets_with_proofs(number: int) -> None:
    """C computes each proof from the token, and its target accepts it from the opened packet."""
    case = load("proofs.json")[number]
    client = params_from_json(case["client"])
    pd: dict[str, Any] = {}
    if client.mode & Mode.PD:
        pd = {"group_key": bytes.fromhex(case["group_key"]), "key_cache": bindings.KeyCache(4)}
    both = [fields.of_params(end) | pd for end in (client, client.mirrored())]
    sender, receiver = (bindings.Session(params) for params in both)
    regions = [Both(guard_of(registered(row)), registered(row)) for row in case["regions"]]
    for region, row in zip(regions, case["regions"], strict=True):
        start = row["tree"]["start"]
        for entry in row["revoked"]:
            lo, hi = entry["start"] - start, entry["end"] - start
            assert not region.revoke(lo, hi, bytes.fromhex(entry["salt"]))
    for step in case["steps"]:
        target = regions[step["region"]]
        token = Token(bytes.fromhex(step["token"]))
        right, start, length = step["wanted"]
        offset = start - token.region[0]
        node, proof = token.proof(right, offset, bytes.fromhex(step["data"]))
        assert (list(node), proof.hex()) == (step["node"], step["fields"]["proof"])
        packet = packet_from_json(step["fields"], step["payload"])
        given = fields.of_packet(replace(packet, proof=bytes(16)))
        given |= {"access_key": bytes.fromhex(step["access"])}
        datagram = sender.seal(given, packet.payload)
        assert datagram.hex() == step["datagram"], step["name"]
        opened = receiver.open(datagram)
        assert receiver.claim().hex() == step["data"]
        holder = memory.holder_id(case["identity"]) if packet.flags & 0x40 else bytes(16)
        claim = Claim(opened["depth"], holder, opened["expiry"], opened["proof"], receiver.claim())
        wanted = Want(right, packet.rkey or target.state.rkey, start, length)
        assert target.judge(wanted, claim, case["now"]) == Reason.NONE
        late = Reason.PROOF_EXPIRED if claim.expiry else Reason.NONE
        assert target.judge(wanted, claim, case["now"] + 1) == late


@pytest.mark.parametrize("life", load("revocation.json"), ids=lambda life: life["name"])
def test_histories_of_regions(life: dict[str, Any]) -> None:
    before = registered(life["before"])
    both = Both(guard_of(before), before)
    for step in life["steps"]:
        lo, hi = step["range"]
        if step["do"] == "grant":
            cap = both.grant(lo, hi, step["rights"])
            assert (cap and cap.encode().hex()) == step["token"]
        elif step["do"] == "revoke":
            assert both.revoke(lo, hi, bytes.fromhex(step["salt"])) == step["refused"]
            assert len(both.state.revoked) == step["ranges"]
        else:
            hexes = (bytes.fromhex(step[name]) for name in ("holder", "proof", "data"))
            holder, proof, data = hexes
            claim = Claim(step["depth"], holder, step["expiry"], proof, data)
            wanted = Want(step["right"], before.rkey, before.tree.region.start + lo, hi - lo)
            assert both.judge(wanted, claim, step["now"]).name == step["verdict"]
    salts = [tree["salt"] for tree in (life["after"]["tree"], *life["after"]["revoked"])]
    assert [tree.salt.hex() for tree in (both.state.tree, *both.state.revoked)] == salts


# --- C and the reference on random cases ----------------------------------------


def random_region(rng: Random) -> Both:
    block = 1 << rng.randrange(6, 31)
    blocks = rng.choice((1, 2, 3, rng.randrange(1, 300), 64))
    length = blocks * block - rng.choice((0, 0, rng.randrange(block)))
    region = Region(start := rng.randrange(1 << 63), start + length, block, rng.choice((48, 3, 9)))
    state = Registered(
        pd=PEER.pd,
        pd_key=rng.randbytes(16),
        rkey=rng.randrange(1, 1 << 32),
        access=Access.PROOF | Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC,
        tree=Tree(region, rng.randbytes(16)),
    )
    return Both(guard_of(state), state)


def random_range(rng: Random, region: Region, granule: int) -> tuple[int, int]:
    """Returns a range, mostly of whole granules and mostly inside the region, often small."""
    if rng.random() < 0.05:
        return rng.randrange(region.length + 9), rng.randrange(region.length + 9)
    count = -(-region.length // granule)
    first = rng.randrange(count)
    last = rng.randrange(first, min(count, first + rng.choice((1, 2, 4, count))))
    return first * granule, min((last + 1) * granule, region.length)


def random_cap(rng: Random, both: Both) -> Capability | None:
    cap = both.grant(*random_range(rng, both.state.tree.region, both.state.tree.region.granule), 7)
    if cap and rng.random() < 0.3:
        holder, expiry = rng.choice(((PEER.holder, 5), (rng.randbytes(16), rng.choice((0, 5)))))
        cap = cap.seal(holder, expiry)
    return cap


def random_access(rng: Random, both: Both, cap: Capability) -> tuple[Want, Claim]:
    """Returns an access, mostly inside one node of the capability and mostly with its proof."""
    has_room = both.state.tree.region.length >= 2 * ATOMIC_LEN
    right = rng.choice((memory.READ, memory.WRITE, memory.ATOMIC)[: 2 + has_room])
    node = rng.choice(cap.nodes)
    start = cap.region.start + rng.randrange(node.lo, node.hi)
    length = rng.randrange(1, cap.region.start + node.hi - start + 1)
    if rng.random() < 0.15:
        end = both.state.tree.region.end
        start = rng.randrange(both.state.tree.region.start, end)
        length = rng.randrange(1, end - start + 1)
    if right == memory.ATOMIC:
        start, length = aligned(start, both.state.tree.region), ATOMIC_LEN
    data = rng.randbytes(96)
    proof = memory.proof(cap.usable(right, node), data)
    claim = Claim(node.depth, cap.holder, cap.expiry, proof, data)
    return Want(right, both.state.rkey, start, length), wrong(rng, claim)


def aligned(start: int, region: Region) -> int:
    """Returns an aligned address near `start` at which the region has room for an atomic."""
    start -= start % ATOMIC_LEN
    if start < region.start:
        start += ATOMIC_LEN
    return start if start + ATOMIC_LEN <= region.end else start - ATOMIC_LEN


def wrong(rng: Random, claim: Claim) -> Claim:
    """Returns the claim, sometimes with one wrong field."""
    at, bit = rng.randrange(16), 1 << rng.randrange(8)
    changes: list[dict[str, Any]] = [
        {"proof": claim.proof[:at] + bytes([claim.proof[at] ^ bit]) + claim.proof[at + 1 :]},
        {"data": claim.data[:-1] + bytes([claim.data[-1] ^ bit])},
        {"holder": rng.choice((bytes(16), rng.randbytes(16)))},
        {"expiry": rng.choice((0, 4, 6, 1 << 31))},
        {"depth": rng.choice((0, claim.depth + 1, 48, 255))},
    ]
    return replace(claim, **rng.choice(changes)) if rng.random() < 0.2 else claim


def history(rng: Random, both: Both, caps: list[Capability]) -> None:
    """Applies one more random event."""
    kind = rng.random()
    if kind < 0.03:
        assert not both.revoke(0, 0, rng.randbytes(16))
    elif kind < 0.35:
        region = both.state.tree.region
        both.revoke(*random_range(rng, region, region.block), rng.randbytes(16))
    else:
        caps += [cap for cap in [random_cap(rng, both)] if cap]


def test_random_histories() -> None:
    rng = Random("histories")
    told: Counter[Reason] = Counter()
    most = 0
    while told.total() < ACCESSES:
        both, caps = random_region(rng), list[Capability]()
        for _ in range(rng.choice((3, 10, 40))):
            history(rng, both, caps)
            most = max(most, len(both.state.revoked))
            for cap in rng.choices(caps[-8:], k=4 if caps else 0):
                told[both.judge(*random_access(rng, both, cap), rng.choice((4, 5)))] += 1
    assert set(told) == set(PROVEN)
    assert all(told[reason] > ACCESSES * 0.02 for reason in PROVEN), told
    assert told[Reason.NONE] > ACCESSES * 0.3, told
    assert 8 < most <= MAX_REVOKED


def test_list_of_revoked_ranges_fills() -> None:
    """Revokes random ranges of a large region until both implementations report that the list is
    full. Ten times."""
    rng = Random("full")
    for _ in range(10):
        region = Region(0, 400 * 64, 64)
        state = Registered(1, rng.randbytes(16), 7, Access.PROOF, Tree(region, rng.randbytes(16)))
        both = Both(guard_of(state), state)
        for _ in range(400):
            lo = rng.randrange(400)
            hi = min(lo + rng.randrange(1, 4), 400)
            if both.revoke(lo * 64, hi * 64, rng.randbytes(16)) == "full":
                break
        assert len(both.state.revoked) == MAX_REVOKED
        assert not both.revoke(0, region.length, rng.randbytes(16))
        assert len(both.state.revoked) == 1


def test_revocation_outdates_only_what_it_touches() -> None:
    """Keys of a range become outdated only by a revocation that touches the range (memguard.h,
    current)."""
    rng = Random("current")
    region = Region(1 << 40, (1 << 40) + 32 * 64, 64)
    state = Registered(1, rng.randbytes(16), 7, Access.PROOF, Tree(region, rng.randbytes(16)))
    guard = guard_of(state)
    newest = [guard.serial] * 32  # newest serial of each block
    for _ in range(200):
        lo = rng.randrange(32)
        hi = rng.randrange(lo + 1, 33)
        if rng.random() < 0.1:
            lo, hi = 0, 32
            guard.revoke_all(rng.randbytes(16))
        else:
            guard.revoke(lo * 64, hi * 64, rng.randbytes(16))
        newest[lo:hi] = [guard.serial] * (hi - lo)
        for _ in range(20):
            lo = rng.randrange(32)
            hi = rng.randrange(lo + 1, 33)
            since = rng.randrange(1, guard.serial + 1)
            current = guard.current(since, lo * 64, hi * 64)
            assert current == (max(newest[lo:hi]) <= since)
