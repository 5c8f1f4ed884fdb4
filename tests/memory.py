"""The memory of processes, as in a core dump and with registered memory, and searches in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from cryptography.hazmat.primitives.asymmetric import ec

from srdma.identity import parse_key

PIECE = 1 << 20
ZEROS = bytes(PIECE)
KEY_MAX = 128  # bytes that a search can find


class Map:
    """One mapping of a process."""

    def __init__(self, line: str) -> None:
        span, self.rights, _, _, _, *name = line.split(maxsplit=5)
        self.lo, self.hi = (int(n, 16) for n in span.split("-"))
        self.name = name[0].strip() if name else ""


@contextlib.contextmanager
def _opened(pid: int) -> Iterator[tuple[BinaryIO, list[Map]]]:
    """The memory and the readable mappings of a process."""
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as mem:
        found = [one for one in map(Map, maps) if one.rights[0] == "r"]
        yield mem, [one for one in found if not one.name.startswith(("[vvar", "[vsyscall"))]


def heap_of(pid: int) -> bytes:
    with _opened(pid) as (mem, maps):
        return b"".join(_read(mem, one.lo, one.hi) for one in maps if one.name == "[heap]")


def found(pid: int, keys: Iterable[bytes]) -> set[bytes]:
    """The keys that are in the memory of a process. It may be large, as that of a machine is."""
    rest = set(keys)
    assert all(0 < len(key) <= KEY_MAX for key in rest)
    hits = set()
    for piece in _pieces(pid):
        hits |= {key for key in rest if key in piece}
        rest -= hits
    return hits


def holds(pid: int, keys: Iterable[bytes]) -> int:
    """Returns how many of the keys are in the memory of a process."""
    return len(found(pid, keys))


def _pieces(pid: int) -> Iterator[bytes]:
    """All memory but zeros. Neighbours overlap, so that a key is wholly in one of them."""
    with _opened(pid) as (mem, maps):
        for one in maps:
            for at in range(one.lo, one.hi, PIECE - KEY_MAX):
                piece = _read(mem, at, min(one.hi, at + PIECE))
                if not ZEROS.startswith(piece):
                    yield piece


def _read(mem: BinaryIO, lo: int, hi: int) -> bytes:
    """Nothing if it is a hole in a file."""
    with contextlib.suppress(OSError):
        mem.seek(lo)
        return mem.read(hi - lo)
    return b""


def private_key(path: Path) -> list[bytes]:
    """The forms in which a private key may be in memory: its number, which is also in DER, and a
    line of its PEM."""
    pem = path.read_bytes()
    key = parse_key(pem, "key")
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    number = key.private_numbers().private_value
    return [number.to_bytes(32, "big"), number.to_bytes(32, "little"), pem.splitlines()[1]]
