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


def _pass_frames(netdevs: Sequence[str], rule: Rule) -> None:
    """The man in the middle. It does not end."""
    sides = [open_packets(netdev) for netdev in netdevs]
    while True:
        ready, _, _ = select.select(sides, [], [])
        for side in (LEFT, RIGHT):
            data = arrived(sides[side]) if sides[side] in ready else b""
            for frame in rule(side, data) if data else ():
                sides[1 - side].send(frame)


@contextlib.contextmanager
def _middle(netdevs: Sequence[str], rule: Rule) -> Iterator[None]:
    """A process, because pyverbs holds the lock of the interpreter while the kernel waits for ARP.
    It is killed, because at its exit the devices of its parent would be closed."""
    process = multiprocessing.get_context("fork").Process(target=_pass_frames, args=(netdevs, rule))
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
            # Else the kernel answers ARP requests for the other end, with the middle's address.
            (SETTINGS / middle / "arp_ignore").write_text("8")
            _run("rdma", "link", "add", end.device, "type", "rxe", "netdev", end.netdev)
        undo.enter_context(_middle(middles, rule))
        yield ends


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
