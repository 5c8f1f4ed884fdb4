"""A link between two network namespaces of this machine: a pair of veth devices whose kernel cuts
trains of datagrams (docs/protocol.md 11a) before the link, as for a NIC that does not cut them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from srdma.errors import LocalError

MTU = 9000
DEVICE = "v"  # in each namespace


@dataclass(frozen=True)
class End:
    """A network namespace, and its addresses on the link."""

    netns: str
    four: str
    six: str
    mac: str

    @property
    def text(self) -> str:
        """As `--end` of build/bench/ladder."""
        return f"{self.netns},{self.four},{self.six}"


@contextmanager
def link() -> Iterator[tuple[End, End]]:
    """Makes the namespaces and the link; they exist until the block ends.

    The ends know each other's MAC. On a new link neighbour discovery of IPv6 takes 1 s, because its
    first question is lost.

    Raises LocalError if this machine or user cannot make them.
    """
    name = f"srdma-bench-{os.getpid()}"
    a, b = (
        End(f"{name}-{n}", f"10.47.92.{n}", f"fd47:92::{n}", f"02:00:00:00:00:0{n}") for n in (1, 2)
    )
    with ExitStack() as stack:
        for end in (a, b):
            _ip("netns", "add", end.netns)
            stack.callback(_ip, "netns", "del", end.netns)
        peer = ["peer", "name", DEVICE, "netns", b.netns]
        peer += ["address", b.mac]
        _ip("-n", a.netns, "link", "add", DEVICE, "address", a.mac, "type", "veth", *peer)
        for end in (a, b):
            at = ["dev", DEVICE]
            _ip("-n", end.netns, "address", "add", f"{end.four}/24", *at)
            _ip("-n", end.netns, "address", "add", f"{end.six}/64", *at, "nodad")
            cut = ["gso_max_segs", "1", "mtu", str(MTU)]
            _ip("-n", end.netns, "link", "set", DEVICE, *cut, "up")
        for end, other in ((a, b), (b, a)):
            for address in (other.four, other.six):
                _ip("-n", end.netns, "neigh", "add", address, "lladdr", other.mac, "dev", DEVICE)
        yield a, b


def _ip(*words: str) -> None:
    if os.geteuid():
        raise LocalError("network namespaces need root")
    if not shutil.which("ip"):
        raise LocalError("the program ip is missing: install iproute2")
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise LocalError(f"ip {' '.join(words)}: {done.stderr.strip()}")
