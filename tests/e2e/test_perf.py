"""`srdma perf` on the embedded NIC: each of its tests runs, reports its
counts, and refuses errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from srdma_bench.perf.measure import TESTS

LIMIT = 60.0
LATENCY = [name for name, row in TESTS.items() if row.latency]
BANDWIDTH = [name for name, row in TESTS.items() if not row.latency]
LAT_ROW = {"MsgSize", "n_iterations", "t_min", "t_max", "t_typical", "t_avg", "t_stdev",
           "percentile_99", "percentile_99.9"}  # fmt: skip
BW_ROW = {"MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate"}


def perf(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "srdma", "perf", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)


def rows(*words: str) -> list[dict[str, Any]]:
    done = perf(*words, "--embedded", "--json")
    assert done.returncode == 0, done.stderr
    head, *found = [json.loads(line) for line in done.stdout.splitlines()]
    return [head["test_info"], *found]


def both_hosts(*words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the head, and the rows of the loads in C and in Python."""
    head, c, python, cost = rows(*words, "--compare-python")
    assert (c["host"], python["host"]) == ("C", "Python")
    assert cost["overhead"]["of"] == "Python / C"
    return head, [c, python]


@pytest.mark.parametrize("test", LATENCY)
def test_latency(test: str) -> None:
    head, found = both_hosts(test, "-n", "200", "-s", "100", "-F")
    assert head["test"].endswith("_Latency_Test") and head["Key_mode"] == "basic"
    for row in found:
        assert row.keys() > LAT_ROW
        assert (row["MsgSize"], row["n_iterations"]) == (100, 200)
        assert 0 < row["t_min"] <= row["t_typical"] <= row["percentile_99"]
        assert row["percentile_99"] <= row["percentile_99.9"] <= row["t_max"]
        assert row["packets"] >= 4 * 200
        assert row["cpu_ns"]["host_cpu"] >= 0


@pytest.mark.parametrize("test", BANDWIDTH)
def test_bandwidth(test: str) -> None:
    _, found = both_hosts(test, "-n", "999", "-s", "5000", "-q", "2", "-t", "16")
    for row in found:
        assert row.keys() > BW_ROW
        assert row["n_iterations"] == 999
        assert 0 < row["BW_average"] <= row["BW_peak"]
        assert row["wire_bytes"] > 999 * 5000


def test_both_directions_and_a_duration() -> None:
    head, found = both_hosts("write_bw", "-D", "0.1", "-b", "-s", "1000")
    assert head["test"] == "RDMA_Write_Bidirectional_BW_Test"
    assert all(row["n_iterations"] > 100 for row in found)


def test_messages_for_a_duration() -> None:
    """The server ends by itself after the last message."""
    _, found = both_hosts("send_bw", "-D", "0.1", "-s", "100")
    assert all(row["n_iterations"] > 100 for row in found)


def test_small_messages_spread_over_a_region() -> None:
    _, found = both_hosts("write_bw", "-n", "3000", "-s", "32", "-q", "3", "--mode", "mem")
    assert all(row["n_iterations"] == 3000 for row in found)


def test_messages_in_both_directions() -> None:
    """Many more messages than a receive queue holds: each end posts receives until its peer has
    finished."""
    _, found = both_hosts("send_bw", "-n", "500", "-b", "-s", "100", "-t", "8")
    assert [row["n_iterations"] for row in found] == [1000, 1000]


def test_python_host_only() -> None:
    head, row = rows("send_lat", "-n", "50", "--python")
    assert head["Host"] == row["host"] == "Python"


def test_compares_with_no_protection(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ["--compare", "--suite", "chacha20-poly1305", "--mode", "pd"]
    words += ["--out_json_file", str(out)]
    head, plain, secure, cost = rows("write_lat", "-n", "100", "-s", "32", *words)
    assert (head["Level"], head["Key_mode"]) == ("aead", "pd")
    assert head["Suite"].startswith("chacha20-poly1305")
    assert (plain["run"], secure["run"]) == ("plain", "secure")
    assert plain["packets"] == 0 < secure["packets"]
    over = cost["overhead"]
    assert over["of"] == "secure / plain" and over["pairs"] == 7
    for ratio in (over["time"], over["worker_cpu"], over["host_cpu"]):
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"]
    # At least one tag for each of the two packets of a round trip. Acks come on top, in varying
    # number.
    assert over["wire_bytes"] >= 2 * 16
    assert json.loads(out.read_text()) == {
        "test_info": head, "results": secure, "compared": plain, "overhead": over,
    }  # fmt: skip


def test_accesses_carry_proofs_in_mem_modes() -> None:
    head, found = both_hosts("write_bw", "-n", "300", "--mode", "pd+mem", "-s", "2048")
    assert head["Memory_proofs"] is True and head["Key_mode"] == "pd+mem"
    assert all(row["n_iterations"] == 300 for row in found)


def test_all_sizes_to_the_json_file_of_perftest(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    done = perf("read_lat", "--embedded", "-n", "5", "-a", "--out_json")
    assert done.returncode == 0, done.stderr
    whole = json.loads(Path("perftest_out.json").read_text())
    assert [row["MsgSize"] for row in whole["results"]] == [1 << n for n in range(1, 24)]


def test_text_output_of_latency() -> None:
    done = perf("read_lat", "--embedded", "-n", "100", "--level", "none")
    assert done.returncode == 0, done.stderr
    assert "RDMA_Read Latency Test" in done.stdout
    assert " Protection      : NO PROTECTION" in done.stdout
    assert " Region          : one place\n" in done.stdout
    *_, columns, row = done.stdout.splitlines()
    assert columns.split() == [
        "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]",
        "t_stdev[usec]", "99%", "percentile[usec]", "99.9%", "percentile[usec]",
    ]  # fmt: skip
    assert row.split()[:2] == ["2", "100"] and len(row.split()) == 9


def test_text_output_of_bandwidth() -> None:
    done = perf("write_bw", "--embedded", "-n", "100", "--report_gbits", "-q", "2")
    assert done.returncode == 0, done.stderr
    assert " Host            : C" in done.stdout
    assert " Region          : 1048576[B]\n" in done.stdout
    assert done.stdout.count(" local address: QPN 0x") == 2
    *_, columns, row = done.stdout.splitlines()
    assert columns == (
        " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
    )
    size, count, _, average, rate = row.split()
    assert (size, count) == ("65536", "100")
    assert float(average) == pytest.approx(float(rate) * 1e6 * 65536 * 8 / 1e9, abs=0.011)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["write_speed", "--embedded"], "give one of write_lat, read_lat"),
        (["write_bw", "--embedded", "-s", "0"], "-s 0: give 1 to"),
        (["write_bw", "--embedded", "-n", "4"], "-n 4: give 5 to"),
        (["write_bw", "--embedded", "-q", "0"], "-q 0: give 1 to 255"),
        (["write_bw", "--embedded", "-t", "5000"], "-t 5000: give 1 to 4096"),
        (["write_bw", "--embedded", "-q", "255", "-t", "129"], "keeps 65536 for a host"),
        (["write_bw", "--embedded", "-D", "-1"], "-D -1.0: give 0.001 to 86400"),
        (["write_bw", "--embedded", "--region", "0"], "--region 0: give 1 to 1073741824"),
        (["write_bw", "--embedded", "--timeout", "0"], "--timeout 0.0: give 0.1 to"),
        (["write_bw", "--embedded", "--out_json_file", "/none/x"], "/none/x cannot be written"),
        (["write_lat", "--embedded", "-b"], "-D, -b and -q need a bandwidth test"),
        (["write_bw", "--embedded", "--compare", "--level", "none"], "omit --level none"),
        (["write_bw", "--embedded", "--compare", "--compare-python"], "exclude each other"),
        (["write_bw", "--embedded", "--worker", "x"], "omit --identity, --peer and --worker"),
        (["write_bw", "--embedded", "-d", "one"], "give two devices, A,B"),
        (["write_bw", "-d", "one", "--worker", "x"], "give one of them"),
        (["write_bw", "-x", "1"], "give -d DEVICE"),
        (["write_bw"], "give --identity PREFIX"),
    ],
)
def test_error_tells_permitted_values(words: list[str], text: str) -> None:
    done = perf(*words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert text in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("flag", "text"), [("-R", "mutual TLS"), ("--post_list=8", "Python posts batches")]
)
def test_flags_that_only_perftest_has(flag: str, text: str) -> None:
    done = perf("write_bw", "--embedded", flag)
    assert done.returncode == 2
    assert text in " ".join(done.stderr.split())
