"""Two network namespaces joined by a cable, with a worker in each: the UDP
wire as third parties see it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from srdma.embedded import Embedded, Worker, find_worker
from tests.e2e.conftest import Site


def why_not(*programs: str) -> str | None:
    """Returns why network namespaces, or one of the programs, cannot be used here, or None."""
    if os.geteuid():
        return "network namespaces need root"
    missing = [name for name in ("ip", "nsenter", *programs) if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    name = f"srdma-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
        return "the kernel gives no network namespaces here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


# ETHTOOL_STXCSUM (0x17) of the device v by SIOCETHTOOL (0x8946).
_NO_OFFLOAD = """
import ctypes, fcntl, socket, struct
off = ctypes.create_string_buffer(struct.pack("II", 0x17, 0))
request = struct.pack("16sP16x", b"v", ctypes.addressof(off))
fcntl.ioctl(socket.socket(socket.AF_INET, socket.SOCK_DGRAM), 0x8946, request)
"""


@dataclass
class Cable:
    """Namespaces NAME-a and NAME-b. The device v of each is one end of the cable."""

    name: str
    addresses: dict[str, str]  # of the ends a and b, in the form of --wire-listen

    def ip(self, end: str, *words: str) -> None:
        command = ["ip", "-n", f"{self.name}-{end}", *words]
        subprocess.run(command, check=True, capture_output=True)

    def compute_checksums(self) -> None:
        """The kernel computes UDP checksums before the devices v, so that a capture shows them."""
        for end in self.addresses:
            subprocess.run(self.inside(end, sys.executable, "-c", _NO_OFFLOAD), check=True)

    def inside(self, end: str, *words: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.name}-{end}", *words]


@contextlib.contextmanager
def cable(
    version: int, mtu: int, *, middle: bool = False, offload: bool = False
) -> Iterator[Cable]:
    """Makes the namespaces and joins them. With `middle` two separate cables lead to va and vb in a
    third namespace, NAME-m, and a program has to pass the frames between them. The kernel cuts
    trains of datagrams before the devices v, unless these have an `offload` for it."""
    ip = {
        end: f"10.47.91.{n}" if version == 4 else f"fd47:91::{n}" for n, end in ((1, "a"), (2, "b"))
    }
    shown = {end: ip[end] if version == 4 else f"[{ip[end]}]" for end in ip}
    it = Cable(f"srdma-{os.getpid()}", shown)
    spaces = [*ip, *(["m"] if middle else [])]
    try:
        for space in spaces:
            subprocess.run(["ip", "netns", "add", f"{it.name}-{space}"], check=True)
        if middle:
            for end in ip:
                peer = ["peer", "name", f"v{end}", "netns", f"{it.name}-m"]
                it.ip(end, "link", "add", "v", "type", "veth", *peer)
                it.ip("m", "link", "set", f"v{end}", "mtu", str(mtu), "up")
        else:
            peer = ["peer", "name", "v", "netns", f"{it.name}-b"]
            it.ip("a", "link", "add", "v", "type", "veth", *peer)
        for end in ip:
            length, nodad = ("24", ()) if version == 4 else ("64", ("nodad",))
            it.ip(end, "address", "add", f"{ip[end]}/{length}", "dev", "v", *nodad)
            segments = () if offload else ("gso_max_segs", "1")
            it.ip(end, "link", "set", "v", *segments, "mtu", str(mtu), "up")
        yield it
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", f"{it.name}-{space}"], capture_output=True)


@contextlib.contextmanager
def workers(
    it: Cable, folder: Path, monkeypatch: pytest.MonkeyPatch, options: Sequence[str] = ()
) -> Iterator[Site]:
    """Starts a worker at each end. A wrapper enters the namespace: it takes the end, a or b, from
    the worker's name, the second word of the command line."""
    inside = folder / "inside"
    inside.write_text(
        f'#!/bin/sh\nexec nsenter "--net=/run/netns/{it.name}-$2" {find_worker()} "$@"\n'
    )
    inside.chmod(0o755)
    monkeypatch.setenv("SRDMA_OFFLOAD", str(inside))
    with Embedded() as embedded:
        a, b = (start(embedded, it, end, options) for end in "ab")
        yield Site(a, b, embedded)


def start(embedded: Embedded, it: Cable, end: str, options: Sequence[str] = ()) -> Worker:
    words = ["--wire-dev", "udp", "--wire-listen", it.addresses[end], *options]
    return embedded.launch(end, words)
