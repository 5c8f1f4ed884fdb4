"""The decoders in docs/tools show what the reference wrote: every opcode, suite and tag length,
over IPv4 and IPv6.

scapy computes the ICRC of each datagram, and the Lua dissector does too.
tests/e2e/test_udp_wire.py compares csrc/wire/icrc.c with both.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
TOOLS = ROOT / "docs" / "tools"
sys.path.insert(0, str(TOOLS))

layers = pytest.importorskip("scapy.layers.all", reason="scapy is not installed")
import srdma_scapy  # noqa: E402
from scapy.contrib.roce import AETH, BTH  # noqa: E402
from scapy.utils import rdpcap, wrpcap  # noqa: E402

NO_PROOF = "00" * 16
PROOF = 0x80
ETHER = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
GAP = ("request_id", "offset", "length")
SUITES = (  # suites: one of each tag length, at each level
    "aes-128-gcm-aead", "hmac-sha1-header", "hmac-sha224-packet", "hmac-sha256-packet",
    "hmac-sha384-header", "hmac-sha512-packet", "poly1305-packet",
)  # fmt: skip
ACK_FIELDS = {  # names in the vectors, in the Lua dissector, in scapy
    "kind": ("kind", "kind"),
    "reason": ("reason", "reason"),
    "request_id": ("position", "position"),
    "offset": ("offset", "offset"),
    "highest_pn": ("highest_pn", "highest_pn"),
    "recv_credit": ("recv_credit", "recv_credit"),
    "request_credit": ("request_credit", "request_credit"),
    "path": ("path", "path"),
}


def vectors() -> Iterator[dict[str, Any]]:
    """Yields the packets of the reference."""
    for suite in SUITES:
        case = json.loads((ROOT / "tests" / "vectors" / f"packets-{suite}.json").read_text())
        for step in case["steps"]:
            yield {**step, "tag_len": case["client"]["tag_len"], "suite": suite}


def datagram(packet: bytes, ipv6: bool) -> Any:
    """Wraps a packet in UDP, IP and Ethernet. scapy computes the ICRC."""
    ip = (
        layers.IPv6(src="fd00::1", dst="fd00::2", fl=0x12345, tc=3, hlim=9)
        if ipv6
        else layers.IP(src="10.0.0.1", dst="10.0.0.2", id=0, flags="DF", ttl=9, tos=3)
    )
    udp = layers.UDP(sport=4791, dport=4791, chksum=None if ipv6 else 0)
    bth = BTH(packet + bytes(4))
    bth.icrc = None
    return layers.Ether(**ETHER) / ip / udp / bth


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("capture") / "vectors.pcap"
    packets = [bytes.fromhex(step["datagram"]) for step in vectors()]
    wrpcap(str(path), [datagram(packet, ipv6) for packet in packets for ipv6 in (False, True)])
    return path


def tshark(path: Path, *fields: str) -> list[dict[str, str]]:
    """Returns a dictionary per packet, without empty values."""
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    command = ["tshark", "-X", f"lua_script:{TOOLS / 'srdma.lua'}", "-r", str(path), "-T", "fields"]
    command += ["-E", "separator=;", *(part for field in fields for part in ("-e", field))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "Lua" not in done.stderr, done.stderr
    rows = (line.split(";") for line in done.stdout.splitlines())
    return [{k: v for k, v in zip(fields, row, strict=True) if v} for row in rows]


def number(text: str) -> int:
    return int(text, 0)


# --- tshark -------------------------------------------------------------------------------------


def check_sth(row: dict[str, str], step: dict[str, Any]) -> None:
    want = step["fields"]
    assert number(row["infiniband.bth.opcode"]) == want["opcode"]
    assert number(row["srdma.request_id"]) == want.get("request_id", 0) & 0xFFFFFF
    assert number(row["srdma.flags"]) == want.get("flags", 0)
    assert number(row["srdma.offset"]) == want.get("offset", 0)
    assert number(row["srdma.tag_length"]) == step["tag_len"]
    assert len(row["srdma.tag"]) == 2 * step["tag_len"]
    assert len(row.get("srdma.payload", "")) == len(step["payload"])
    assert row["srdma.icrc.status"] == "Good"
    assert "srdma.malformed" not in row and "_ws.malformed" not in row
    if want.get("flags", 0) & PROOF:
        assert number(row["srdma.depth"]) == want.get("depth", 0)
        assert row["srdma.proof"] == want.get("proof", NO_PROOF)


def check_extension(row: dict[str, str], want: dict[str, Any]) -> None:
    """Checks the headers that tshark's own dissector decodes before ours."""
    if "dma_len" in want:
        assert number(row["infiniband.reth.va"]) == want.get("va", 0)
        assert number(row["infiniband.reth.r_key"]) == want.get("rkey", 0)
        assert number(row["infiniband.reth.dmalen"]) == want.get("dma_len", 0)


def check_ack(row: dict[str, str], want: dict[str, Any]) -> None:
    for name, (field, _) in ACK_FIELDS.items():
        assert number(row[f"srdma.ack.{field}"]) == want.get(name, 0), name
    gaps = want.get("gaps", [])
    assert number(row["srdma.ack.gaps"]) == len(gaps)
    for part in GAP:
        shown = [int(text) for text in row.get(f"srdma.ack.gap.{part}", "").split(",") if text]
        assert shown == [gap[GAP.index(part)] for gap in gaps]


def test_tshark_shows_every_field(capture: Path) -> None:
    steps = [step for step in vectors() for _ in range(2)]
    rows = tshark(
        capture, "infiniband.bth.opcode", "infiniband.reth.va", "infiniband.reth.r_key",
        "infiniband.reth.dmalen", "srdma.request_id", "srdma.flags", "srdma.offset",
        "srdma.tag_length", "srdma.tag", "srdma.payload", "srdma.icrc.status", "srdma.malformed",
        "_ws.malformed", "srdma.depth", "srdma.proof", "srdma.ack.gaps",
        *(f"srdma.ack.{field}" for field, _ in ACK_FIELDS.values()),
        *(f"srdma.ack.gap.{part}" for part in GAP),
    )  # fmt: skip
    assert len(rows) == len(steps) > 700
    for row, step in zip(rows, steps, strict=True):
        check_sth(row, step)
        check_extension(row, step["fields"])
        if "ack" in step["fields"]:
            check_ack(row, step["fields"]["ack"])


def test_tshark_detects_damage(tmp_path: Path) -> None:
    """A changed byte gives a bad ICRC unless routers may change it. A
    truncated packet is malformed."""
    step = next(step for step in vectors() if step["fields"]["opcode"] == 0x0A and step["payload"])
    good = bytes(datagram(bytes.fromhex(step["datagram"]), False))
    ip, bth = 14, 14 + 20 + 8
    may_change = (ip + 1, ip + 8, bth + 4)  # ToS, TTL, FECN and BECN
    must_not = (ip + 5, ip + 12, ip + 16, bth + 5, bth + 12, len(good) - 5, len(good) - 1)
    changed = []
    for at in (*may_change, *must_not):
        frame = bytearray(good)
        frame[at] ^= 0x10
        changed.append(bytes(frame))
    short = bytes(datagram(bytes.fromhex(step["datagram"])[: 12 + 16 + 4], False))
    path = tmp_path / "broken.pcap"
    wrpcap(str(path), [layers.Ether(frame) for frame in (*changed, short)])
    rows = tshark(path, "srdma.icrc.status", "srdma.malformed")
    assert [row.get("srdma.icrc.status") for row in rows] == ["Good"] * 3 + ["Bad"] * 7 + [None]
    assert "srdma.malformed" in rows[-1]


def test_plain_roce_is_not_decoded(tmp_path: Path) -> None:
    plain = BTH(opcode=0x04, dqpn=17, psn=5) / (b"x" * 64)
    path = tmp_path / "plain.pcap"
    ip = layers.IP(src="10.0.0.1", dst="10.0.0.2", id=0, flags="DF")
    wrpcap(str(path), [layers.Ether(**ETHER) / ip / layers.UDP(sport=4791, dport=4791) / plain])
    assert srdma_scapy.STH not in rdpcap(str(path))[0]
    assert tshark(path, "infiniband.bth.psn", "srdma.sth") == [{"infiniband.bth.psn": "5"}]


# --- scapy --------------------------------------------------------------------------------------


def test_scapy_shows_every_field(capture: Path) -> None:
    steps = [step for step in vectors() for _ in range(2)]
    for packet, step in zip(rdpcap(str(capture)), steps, strict=True):
        want, sth = step["fields"], packet[srdma_scapy.STH]
        assert packet[BTH].opcode == want["opcode"]
        assert sth.request_id == want.get("request_id", 0) & 0xFFFFFF
        assert int(sth.flags) == want.get("flags", 0) and sth.offset == want.get("offset", 0)
        assert len(sth.tag) == step["tag_len"]
        if want.get("flags", 0) & PROOF:
            assert (sth.depth, sth.proof.hex()) == (
                want.get("depth", 0),
                want.get("proof", NO_PROOF),
            )
        if srdma_scapy.RETH in packet:
            reth = packet[srdma_scapy.RETH]
            assert (reth.va, reth.rkey, reth.dmalen) == (
                want.get("va", 0),
                want.get("rkey", 0),
                want.get("dma_len", 0),
            )
        if "ack" in want:
            body = packet[srdma_scapy.AckBody]
            assert packet[AETH].msn == sth.request_id
            for name, (_, field) in ACK_FIELDS.items():
                assert getattr(body, field) == want["ack"].get(name, 0), name
            gaps = [[getattr(gap, part) for part in GAP] for gap in body.gaps]
            assert gaps == want["ack"].get("gaps", [])
        elif step["payload"]:
            data = packet[srdma_scapy.Data]
            assert len(data.data) * 2 == len(step["payload"])
            assert data.pad == bytes(packet[BTH].padcount)


def test_scapy_rebuilds_what_it_decoded() -> None:
    """Each header, decoded and built again, has the same bytes."""
    for step in vectors():
        frame = datagram(bytes.fromhex(step["datagram"]), False)
        again = layers.Ether(bytes(frame))
        for layer in again.layers():
            again[layer].raw_packet_cache = None
        again[BTH].icrc = None
        assert bytes(again) == bytes(frame), step["suite"]
