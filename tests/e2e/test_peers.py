"""Comparison of srdma with TLS, redis and memcached. The tests of the latter
two run where they are installed."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from srdma.cli import app as cli
from srdma.demo.stage import make_identities
from srdma.errors import DeviceError
from srdma_bench.peers.compare import ABOUT, BASE, Peers, Row, compared
from srdma_bench.peers.servers import Memcached, Redis, tls_echo
from srdma_bench.primitives import program
from tests.e2e.conftest import WAIT

ANYWHERE = ("block", "-1", "-1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_identities(tmp_path_factory.mktemp("peers") / "identities")


@pytest.mark.parametrize("kind", ["echo", "stream"])
@pytest.mark.parametrize("size", [32, 16384])
@pytest.mark.parametrize("wait", ["block", "spin"])
def test_tls(folder: Path, kind: str, size: int, wait: str) -> None:
    found = tls_echo(folder, kind, size, (wait, "-1", "-1"), 0.05)
    assert found.rate > 0 and found.cpu > 0
    assert (found.p50_us > 0) == (kind == "echo")


def test_tls_uses_these_certificates(folder: Path, tmp_path: Path) -> None:
    command = [program("tls_echo"), folder, "echo", "32", "0.05", "block", "-1", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["protocol"] == "TLSv1.3 TLS_AES_128_GCM_SHA256"
    strangers = make_identities(tmp_path / "others")
    (strangers / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
    with pytest.raises(DeviceError, match="handshake failed"):
        tls_echo(strangers, "echo", 32, ANYWHERE, 0.05)


@pytest.mark.parametrize(
    "words",
    [
        ["tls_echo"],
        ["tls_echo", "x", "sing", "32", "1", "block", "-1", "-1"],
        ["tls_echo", "x", "echo", "16385", "1", "block", "-1", "-1"],
        ["tls_echo", "x", "echo", "32", "0", "block", "-1", "-1"],
        ["tls_echo", "x", "echo", "32", "1", "wait", "-1", "-1"],
        ["tls_load"],
        ["tls_echo", "x", "echo", "32", "1s", "block", "-1", "-1"],
        ["tls_echo", "x", "echo", "32", "nan", "block", "-1", "-1"],
        ["tls_echo", "x", "echo", "32", "1", "block", "-2", "-1"],
        ["tls_echo", "x", "echo", "32", "1", "block", "-1", "any"],
        ["tls_load", "x", "1", "2", "mongo", "1", "1", "1", "1", "1"],
        ["tls_load", "x", "65536", "2", "redis", "1", "1", "1", "1", "1"],
        ["tls_load", "x", "1", "0", "redis", "1", "1", "1", "1", "1"],
        ["tls_load", "x", "1", "2", "redis", "257", "1", "1", "1", "1"],
        ["tls_load", "x", "1", "2", "redis", "1", "257", "1", "1", "1"],
        ["tls_load", "x", "1", "2", "redis", "1", "1", "0", "1", "1"],
        ["tls_load", "x", "1", "2", "redis", "1", "1", "1", "101", "1"],
        ["tls_load", "x", "1", "2", "redis", "1", "1", "1", "1", "3601"],
    ],
)
def test_usage_of_programs(words: list[str]) -> None:
    done = subprocess.run([program(words[0]), *words[1:]], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(f"Usage: {words[0]} FOLDER")


@pytest.mark.parametrize("kind", [Redis, Memcached])
def test_stores(folder: Path, kind: type[Redis | Memcached]) -> None:
    if reason := kind.missing():
        pytest.skip(reason)
    with closing(kind(folder, 500)) as store:
        for depth in (1, 8):
            found = store.load(3, depth, reads=50, seconds=0.05)
            assert found.rate > 0 and 0 < found.p50_us <= found.p99_us and found.cpu > 0
        if isinstance(store, Redis):
            assert store.benchmark(2, 4, seconds=0.05, rate=1000).rate > 0
        nobody = str(2**22)
        words = [folder, str(store.port), nobody, store.name, "1", "1", "1", "100", "0"]
        done = subprocess.run([program("tls_load"), *words], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (1, "tls: the CPU clock of a process failed\n")


def test_server_start_error_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Redis, "_command", lambda self, own: ["sh", "-c", "echo no more; exit 3"])
    with pytest.raises(DeviceError, match="redis did not start: no more"):
        Redis(folder, 1)


def test_missing_program_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memcached, "program", "memcached-of-nobody")
    assert Memcached.missing() == "memcached-of-nobody is not installed (.ci/setup bench)"


def test_ratios_are_computed_per_round() -> None:
    rows = [Row("echo", BASE, n, 100.0 * (n + 1), 10.0, 20.0, 5.0) for n in range(3)]
    rows += [Row("echo", "TLS", n, 10.0 * (n + 1), 40.0, 50.0, 6.0) for n in range(3)]
    base, tls = compared(rows)
    assert (base.ahead.median, base.slower.median) == (1, 1)
    assert (tls.ahead.median, tls.ahead.low, tls.ahead.high) == (10, 10, 10)
    assert tls.slower.median == 4 and tls.rate.median == 20 and tls.cpu_ns.median == 6


def bench_peers(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "srdma", "bench", "peers", *words]
    wide = os.environ | {"COLUMNS": "120"}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=WAIT, check=False, env=wide
    )


STREAMS = {"stream, 2 KiB", "stream, 16 KiB"}
STORES = {"store, depth 1", "store, depth 8"}
QUICK = ["--only", "tls", "--quick", "--json"]


def test_command() -> None:
    done = bench_peers(*QUICK)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    rows = [row for row in rows if "work" in row]
    works = {row["work"] for row in rows}
    assert works == {"echo, 32 B"} | STREAMS
    for work in works:
        assert {BASE, "srdma, none"} <= {row["peer"] for row in rows if row["work"] == work}
    assert {row["peer"] for row in rows} <= set(ABOUT)
    assert any(row["peer"] == "TLS" for row in rows)


def test_works_without_a_peer_are_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with Peers(100, ["srdma"]) as there:
        assert {*there.works} == {"echo, 32 B"} | STREAMS | STORES
        (base, none) = there.compare("store, depth 8", 0.02, 1)
        assert (base.peer, none.peer) == (BASE, "srdma, none")
    monkeypatch.setattr(Redis, "program", "redis-of-nobody")
    with Peers(100, ["redis"]) as there:
        assert not there.works and "redis-of-nobody" in there.skipped["redis"]
    done = CliRunner().invoke(cli.build(), ["bench", "peers", "--only", "redis", "--quick"])
    assert done.exit_code == 3 and "no peer can run here: redis: redis-of" in said(done)


def said(done: Any) -> str:
    return " ".join(done.output.split())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: run .ci/setup test")
    return tmp_path / "out"


def test_rows_are_kept_per_work(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def compare(there: Peers, work: str, *words: Any, real: Any = Peers.compare) -> Any:
        measured.append(work)
        if len(measured) == 2:
            raise KeyboardInterrupt
        return real(there, work, *words)

    def run(*words: str) -> Any:
        return CliRunner().invoke(cli.build(), ["bench", "peers", *words, "--out", str(out)])

    monkeypatch.setattr(Peers, "compare", compare)
    assert run(*QUICK).exit_code != 0
    first = (out / "peers.csv").read_text()
    assert {row["work"] for row in csv.DictReader(first.splitlines())} == {measured[0]}
    done = run(*QUICK)
    assert done.exit_code == 0, done.output
    whole = (out / "peers.csv").read_text()
    assert whole.startswith(first) and measured[2] == measured[1] and len(measured) == 4
    assert {row["work"] for row in csv.DictReader(whole.splitlines())} == {*measured}
    assert (out / "peers.svg").stat().st_size > 1000
    assert run(*QUICK).exit_code == 0 and len(measured) == 4
    (out / "peers.csv").write_text("\n".join(whole.splitlines()[:-1]) + "\n")
    done = run(*QUICK)
    assert done.exit_code == 3 and "has other rows of" in said(done)


def test_unwritable_folder_is_found_before_measuring(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out.write_text("a file")
    monkeypatch.setattr(Peers, "__init__", lambda *words: pytest.fail("it must not be opened"))
    done = CliRunner().invoke(cli.build(), ["bench", "peers", "--quick", "--out", str(out)])
    assert done.exit_code == 3 and "cannot be written" in said(done)


def test_text_output() -> None:
    done = bench_peers("--only", "tls", "--quick")
    assert done.returncode == 0, done.stderr
    assert "x1.00 [1.00, 1.00]" in done.stdout
    assert "Blocks in the kernel." in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--only", "mongo"], "'mongo': give one of srdma, tls, redis, memcached"),
        (["--seconds", "0"], "--seconds 0.0: give more than 0, and at most 3600"),
        (["--seconds", "3600.1"], "--seconds 3600.1: give more than 0, and at most 3600"),
        (["--rounds", "0"], "--rounds 0: give at least 1"),
    ],
)
def test_command_error_tells_permitted_values(words: list[str], text: str) -> None:
    done = bench_peers(*words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert text in " ".join(done.stderr.split())
