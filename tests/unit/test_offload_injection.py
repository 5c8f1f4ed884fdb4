"""A process that appends descriptors to the leg of another one (docs/security.md, *Not covered*).

It opens the memfd of the leg by /proc/PID/fd. The kernel permits this to processes of the same user
(and root), unless the owner of the leg is not dumpable. The first case shows that the sentence in
security.md is still true; the others show how to prevent it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.daemon import BINARY, PATIENCE, RING, Kind, Worker, leg_fds, u32

pytestmark = [
    pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run processes of other users"),
]

USER, OTHER = 65534, 65533
DESCRIPTORS = 21  # index in STATS

OWNER = """
import ctypes, sys
if sys.argv[1] == "undumpable":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
print("ready", flush=True)
sys.stdin.read()
"""

# A descriptor in slot 0 of the ring, then tail = 1 (local-interface.md 4.2).
ATTACKER = """
import mmap, os, struct, sys
try:
    fd = os.open(f"/proc/{sys.argv[1]}/fd/{sys.argv[2]}", os.O_RDWR)
except PermissionError:
    sys.exit(13)
ring = mmap.mmap(fd, 4096)
ring[128:200] = struct.pack("=II64s", 64, 0, bytes([17]))
ring[64:68] = struct.pack("=I", 1)
"""


@contextmanager
def owner(memfd: int, how: str) -> Iterator[int]:
    """A process of USER that has the memfd of a leg."""
    command = [sys.executable, "-c", OWNER, how]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[memfd],
        user=USER,
        group=USER,
        extra_groups=[],
    ) as process:
        try:
            assert process.stdout and process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("attacker", "how", "succeeds"),
    [(USER, "", True), (OTHER, "", False), (USER, "undumpable", False)],
    ids=["same user", "another user", "owner is not dumpable"],
)
# review A20
def test_descriptors_of_another_process(a: Worker, attacker: int, how: str, succeeds: bool) -> None:
    """V10, A20."""
    client = a.client()
    fds = leg_fds()
    client.request(Kind.OPEN, u32(RING, 0), fds)
    with owner(fds[0], how) as pid:
        command = [sys.executable, "-c", ATTACKER, str(pid), str(fds[0])]
        done = subprocess.run(
            command, user=attacker, group=attacker, extra_groups=[], timeout=PATIENCE, check=False
        )
    assert done.returncode == (0 if succeeds else 13)
    end = time.monotonic() + (PATIENCE if succeeds else 0.2)
    taken = 0
    while not taken and time.monotonic() < end:
        counters, _ = client.request(Kind.STATS)
        taken = int.from_bytes(counters[DESCRIPTORS * 8 :][:8], "big")
    assert taken == succeeds
    for fd in fds:
        os.close(fd)
