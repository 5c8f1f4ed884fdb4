"""Two SoftRoCE devices on two veth pairs, and a man in the middle between their other ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import select
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from srdma.demo import rxe

NAME, NETWORK = "middle", "10.80.0"
MTU = "4200"
LONGEST = 65536
ALL_PROTOCOLS = 3
SETTINGS = Path("/proc/sys/net/ipv4/conf")
LEFT, RIGHT = 0, 1

# (side that sent the frame, frame) -> frames for the other side, in order
Rule = Callable[[int, bytes], Iterable[bytes]]


def open_packets(netdev: str) -> socket.socket:
    """A socket for all frames of a network device."""
    found = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    found.bind((netdev, ALL_PROTOCOLS))
    return found


def arrived(packets: socket.socket) -> bytes:
    """The next frame; empty if this machine sent it itself."""
    data, address = packets.recvfrom(LONGEST)
    return b"" if address[2] == socket.PACKET_OUTGOING else data


def _pass_frames(sides: Sequence[socket.socket], rule: Rule) -> None:
    """The man in the middle. It does not end."""
    while True:
        ready, _, _ = select.select(sides, [], [])
        for side in (LEFT, RIGHT):
            data = arrived(sides[side]) if sides[side] in ready else b""
            for frame in rule(side, data) if data else ():
                sides[1 - side].send(frame)


@contextlib.contextmanager
def _middle(netdevs: Sequence[str], rule: Rule) -> Iterator[None]:
    """A process, because pyverbs holds the lock of the interpreter. It is killed, because at its
    exit the devices of its parent would be closed. Its sockets are open before it begins, so that
    it sees the first frame."""
    with contextlib.ExitStack() as undo:
        sides = [undo.enter_context(open_packets(netdev)) for netdev in netdevs]
        context = multiprocessing.get_context("fork")
        process = context.Process(target=_pass_frames, args=(sides, rule))
        process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def cable(rule: Rule) -> Iterator[list[rxe.End]]:
    """The two devices; the middle obeys the rule. Needs root."""
    rxe.load()
    ends = [rxe.End(f"{NAME}rxe{i}", f"{NAME}v{i}", f"{NETWORK}.{i + 1}") for i in (LEFT, RIGHT)]
    middles = [f"{NAME}m{i}" for i in (LEFT, RIGHT)]
    (SETTINGS / "all/rp_filter").write_text("0")
    with contextlib.ExitStack() as undo:
        for end, middle in zip(ends, middles, strict=True):
            _run("ip", "link", "add", end.netdev, "type", "veth", "peer", "name", middle)
            undo.callback(_run, "ip", "link", "del", end.netdev)
            for netdev in (end.netdev, middle):
                _run("ip", "link", "set", netdev, "mtu", MTU, "up")
            _run("ip", "addr", "add", f"{end.address}/24", "dev", end.netdev)
            for setting, value in (("accept_local", "1"), ("rp_filter", "0")):
                (SETTINGS / end.netdev / setting).write_text(value)
            _run("rdma", "link", "add", end.device, "type", "rxe", "netdev", end.netdev)
        for end, other in zip(ends, reversed(ends), strict=True):
            # ARP could fail: the kernel waits for an answer for 1 s only while it connects a QP.
            words = ("lladdr", mac_of(other.netdev), "dev", end.netdev, "nud", "permanent")
            _run("ip", "neigh", "replace", other.address, *words)
        undo.enter_context(_middle(middles, rule))
        yield ends


def mac_of(netdev: str) -> str:
    """The MAC address of a network device, as text."""
    return Path("/sys/class/net", netdev, "address").read_text().strip()


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
