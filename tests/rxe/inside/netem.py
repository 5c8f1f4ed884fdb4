"""netem on both ends of a veth pair, to simulate a bad link."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from srdma.demo.rxe import End

CUT = "loss 100%"


@contextmanager
def netem(ends: Sequence[End], what: str) -> Iterator[None]:
    """Applies netem to both directions of the wire, and removes it at the end."""
    _load_module()
    try:
        for end in ends:
            words = f"tc qdisc add dev {end.netdev} root netem limit 10000 {what}"
            subprocess.run(words.split(), check=True)
        yield
    finally:
        for end in ends:
            subprocess.run(f"tc qdisc del dev {end.netdev} root".split(), check=True)


@cache
def _load_module() -> None:
    subprocess.run(["modprobe", "sch_netem"], check=True)
