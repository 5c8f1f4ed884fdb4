"""A short run of `srdma bench targets` on this machine: refusals, two rows, and their page."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from srdma.cli import app as cli
from srdma.errors import DeviceError
from srdma_bench.targets import measure as how
from srdma_bench.waiting import PaceError
from tests.e2e.conftest import WAIT


def run(*words: str, **env: str):
    return CliRunner().invoke(cli.build(), ["bench", "targets", *words], env=env)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--only", "P13"], "--only P13 is unknown: give one of P1, P2"),
        (["--smoke"], "build it with `make bench`"),
    ],
)
def test_error_tells_what_to_do(tmp_path, words, why):
    done = run(*words, "--out", str(tmp_path / "out"), BUILD=str(tmp_path))
    assert done.exit_code == 3, done.output
    assert why in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_two_rows_and_their_page(tmp_path):
    page = tmp_path / "page.md"
    words = ["--smoke", "--only", "P1", "--only", "P8", "--out", str(tmp_path / "out")]
    done = run(*words, "--results", str(page), "--json")
    assert done.exit_code == 0, done.output
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["row"] for line in lines] == ["P1"] * 4 + ["P8"] * 6
    assert all(math.isfinite(line["median"]) and line["rounds"] == 1 for line in lines)
    assert all(line["median"] > 0 for line in lines if line["bound"].endswith(" x"))
    assert page.read_text() == (tmp_path / "out" / "RESULTS.md").read_text()
    assert (
        "| P3 |" in page.read_text() and "not measured: not selected by --only" in page.read_text()
    )
    again = run(*words)
    assert again.exit_code == 0 and "seal, 2 KiB" in again.stdout
    assert [line["when"] for line in lines] == [
        json.loads(line)["when"] for line in run(*words, "--json").stdout.splitlines()
    ]


def test_unwritable_page(tmp_path):
    words = ["--smoke", "--only", "P1", "--out", str(tmp_path / "out"), "--results"]
    done = run(*words, os.fspath(tmp_path / "none" / "page.md"))
    assert done.exit_code == 3 and "does not exist" in " ".join(done.output.split())
    done = run(*words, os.fspath(tmp_path))
    assert done.exit_code == 3 and "cannot be written" in " ".join(done.output.split())


def test_pace_that_is_not_reached_gives_no_value(monkeypatch):
    def refuse(stand, link, rate, seconds):
        raise PaceError("1000 per second were asked for")

    monkeypatch.setattr(how, "wait", refuse)
    with pytest.raises(how.NotMeasuredError, match="1000 per second were asked for"):
        how.waiting(how.SMOKE)


@pytest.fixture
def vm(tmp_path, monkeypatch):
    """Replaces the virtual machine with these lines of Python."""
    monkeypatch.setattr(how, "VM", tmp_path / "vm.py")
    return (tmp_path / "vm.py").write_text


VALUES = 'values of the rows: {"median, 32 B": [1.5]}'


def test_virtual_machine_returns_values(vm):
    vm(f"print('first', {VALUES!r}, 'last', sep=chr(10))")
    assert how.rxe(how.SMOKE).values == {"median, 32 B": [1.5]}


@pytest.mark.parametrize(
    ("lines", "error", "why"),
    [
        ("print('SKIPPED [1] a/b.py:7: no ib_write_bw')", how.NotMeasuredError, "^no ib_write_bw$"),
        (f"print({VALUES!r}); print('E   x == 1'); exit(1)", DeviceError, "with 1: x == 1$"),
        (
            "import sys; sys.exit('vm: no program qemu')",
            DeviceError,
            "with 1: vm: no program qemu$",
        ),
        ("print('1 passed')", DeviceError, "with 0: 1 passed$"),
    ],
)
def test_virtual_machine_returns_no_values(vm, lines, error, why):
    vm(lines)
    with pytest.raises(error, match=why):
        how.rxe(how.SMOKE)


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_virtual_machine_ends_with_its_parent(vm, tmp_path, sign):
    up, gone = tmp_path / "up", tmp_path / "gone"
    vm(f"""
import pathlib, signal, sys, time
def end(*_):
    pathlib.Path({str(gone)!r}).touch()
    sys.exit(1)
signal.signal(signal.SIGTERM, end)
pathlib.Path({str(up)!r}).touch()
time.sleep({WAIT})
""")
    words = "import pathlib, sys; from srdma_bench.targets import measure as how; "
    words += "how.VM = pathlib.Path(sys.argv[1]); how.rxe(how.SMOKE)"
    command = [sys.executable, "-c", words, str(how.VM)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
        wait_for(up)
        child.send_signal(sign)
    wait_for(gone)


def wait_for(path):
    deadline = time.monotonic() + WAIT
    while not path.exists():
        assert time.monotonic() < deadline, f"no {path}"
        time.sleep(0.01)
