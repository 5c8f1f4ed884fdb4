"""Memory keys and capabilities (protocol.md 6.1, 6.2)."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import sha256

from .kdf import cmac, kdf

READ, WRITE, ATOMIC = RIGHTS = (1, 2, 4)
PREFIX = "srdma-cap1:"


def be(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big")


# --- trees ------------------------------------------------------------------


@dataclass(frozen=True)
class Node:
    depth: int
    index: int
    lo: int
    hi: int


@dataclass(frozen=True)
class Region:
    start: int
    end: int
    block: int = 4096
    depth_limit: int = 48

    def __post_init__(self) -> None:
        legal = (
            0 <= self.start < self.end < 1 << 64
            and self.length <= 1 << 63
            and self.block in [1 << n for n in range(6, 31)]
            and 1 <= self.depth_limit <= 48
        )
        if not legal:
            raise ValueError(f"{self} is no region")

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def height(self) -> int:
        blocks = -(-self.length // self.block)
        return (blocks - 1).bit_length()

    @property
    def depth(self) -> int:
        """Depth of the deepest nodes that are granted or accepted."""
        return min(self.height, self.depth_limit)

    def span(self, depth: int) -> int:
        return self.block << (self.height - depth)

    @property
    def granule(self) -> int:
        return self.span(self.depth)

    def node(self, depth: int, index: int) -> Node:
        span = self.span(depth)
        lo, hi = index * span, min((index + 1) * span, self.length)
        if not (0 <= depth <= self.depth and 0 <= lo < hi):
            raise ValueError(f"{self} has no node ({depth}, {index})")
        return Node(depth, index, lo, hi)

    def at(self, depth: int, offset: int) -> Node:
        """Returns the node of this depth that contains this byte."""
        if not (0 <= offset < self.length and 0 <= depth <= self.depth):
            raise ValueError(f"{self} has no byte {offset}, or no depth {depth}")
        return self.node(depth, offset // self.span(depth))

    def children(self, node: Node) -> list[Node]:
        if node.depth == self.depth:
            return []
        below = node.depth + 1
        span = self.span(below)
        pair = (2 * node.index, 2 * node.index + 1)
        return [self.node(below, i) for i in pair if i * span < self.length]

    def path(self, node: Node) -> list[Node]:
        """The nodes from the root to this node."""
        return [self.node(d, node.index >> (node.depth - d)) for d in range(node.depth + 1)]

    def cover(self, lo: int, hi: int) -> list[Node]:
        """Returns the fewest nodes whose union is this range."""
        if not 0 <= lo < hi <= self.length:
            raise ValueError(f"[{lo}, {hi}) is empty or outside of {self}")
        if lo % self.granule or (hi % self.granule and hi != self.length):
            raise ValueError(f"[{lo}, {hi}) is not made of {self.granule} bytes each")
        return list(self._cover(self.node(0, 0), lo, hi))

    def _cover(self, node: Node, lo: int, hi: int) -> Iterator[Node]:
        if lo <= node.lo and node.hi <= hi:
            yield node
        elif lo < node.hi and node.lo < hi:
            for child in self.children(node):
                yield from self._cover(child, lo, hi)


# --- keys -------------------------------------------------------------------


def mr_key(pd_key: bytes, region: Region, rkey: int, generation: int, salt: bytes) -> bytes:
    context = be(region.start, 8) + be(region.end, 8) + be(rkey, 4) + be(generation, 8) + salt
    return kdf(pd_key, "mr", context, 16)


def child_key(parent: bytes, child: Node) -> bytes:
    return kdf(parent, "node", be(child.lo, 8) + be(child.hi, 8), 16)


def node_key(key_of_mr: bytes, region: Region, right: int, node: Node) -> bytes:
    key = kdf(key_of_mr, "root", be(right, 1), 16)
    for step in region.path(node)[1:]:
        key = child_key(key, step)
    return key


def access_key(key: bytes, node: Node, holder: bytes = bytes(16), expiry: int = 0) -> bytes:
    return kdf(key, "acc", be(node.lo, 8) + be(node.hi, 8) + holder + be(expiry, 4), 16)


def proof(key: bytes, associated_data: bytes) -> bytes:
    return cmac(key, b"srdma mp" + associated_data)


def holder_id(uri: str) -> bytes:
    return sha256(uri.encode("ascii")).digest()[:16]


# --- tokens -----------------------------------------------------------------


@dataclass(frozen=True)
class Capability:
    """`keys`: for each right in ascending order, one key for each node of the range."""

    region: Region
    rkey: int
    rights: int
    lo: int
    hi: int
    keys: tuple[bytes, ...] = field(repr=False)
    holder: bytes = bytes(16)
    expiry: int = 0

    @property
    def sealed(self) -> bool:
        return self.holder != bytes(16) or self.expiry != 0

    @property
    def nodes(self) -> list[Node]:
        return self.region.cover(self.lo, self.hi)

    def entries(self) -> dict[tuple[int, Node], bytes]:
        names = [(right, node) for right in split(self.rights) for node in self.nodes]
        return dict(zip(names, self.keys, strict=True))

    def holding(self, right: int, offset: int) -> Node:
        """Returns the node that an access uses if it begins at this byte of
        the region and needs this right."""
        for held, node in self.entries():
            if held == right and node.lo <= offset < node.hi:
                return node
        raise ValueError(f"right {right} at byte {offset} is not granted")

    def usable(self, right: int, node: Node) -> bytes:
        """Returns K_access of one of its nodes."""
        key = self.entries()[right, node]
        return key if self.sealed else access_key(key, node)

    def narrow(self, lo: int, hi: int, rights: int) -> Capability:
        if not rights or rights & ~self.rights:
            raise ValueError(f"rights {rights} of {self.rights}")
        if lo < self.lo or hi > self.hi:
            raise ValueError(f"[{lo}, {hi}) is not in [{self.lo}, {self.hi})")
        nodes = self.region.cover(lo, hi)
        entries = self.entries()
        keys = tuple(self._key(entries, right, n) for right in split(rights) for n in nodes)
        return replace(self, lo=lo, hi=hi, rights=rights, keys=keys)

    def _key(self, entries: dict[tuple[int, Node], bytes], right: int, node: Node) -> bytes:
        path = self.region.path(node)
        held = next(n for n in path if (right, n) in entries)
        key = entries[right, held]
        if self.sealed and held != node:
            raise ValueError(f"{held} is sealed")
        for step in path[held.depth + 1 :]:
            key = child_key(key, step)
        return key

    def seal(self, holder: bytes, expiry: int) -> Capability:
        if self.sealed:
            raise ValueError("already sealed")
        if holder == bytes(16) and not expiry:
            raise ValueError("neither a holder nor an expiry")
        keys = [access_key(key, node, holder, expiry) for (_, node), key in self.entries().items()]
        return replace(self, keys=tuple(keys), holder=holder, expiry=expiry)

    def encode(self) -> bytes:
        body = b"sC\x01" + be(self.sealed, 1) + be(self.rkey, 4)
        for number in (self.region.start, self.region.end, self.lo, self.hi):
            body += be(number, 8)
        body += self.holder + be(self.expiry, 4)
        body += bytes([self.region.block.bit_length() - 1, self.region.depth_limit, self.rights, 0])
        body += b"".join(self.keys)
        return body + sha256(body).digest()[:8]

    def text(self) -> str:
        return PREFIX + base64.urlsafe_b64encode(self.encode()).decode().rstrip("=")


def split(rights: int) -> list[int]:
    return [right for right in RIGHTS if rights & right]


def grant(key_of_mr: bytes, region: Region, rkey: int, lo: int, hi: int, rights: int) -> Capability:
    if not 1 <= rights <= 7:
        raise ValueError(f"rights {rights}")
    nodes = region.cover(lo, hi)
    keys = [node_key(key_of_mr, region, right, n) for right in split(rights) for n in nodes]
    return Capability(region, rkey, rights, lo, hi, tuple(keys))


def decode(token: bytes) -> Capability:
    """Inverse of encode(). ValueError for anything else."""
    body, check = token[:-8], token[-8:]
    if len(token) < 88 or body[:3] != b"sC\x01" or sha256(body).digest()[:8] != check:
        raise ValueError("no token of this version, or damaged")
    start, end, lo, hi = (int.from_bytes(body[at : at + 8], "big") for at in (8, 16, 24, 32))
    if body[60] > 64:
        raise ValueError("no such block size")
    region = Region(start, end, 1 << body[60], body[61])
    rkey, expiry = int.from_bytes(body[4:8], "big"), int.from_bytes(body[56:60], "big")
    keys = tuple(body[at : at + 16] for at in range(64, len(body), 16))
    found = Capability(region, rkey, body[62], lo, hi, keys, body[40:56], expiry)
    size = 64 + 16 * len(split(found.rights)) * len(found.nodes)
    if not 1 <= found.rights <= 7 or not rkey or len(body) != size or found.encode() != token:
        raise ValueError("a field is not legal")
    return found


def parse(text: str) -> Capability:
    """Inverse of Capability.text(). ValueError for anything else."""
    data = text.removeprefix(PREFIX)
    found = decode(base64.urlsafe_b64decode(data + "=" * (-len(data) % 4)))
    if found.text() != text:
        raise ValueError("not as text() writes it")
    return found
