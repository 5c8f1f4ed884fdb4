"""Contents of tests/vectors/memory.json: keys, proofs, tokens, and tokens to refuse."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

from . import memory
from .memory import Capability, Node, Region

ALICE = "spiffe://example.org/alice"
# name, start, length, block, depth limit, (lo, hi) of a grant, (lo, hi) to narrow it to
REGIONS = [
    ("one block", 0x7F0011223000, 4096, 4096, 48, (0, 4096), (0, 4096)),
    ("less than a block", 0x7F0011223001, 100, 4096, 48, (0, 100), (0, 100)),
    ("three blocks and a bit", 0, 3 * 64 + 5, 64, 48, (64, 197), (64, 192)),
    (
        "across the middle",
        0x1000,
        1 << 30,
        4096,
        48,
        (511 << 20, 513 << 20),
        (512 << 20, 513 << 20),
    ),
    ("limited depth", 0x2000, (1 << 20) - 7, 4096, 3, (1 << 17, (1 << 20) - 7), (1 << 17, 3 << 18)),
    ("2^48 bytes", 1 << 62, 1 << 48, 64, 48, (64, (1 << 48) - 64), (1 << 20, 3 << 40)),
    ("2^63 bytes", (1 << 63) - 1, 1 << 63, 1 << 30, 48, (1 << 33, 1 << 63), (1 << 62, 1 << 63)),
]


def memory_vectors() -> dict[str, Any]:
    rng = Random("srdma-1 memory")
    regions = [_region(rng, *row) for row in REGIONS]
    return {"regions": regions, "refused": _refused(bytes.fromhex(regions[2]["grant"]["token"]))}


def _region(
    rng: Random,
    name: str,
    start: int,
    length: int,
    block: int,
    depth_limit: int,
    granted: tuple[int, int],
    narrowed: tuple[int, int],
) -> dict[str, Any]:
    region = Region(start, start + length, block, depth_limit)
    pd_key, salt = rng.randbytes(16), rng.randbytes(16)
    rkey, generation = rng.getrandbits(32), rng.getrandbits(64)
    mr_key = memory.mr_key(pd_key, region, rkey, generation, salt)
    grant = memory.grant(mr_key, region, rkey, *granted, rights=7)
    return {
        "name": name,
        "region": [region.start, region.end, block.bit_length() - 1, depth_limit],
        "pd_key": pd_key.hex(),
        "rkey": rkey,
        "generation": generation,
        "salt": salt.hex(),
        "mr_key": mr_key.hex(),
        "nodes": [_node(rng, mr_key, region, depth) for depth in _depths(region)],
        "grant": _capability(grant),
        "narrowed": _capability(grant.narrow(*narrowed, rights=memory.READ)),
        "sealed": _capability(grant.seal(memory.holder_id(ALICE), 1_900_000_000)),
    }


def _depths(region: Region) -> list[int]:
    return sorted({0, min(1, region.depth), region.depth // 2, region.depth})


def _node(rng: Random, mr_key: bytes, region: Region, depth: int) -> dict[str, Any]:
    """Keys of one node, and a proof for each of four combinations of holder and expiry."""
    node = region.at(depth, rng.randrange(region.length))
    right = rng.choice(memory.RIGHTS)
    key = memory.node_key(mr_key, region, right, node)
    return {
        "node": _numbers(node),
        "right": right,
        "key": key.hex(),
        "proofs": [
            _proof(rng, key, node, holder, expiry) for holder in ("", ALICE) for expiry in (0, 77)
        ],
    }


def _proof(rng: Random, key: bytes, node: Node, uri: str, expiry: int) -> dict[str, Any]:
    holder = memory.holder_id(uri) if uri else bytes(16)
    access, ad = memory.access_key(key, node, holder, expiry), rng.randbytes(rng.choice((96, 112)))
    return {
        "identity": uri,
        "holder": holder.hex(),
        "expiry": expiry,
        "access": access.hex(),
        "ad": ad.hex(),
        "proof": memory.proof(access, ad).hex(),
    }


def _numbers(node: Node) -> list[int]:
    return [node.depth, node.index, node.lo, node.hi]


def _capability(cap: Capability) -> dict[str, Any]:
    return {
        "scope": [cap.lo, cap.hi, cap.rights],
        "nodes": " ".join(f"{node.depth}.{node.index}" for node in cap.nodes),
        "token": cap.encode().hex(),
        "text": cap.text(),
    }


def _refused(token: bytes) -> list[dict[str, str]]:
    """Tokens with one fault each and a recomputed checksum, made from an open token of all
    rights over [64, 197) of 197 bytes in blocks of 64, at start 0."""
    faults = [
        ("magic", 1, 0x01),
        ("version", 2, 0x03),
        ("a flag", 3, 0x02),
        ("sealed for nobody", 3, 0x01),
        ("end is start", 23, 197),
        ("end behind 2^63", 16, 0x80),
        ("lo inside a block", 31, 0x01),
        ("lo is hi", 31, 64 ^ 197),
        ("hi inside a block", 39, 0x02),
        ("hi behind the end", 38, 0x80),
        ("holder, but open", 40, 0x01),
        ("expiry, but open", 59, 0x01),
        ("block of 32", 60, 6 ^ 5),
        ("block of 2^31", 60, 6 ^ 31),
        ("block of 128", 60, 6 ^ 7),
        ("depth limit 0", 61, 48),
        ("depth limit 49", 61, 48 ^ 49),
        ("depth limit 1", 61, 48 ^ 1),
        ("no right", 62, 0x07),
        ("a fourth right", 62, 0x08),
        ("fewer rights than keys", 62, 0x04),
        ("zero", 63, 0x01),
    ]
    changed = [(why, _flip(token[:-8], at, bits)) for why, at, bits in faults]
    changed += [
        ("rkey 0", token[:4] + bytes(4) + token[8:-8]),
        ("a key less", token[:-24]),
        ("a key more", token[:-8] + bytes(16)),
        ("a byte less", token[:-9]),
        ("a byte more", token[:-8] + bytes(1)),
        ("no key", token[:64]),
    ]
    tokens = [(why, body + sha256(body).digest()[:8]) for why, body in changed]
    tokens += [("check", _flip(token, -1, 1)), ("shorter", token[:-1]), ("longer", token + b"\0")]
    return [{"why": why, "token": bad.hex()} for why, bad in tokens]


def _flip(data: bytes, at: int, bits: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= bits
    return bytes(changed)
