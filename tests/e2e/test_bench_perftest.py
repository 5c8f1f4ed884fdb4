"""`srdma bench perftest` on real workers and agents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from srdma.cli import app as cli
from srdma.errors import DeviceError, IntegrityError, LocalError
from srdma_bench import perftest
from srdma_bench.perftest import (
    APART,
    BANDWIDTH,
    BESIDE,
    DEFAULT,
    LATENCY,
    MAPPED,
    PERF,
    WAYS,
    WORKS,
    Hosts,
)
from srdma_bench.targets import measure as how
from srdma_bench.targets.rows import ROWS

COUNTERS = (
    "packets_sealed",
    "packets_verified",
    "packets_unprotected_sent",
    "packets_unprotected_received",
)

needed = pytest.mark.skipif(
    bool(perftest.missing()) or not Path("build/run/libibverbs.so.1").exists(),
    reason="ib_write_bw of the package perftest, and build/run (make run)",
)


@pytest.fixture(scope="module")
def hosts() -> Iterator[Hosts]:
    with Hosts(BESIDE) as found:
        yield found


def run(*words: str, **env: str):
    return CliRunner().invoke(cli.build(), ["bench", "perftest", *words], env=env)


@needed
@pytest.mark.slow
def test_each_way_has_a_value_and_a_ratio() -> None:
    done = run("-n", "5", "--rounds", "1", "--place", "apart", "--json")
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["name"], row["way"]) for row in rows] == [(n, w) for n in WORKS for w in WAYS]
    for row in rows:
        assert row["value"]["median"] > 0 < row["ratio"]["median"]
        assert row["way"] != PERF or row["ratio"]["median"] == 1
        assert row["value"]["rounds"] == row["ratio"]["rounds"] == 1


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results in place of runs: those of `srdma run` are twice and four times those of perf."""
    values = {PERF: [1.0, 2.0], DEFAULT: [2.0, 4.0], MAPPED: [4.0, 8.0]}
    monkeypatch.setattr(Hosts, "compare", lambda *_: dict.fromkeys(WORKS, values))


@needed
@pytest.mark.usefixtures("measured")
def test_lines_of_the_output() -> None:
    done = run()
    assert done.exit_code == 0, done.output
    lines = " ".join(done.stdout.split())
    assert "bandwidth, srdma perf: 1.5 [1.25, 1.75] MiB/s, x1 [1, 1]" in lines
    assert "latency, srdma run, map_memory: 6 [5, 7] us, x4 [4, 4]" in lines


@needed
@pytest.mark.usefixtures("measured")
def test_row_p16_has_the_ratios_of_each_round() -> None:
    found = how.unmodified(how.SMOKE).values
    row = next(row for row in ROWS if row.name == "P16")
    assert {*found} == {goal.name for goal in row.goals}
    assert found["bandwidth, apart"] == [2, 2]
    assert found["latency, beside, map_memory"] == [4, 4]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["-n", "4"], "-n 4: give 5 to 1000000"),
        (["-n", "1000001"], "-n 1000001: give 5 to 1000000"),
        (["--rounds", "0"], "--rounds 0: give 1 to 1000"),
        (["--place", "here"], "--place here: give one of beside, apart"),
    ],
)
def test_error_tells_permitted_values(words: list[str], text: str) -> None:
    done = run(*words)
    assert done.exit_code == 3 and text in " ".join(done.output.split())


def test_missing_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalError, match=r"^ib_write_bw is not installed: install the package pe"):
        Hosts(APART)
    with pytest.raises(how.NotMeasuredError, match=r"^ib_write_bw is not installed"):
        how.unmodified(how.SMOKE)


@needed
def test_missing_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRDMA_RUN_FOLDER", str(tmp_path))
    with pytest.raises(LocalError, match=r"has no librdmacm"):
        Hosts(APART)
    with pytest.raises(how.NotMeasuredError, match=r"has no librdmacm"):
        how.unmodified(how.SMOKE)


@pytest.mark.parametrize(
    ("work", "line", "value"),
    [
        (
            BANDWIDTH,
            " 65536      20000            1258.93            1180.08\t\t   0.018881",
            1180.08,
        ),
        (
            LATENCY,
            " 32      1000          29.58          16033.77      1999.22  \t 2148.23 ",
            1999.22,
        ),
    ],
)
def test_result_in_the_output(work: perftest.Work, line: str, value: float) -> None:
    head = " #bytes     #iterations\n"
    assert work.result(f"{head}{line}\n-----\n") == value
    with pytest.raises(DeviceError, match=r"printed no result: #bytes     #iterations$"):
        work.result(head)
    with pytest.raises(DeviceError, match=r"printed no result: no output$"):
        work.result("")


@pytest.mark.parametrize(
    ("place", "cores", "want"),
    [
        (BESIDE, "0", "0000"),
        (APART, "0", "0000"),
        (BESIDE, "01", "0011"),
        (APART, "01", "0101"),
        (BESIDE, "012", "0011"),
        (APART, "012", "0101"),
        (APART, "0123", "0213"),
    ],
)
def test_places(place: str, cores: str, want: str) -> None:
    """The cores of worker a, program a, worker b, program b."""
    found = perftest.cores_of(place, [int(core) for core in cores])
    assert [{*of} for of in (found.worker_a, found.host_a, found.worker_b, found.host_b)] == [
        {int(core)} for core in want
    ]


@needed
def test_runs_without_protection_are_not_reported(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs say nothing of the messages that they sent: the workers do."""
    monkeypatch.setattr(Hosts, "_stats", lambda self: [dict.fromkeys(COUNTERS, 0)] * 2)
    with pytest.raises(IntegrityError, match=r"5 messages, but 0 were counted as packets_sealed"):
        hosts.measure(DEFAULT, LATENCY, 5)


@needed
def test_failed_programs_are_errors(hosts: Hosts) -> None:
    with pytest.raises(DeviceError, match=r"^a program ended with 3: srdma: ib_none: No such file"):
        hosts.measure(MAPPED, replace(LATENCY, test="none"), 5)
    with pytest.raises(DeviceError, match=r"^a program ended with 3: .*-s 0: give 1 to "):
        hosts.measure(PERF, replace(LATENCY, size=0), 5)
    with pytest.raises(DeviceError, match=r"^the server ended without a client: no output$"):
        hosts._run(lambda name, port: ["true"], LATENCY, 5)


@needed
def test_programs_that_do_not_end(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(perftest, "LIMIT", 0.2)
    with pytest.raises(DeviceError, match=r"^the server did not listen in 0\.2 s$"):
        hosts._run(lambda name, port: sleeper, LATENCY, 5)
    monkeypatch.setattr(perftest, "_wait_listening", lambda process, port: None)
    with pytest.raises(DeviceError, match=r"^a run did not end in 0\.2 s$"):
        hosts._run(lambda name, port: sleeper, LATENCY, 5)
    failing = [sys.executable, "-c", "print('x'); exit(3)"]
    monkeypatch.setattr(perftest, "LIMIT", 60.0)
    with pytest.raises(DeviceError, match=r"^a program ended with 3: x$"):
        hosts._run(lambda name, port: failing, LATENCY, 5)
