"""Two workers in separate network namespaces joined by a cable: the UDP wire as third parties
see it.

dumpcap captures what passes the cable. scapy and tshark, which know RoCEv2 and share no code
with srdma, decode it: every datagram must be RoCE with a right ICRC and an STH.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import srdma
from srdma import Access
from srdma.embedded import Worker
from tests.e2e.cable import Cable, cable, why_not, workers
from tests.e2e.conftest import WAIT, Joiner, Site, pattern, run
from tests.reference.icrc import Datagram

ROOT = Path(__file__).parent.parent.parent
TOOLS = ROOT / "docs" / "tools"
ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZE = 300_001
PORT = 4791
ACKNOWLEDGE = 0x11

pytest.importorskip("scapy.layers.all", reason="scapy is not installed")
sys.path.insert(0, str(TOOLS))
import srdma_scapy  # noqa: E402
from scapy.contrib.roce import BTH  # noqa: E402
from scapy.layers.inet import IP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6  # noqa: E402
from scapy.layers.l2 import Ether  # noqa: E402
from scapy.utils import rdpcap  # noqa: E402

REASON = why_not("dumpcap", "tshark")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


class Capture:
    """dumpcap at end a of the cable."""

    def __init__(self, it: Cable, path: Path) -> None:
        self.path, self._log = path, path.with_suffix(".log")
        command = [
            "dumpcap",
            "-q",
            "-B",
            "64",
            "-i",
            "v",
            "-f",
            f"udp port {PORT}",
            "-w",
            str(path),
        ]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(it.inside("a", *command), stdout=log, stderr=log)
        wait_for(lambda: "File:" in self._log.read_text(), "dumpcap to start")

    def stop(self) -> None:
        """Stops the capture. Fails if a datagram is missing in the file."""
        time.sleep(
            0.3
        )  # sent datagrams are in the kernel's buffer, which dumpcap reads four times a second
        self._process.send_signal(signal.SIGINT)
        self._process.wait(WAIT)
        text = self._log.read_text()
        assert "dropped on interface 'v'" in text and "/0 (" in text, text


def wait_for(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT
    while not done():
        assert time.monotonic() < deadline, f"waited {WAIT} s for {what}"
        time.sleep(0.01)


def counters(worker: Worker) -> dict[str, int]:
    with srdma.Context(worker.control) as ctx:
        return dict(ctx.stats())


def work(join: Joiner, site: Site) -> bytes:
    """A WRITE, a READ and a SEND in each direction. Returns bytes that must
    not appear on the wire."""
    pair = join(site)
    data = pattern(SIZE, 3)
    for target, qp, other in (
        (pair.b, pair.client.qp, pair.server.qp),
        (pair.a, pair.server.qp, pair.client.qp),
    ):
        with target.pd.alloc(SIZE + 7, ALL, scope="pd") as mr:
            qp.write(data, mr.remote(), 7, timeout=WAIT)
            assert mr.buf[7 : 7 + SIZE] == data
            assert qp.read(mr.remote(), 7, SIZE, timeout=WAIT) == data
        message = run(other.recv, WAIT)
        qp.send(data[:10000], timeout=WAIT)
        assert message().data == data[:10000]
    return data


@dataclass
class Seen:
    """One run over a cable: the capture, and the workers' counters."""

    version: int
    mtu: int
    capture: Path
    secret: bytes
    stats: list[dict[str, int]]


@pytest.fixture(scope="module", params=[(4, 1500), (6, 1500), (4, 9000)], ids=str)
def seen(
    request: pytest.FixtureRequest, pki: Path, tmp_path_factory: pytest.TempPathFactory
) -> Seen:
    version, mtu = request.param
    if version == 6 and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this kernel has no IPv6")
    folder = tmp_path_factory.mktemp("udp")
    with cable(version, mtu) as it, pytest.MonkeyPatch.context() as patch:
        capture = Capture(it, folder / "wire.pcap")
        with workers(it, folder, patch) as site, contextlib.closing(Joiner(pki)) as join:
            secret = work(join, site)
            join.close()
            stats = [counters(site.a), counters(site.b)]
            capture.stop()
    return Seen(version, mtu, capture.path, secret, stats)


def test_scapy_reads_every_datagram(seen: Seen) -> None:
    """The headers match protocol.md 11a, and the ICRC is the one that scapy computes."""
    largest = 0
    for frame in rdpcap(str(seen.capture)):
        assert len(frame) <= 14 + seen.mtu
        assert frame[UDP].sport == frame[UDP].dport == PORT
        if seen.version == 4:
            ip = frame[IP]
            assert (ip.id, str(ip.flags), ip.frag, ip.options) == (0, "DF", 0, [])
            assert frame[UDP].chksum == 0
        else:
            assert frame[IPv6].nh == socket.IPPROTO_UDP
        assert srdma_scapy.STH in frame
        if srdma_scapy.Data in frame:
            largest = max(largest, len(frame[srdma_scapy.Data].data))
        again = Ether(bytes(frame))
        again[BTH].icrc = None
        assert bytes(again) == bytes(frame)
    assert largest == {1500: 1024, 9000: 4096}[seen.mtu]


def test_counters_match_the_capture(seen: Seen) -> None:
    a, b = seen.stats
    assert len(rdpcap(str(seen.capture))) == a["packets_sealed"] + b["packets_sealed"]
    assert a["packets_sealed"] == b["packets_verified"] > 0
    assert b["packets_sealed"] == a["packets_verified"] > 0
    for stats in seen.stats:
        assert stats["wire_bytes_sent"] > SIZE
        dropped = {name for name, n in stats.items() if name.startswith("wire_") and n}
        assert dropped == {"wire_bytes_sent"}


# RFC 5042 R5.3-1
def test_no_plaintext_on_the_wire(seen: Seen) -> None:
    text = seen.capture.read_bytes()
    assert all(seen.secret[at : at + 16] not in text for at in range(0, SIZE - 16, 997))


def test_tshark_decodes_every_datagram(seen: Seen) -> None:
    fields = (
        "infiniband.bth.opcode", "infiniband.reth.dmalen", "infiniband.aeth.msn",
        "srdma.request_id", "srdma.tag_length", "srdma.icrc.status", "srdma.malformed",
        "_ws.malformed", "srdma.ack.kind",
    )  # fmt: skip
    command = ["tshark", "-X", f"lua_script:{TOOLS / 'srdma.lua'}", "-r", str(seen.capture)]
    command += ["-T", "fields", "-E", "separator=;", *(w for f in fields for w in ("-e", f))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
    rows = [dict(zip(fields, row.split(";"), strict=True)) for row in done.stdout.splitlines()]
    assert len(rows) == sum(stats["packets_sealed"] for stats in seen.stats)
    opcodes = set()
    for row in rows:
        assert row["srdma.icrc.status"] == "Good" and row["srdma.tag_length"] == "16", row
        assert not row["srdma.malformed"] and not row["_ws.malformed"], row
        opcode = int(row["infiniband.bth.opcode"])
        opcodes.add(opcode)
        assert bool(row["infiniband.reth.dmalen"]) == (opcode in (0x06, 0x0A, 0x0C)), row
        assert bool(row["infiniband.aeth.msn"]) == (opcode in (0x0D, 0x0F, 0x10, 0x11)), row
        assert bool(row["srdma.ack.kind"]) == (opcode == 0x11), row
    assert {0x00, 0x01, 0x02, 0x06, 0x07, 0x08, 0x0C, 0x0D, 0x0E, 0x0F, 0x11} <= opcodes


def worked(
    it: Cable, join: Joiner, folder: Path, patch: pytest.MonkeyPatch
) -> tuple[Path, int, list[dict[str, int]]]:
    """work() between two workers with --wire-trains. Returns the capture, the number of packets,
    and the counters."""
    capture = Capture(it, folder / "wire.pcap")
    with workers(it, folder, patch, ["--wire-trains"]) as site:
        work(join, site)
        join.close()
        stats = [counters(worker) for worker in (site.a, site.b)]
        capture.stop()
    return capture.path, sum(each["packets_sealed"] for each in stats), stats


@pytest.mark.parametrize("version", [4, 6])
def test_trains_of_a_device_with_offload_are_verified(
    version: int, pki: Path, join: Joiner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The capture shows trains as one frame. `srdma verify-wire` judges each of their packets."""
    with cable(version, 1500, offload=True) as it:
        capture, sealed, _ = worked(it, join, tmp_path, monkeypatch)
    frames = rdpcap(str(capture))
    assert max(map(len, frames)) > 14 + 1500
    assert len(frames) < sealed
    command = [sys.executable, "-m", "srdma", "verify-wire", "--json", "--pcap", str(capture)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
    report = json.loads(done.stdout)
    assert report["protected"] and report["sth"] == sealed


def test_bare_datagrams_on_a_link_that_segments(
    pki: Path, join: Joiner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With --wire-trains over IPv4 packets with data are bare: tests/reference makes the same
    datagram. Acks are not, and all of them have a right ICRC."""
    with cable(4, 1500) as it:
        it.compute_checksums()
        capture, sealed, stats = worked(it, join, tmp_path, monkeypatch)
    frames = rdpcap(str(capture))
    assert len(frames) == sealed and all(each["wire_icrc"] == 0 for each in stats)
    bare = identified = 0
    for frame in frames:
        ip, udp = frame[IP], frame[UDP]
        made = Datagram(
            (ip.src, udp.sport),
            (ip.dst, udp.dport),
            bytes(udp.payload)[:-4],
            tos=ip.tos,
            ttl=ip.ttl,
            bare=bytes(udp.payload)[-4:] == bytes(4),
            identification=ip.id,
        )
        if made.bare:
            bare += 1
            identified += ip.id != 0
        else:
            assert ip.id == 0
        assert bytes(ip) == b"".join(part for _, part in made.sent)
        if made.bare and frame[BTH].opcode == ACKNOWLEDGE:  # a question
            assert frame[srdma_scapy.STH].flags == "bare+ack_now"
    assert bare > sealed // 2 and identified > 0
    statuses = tshark(capture, "srdma.icrc.status")
    assert set(statuses) == {"Good", "None"} and statuses.count("None") == bare


def tshark(capture: Path, field: str) -> list[str]:
    """The field of each frame."""
    command = ["tshark", "-X", f"lua_script:{TOOLS / 'srdma.lua'}", "-r", str(capture)]
    command += ["-T", "fields", "-e", field]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=True)
    return done.stdout.splitlines()


def test_path_with_a_smaller_mtu_ends_the_request(
    pki: Path, join: Joiner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A packet that does not fit is not fragmented. It is counted, and the
    request ends with a reason."""
    with cable(4, 1500) as it, workers(it, tmp_path, monkeypatch) as site:
        pair = join(site, qp_timeout=5.0)
        with pair.b.pd.alloc(4096, ALL, scope="pd") as mr:
            pair.client.qp.write(pattern(4096), mr.remote(), timeout=WAIT)
            it.ip("a", "route", "add", "10.47.91.2/32", "dev", "v", "mtu", "1000")
            pair.client.qp.write(pattern(500), mr.remote(), timeout=WAIT)
            with pytest.raises(srdma.WCError, match="DEADLINE"):
                pair.client.qp.write(pattern(4096), mr.remote(), timeout=WAIT)
        assert counters(site.a)["wire_too_long"] > 0
        join.close()


# RFC 5042 R6.4-1, A6.4.4
def test_flood_of_garbage_is_counted_and_harmless(
    join: Joiner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shout = (
        "import os, socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM);"
        "[s.sendto(os.urandom(n % 400), ('10.47.91.1', 4791)) for n in range(2000)]"
    )
    with cable(4, 1500) as it, workers(it, tmp_path, monkeypatch) as site:
        pair = join(site)
        with pair.b.pd.alloc(SIZE, ALL, scope="pd") as mr:
            crowd = subprocess.Popen(it.inside("b", sys.executable, "-c", shout))
            pair.client.qp.write(pattern(SIZE), mr.remote(), timeout=WAIT)
            assert crowd.wait(WAIT) == 0
            assert pair.client.qp.read(mr.remote(), 0, SIZE, timeout=WAIT) == pattern(SIZE)
        wait_for(lambda: dropped(site.a) == 2000, "all of it to be counted")
        join.close()


def dropped(worker: Worker) -> int:
    stats = counters(worker)
    return stats["wire_short"] + stats["wire_icrc"]
