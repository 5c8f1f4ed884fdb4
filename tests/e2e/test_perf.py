"""`srdma perf` on the embedded NIC: every test of it runs, counts what it says, and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from srdma.perf import TESTS

LIMIT = 60.0
LATENCY = [name for name, row in TESTS.items() if row.latency]
BANDWIDTH = [name for name, row in TESTS.items() if not row.latency]


def perf(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "srdma", "perf", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


def rows(*words: str) -> list[dict[str, Any]]:
    done = perf(*words, "--embedded", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("test", LATENCY)
def test_latency(test: str) -> None:
    head, row = rows(test, "-n", "300", "-s", "100")
    assert head["test"] == test and head["mode"] == "basic"
    assert row["size"] == 100 and row["iterations"] == 300
    assert 0 < row["t_min"] <= row["t_typical"] <= row["t_99"] <= row["t_999"] <= row["t_max"]
    assert row["cpu_ns"]["host_cpu"] >= 0


@pytest.mark.parametrize("test", BANDWIDTH)
def test_bandwidth(test: str) -> None:
    words = ["-n", "3000", "-s", "5000", "-q", "2", "-t", "16"]
    _, row = rows(test, *words)
    assert row["iterations"] == 3000
    assert 0 < row["least_MBps"] <= row["average_MBps"] <= row["peak_MBps"]


def test_both_directions_and_a_duration() -> None:
    _, row = rows("write_bw", "-D", "0.3", "-b", "-s", "1000")
    assert row["iterations"] > 100 and row["both"] is True


def test_compares_with_no_protection(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ["--compare", "--suite", "chacha20-poly1305", "--mode", "pd", "--out_json", str(out)]
    head, plain, secure, cost = rows("write_lat", "-n", "100", *words)
    assert head["suite"].startswith("chacha20-poly1305") and head["mode"] == "pd"
    assert (plain["protection"], secure["protection"]) == ("plain", "secure")
    assert cost["rounds"] == 7 and cost["least"] <= cost["ratio"] <= cost["most"]
    whole = json.loads(out.read_text())
    assert whole["results"] == [plain, secure, cost]


def test_for_people() -> None:
    done = perf("read_lat", "--embedded", "-n", "100", "--level", "none")
    assert done.returncode == 0, done.stderr
    title, columns, row = done.stdout.splitlines()
    assert "NO PROTECTION" in title
    assert columns.split()[:2] == ["#bytes", "#iterations"]
    assert row.split()[:2] == ["32", "100"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["write_speed", "--embedded"], "there are write_lat, read_lat"),
        (["write_bw", "--embedded", "-s", "0"], "-s 0: 1 to"),
        (["write_lat", "--embedded", "-b"], "-D, -b and -q are for bandwidth"),
        (["write_bw", "--embedded", "--compare", "--level", "none"], "leave --level none out"),
        (["write_bw", "--embedded", "--worker", "x"], "name none"),
        (["write_bw"], "give --identity PREFIX"),
    ],
)
def test_says_what_would_be_right(words: list[str], text: str) -> None:
    done = perf(*words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert text in " ".join(done.stderr.split())
