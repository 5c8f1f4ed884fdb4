"""`srdma verify-wire`: arguments, exit codes, output (srdma/cli/verify_wire.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from srdma.cli import app, verify_wire
from srdma.inspect.proof import Proof
from tests import captures
from tests.key_lines import both
from tests.reference.jsonform import params_from_json
from tests.reference.make_vectors import VECTORS

CONTENTS = json.loads((VECTORS / "packets-aes-128-gcm-aead.json").read_text())
PACKETS = [bytes.fromhex(step["datagram"]) for step in CONTENTS["steps"]]
FRAMES = [captures.frame(packet) for packet in PACKETS]


def run(*words: object) -> Any:
    return CliRunner().invoke(app.build(), ["verify-wire", *map(str, words)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "wire.pcap"
    path.write_bytes(captures.pcap(FRAMES))
    return path


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give one of --interface"),
        (("-i", "lo", "--pcap", "x"), "give one of --interface"),
        (("--tap", "/tmp/a"), "1 times --tap"),
        (("--tap", "/no/a", "--tap", "/no/b"), "/no is not a folder"),
        (("--pcap", "/no/file"), "cannot read /no/file: No such file"),
        (("--pcap", "x", "--port", 0), "--port 0"),
        (("--pcap", "x", "--port", 65536), "--port 65536"),
        (("--pcap", "x", "--duration", 0), "--duration 0.0"),
        (("--pcap", "x", "--duration", "inf"), "--duration inf"),
        (("--pcap", "x", "--duration", "nan"), "--duration nan"),
        (("--pcap", "x", "--count", 0), "--count 0"),
    ],
)
def test_wrong_arguments(words: tuple[object, ...], text: str) -> None:
    done = run(*words)
    assert done.exit_code == 3 and text in done.stderr


def test_a_protected_wire(capture: Path) -> None:
    done = run("--pcap", capture)
    assert done.exit_code == 0
    assert "all packets were protected" in done.output
    assert "tags were not verified: give --key-log" in done.output
    report = json.loads(run("--pcap", capture, "--json").output)
    assert report["protected"] and report["sth"] == len(PACKETS)


def test_count_ends_the_capture(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcap"
    path.write_bytes(captures.pcap([*FRAMES * 10, captures.rc(0x0A, b"plain")]))
    done = run("--pcap", path, "--count", 10, "--json")
    assert done.exit_code == 0 and json.loads(done.output)["sth"] < len(FRAMES) * 10


def test_plain_traffic_among_protected(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcapng"
    path.write_bytes(captures.pcapng([*FRAMES, captures.rc(0x0A, bytes(16) + b"plain")]))
    done = run("--pcap", path)
    assert done.exit_code == 1
    assert "(1 WRITE)" in done.output and "NOT all packets were protected" in done.output
    assert run("--pcap", path, "--json").exit_code == 1


def test_nothing_seen(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcap"
    path.write_bytes(captures.pcap([]))
    done = run("--pcap", path)
    assert done.exit_code == 1 and "no packet was seen" in done.output


def test_a_truncated_capture_is_no_proof(capture: Path) -> None:
    capture.write_bytes(capture.read_bytes()[:-1])
    done = run("--pcap", capture, "--json")
    assert done.exit_code == 3 and f"the file ends inside packet {len(PACKETS)}" in done.stderr
    report = json.loads(done.stdout)
    assert not report["protected"] and report["sth"] == len(PACKETS) - 1


def test_a_file_that_is_no_capture(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("hello")
    done = run("--pcap", path)
    assert done.exit_code == 3 and "neither pcap nor pcapng" in done.stderr


def test_a_link_type_that_is_not_supported(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    path.write_bytes(captures.pcap([b"frame"], link=105))
    done = run("--pcap", path)
    assert done.exit_code == 3 and "link type 105" in done.stderr


def test_without_the_right_to_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("socket.socket", refuse)
    done = run("-i", "lo")
    assert done.exit_code == 5 and "Operation not permitted: run as root" in done.stderr


def key_log(folder: Path, packets: list[bytes]) -> list[str]:
    """The arguments of a run with a key log."""
    params = params_from_json(CONTENTS["client"])
    path, capture = folder / "keys", folder / "wire.pcap"
    path.touch(0o600)
    path.write_text(both(params))
    capture.write_bytes(captures.pcap(map(captures.frame, packets)))
    return ["--pcap", str(capture), "--key-log", str(path)]


def separate(*words: str) -> subprocess.CompletedProcess[str]:
    """A run in a process of its own: with a key log it forbids core dumps of its process."""
    command = [sys.executable, "-m", "srdma", "verify-wire", *words]
    return subprocess.run(command, capture_output=True, text=True)


def test_tags_are_verified_by_a_key_log(tmp_path: Path) -> None:
    words = key_log(tmp_path, PACKETS)
    (tmp_path / "keys").chmod(0o644)
    done = separate(*words)
    assert done.returncode == 0, done.stderr
    assert f"tags verified{'':7}{len(PACKETS):>13}" in done.stdout
    assert "session spiffe://test/a -> spiffe://test/b" in done.stdout
    assert "aes-128-gcm, level aead, 128 bit tag; key mode basic; epochs 0 and 0" in done.stdout
    assert "warning" in done.stderr and "chmod 600" in done.stderr
    for name in ("tx_secret", "rx_secret"):
        assert CONTENTS["client"][name] not in done.stdout + done.stderr


def test_a_wrong_tag_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    changed = bytearray(PACKETS[3])
    changed[9] ^= 1  # PSN
    done = separate(*key_log(tmp_path, [*PACKETS, bytes(changed)]), "--json")
    assert done.returncode == 6 and "a tag is wrong" in done.stderr
    assert json.loads(done.stdout)["tags"]["wrong"] == 1


def test_progress_is_told_on_long_runs(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(verify_wire, "PROGRESS", 0.0)
    verify_wire.Progress(live=True, quiet=False).batch(Proof(sth=1234))
    verify_wire.Progress(live=True, quiet=True).batch(Proof(sth=1))
    assert capsys.readouterr().err == "1,234 packets with an STH, 0 plain, 0 lost\n"
