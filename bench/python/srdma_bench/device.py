"""Devices of a stand: the options of its two workers, and the time-outs of their hosts.

with opened("rxe") as device, Stand(device) as stand:
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from srdma.demo import rxe
from srdma.demo.rxe_stage import RxeStage, worker_options
from srdma.embedded import Embedded
from srdma.errors import LocalError
from srdma.options import CONNECT_TIMEOUT
from srdma_bench import gid

RXE = "rxe"
NAMES = (
    "embedded, udp, rxe (a pair of SoftRoCE devices, needs root), or two RDMA devices of this "
    "machine that reach each other: mlx5_0,mlx5_1"
)

Words = Sequence[str]


@dataclass(frozen=True)
class Device:
    """words: returns the options of srdma-offload for workers A and B of a new stand. shared: legs
    are on shared memory. patience: maximum duration of a key exchange, seconds."""

    name: str
    words: Callable[[Embedded], tuple[Words, Words]]
    shared: bool = True
    patience: float = CONNECT_TIMEOUT

    def check_shared(self, what: str) -> None:
        """Raise LocalError unless legs are on shared memory. what: the measurement."""
        if not self.shared:
            raise LocalError(
                f"--device {self.name}: {what} needs legs on shared memory: give embedded or udp"
            )


def _embedded(nics: Embedded) -> tuple[Words, Words]:
    words = ["--wire-dev", f"shm:{nics.wire('0')}"]
    return words, words


_udp_pairs = itertools.count()


def _udp(nics: Embedded) -> tuple[Words, Words]:
    """Loopback addresses that no other stand of this or another process uses."""
    net = 128 + 2 * (next(_udp_pairs) % 63)
    high, low = divmod(os.getpid() & 0xFFFF, 256)
    a, b = (["--wire-dev", "udp", "--wire-listen", f"127.{n}.{high}.{low}"] for n in (net, net + 1))
    return a, b


def verbs(name: str, ends: Sequence[rxe.End]) -> Device:
    """Two RDMA devices; several stands may share them."""
    a, b = map(worker_options, ends)
    return Device(name, lambda nics: (a, b), shared=False, patience=RxeStage.patience)


EMBEDDED, UDP = Device("embedded", _embedded), Device("udp", _udp)


@contextmanager
def opened(name: str) -> Iterator[Device]:
    """The device of that name, usable until the end of the context. Raises LocalError."""
    first, comma, second = name.partition(",")
    if name == RXE:
        if why := rxe.unavailable():
            raise LocalError(f"--device {name}: {why}")
        with rxe.pair("bench", "10.79.0") as ends:
            yield verbs(name, ends)
    elif comma:
        yield verbs(name, [rxe.End(d, "", gid.first_address(d)) for d in (first, second)])
    elif name in (known := {device.name: device for device in (EMBEDDED, UDP)}):
        yield known[name]
    else:
        raise LocalError(f"--device {name}: give {NAMES}")
