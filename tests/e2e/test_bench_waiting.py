"""`srdma bench waiting` on real workers."""

from __future__ import annotations

import json
import time

import pytest
from typer.testing import CliRunner

from srdma.cli import app as cli
from srdma.errors import IntegrityError
from srdma_bench import gid, waiting
from srdma_bench.stand import Shape, Stand
from srdma_bench.waiting import PaceError


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepts any rate, because the machine may be busy."""
    monkeypatch.setattr(waiting, "HICCUP", 600.0)


@pytest.mark.usefixtures("patient")
def test_rows_with_and_without_load() -> None:
    words = ["bench", "waiting", "--rate", "200", "--rounds", "1", "-D", "0.5", "--json"]
    done = CliRunner().invoke(cli.build(), words)
    assert done.exit_code == 0, done.output
    idle, paced = (json.loads(line) for line in done.stdout.splitlines())
    assert (idle["rate"]["median"], idle["median"]["median"]) == (0, 0)
    assert paced["rate"]["median"] == 200 and paced["rate"]["rounds"] == 1
    assert 0 < paced["reached"]["median"] <= 200
    assert 0 < paced["median"]["median"] <= paced["p99"]["median"]
    assert paced["worker_a"]["median"] > 0 < paced["worker_b"]["median"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--rate", "-1"], "--rate -1: give more than 0, and at most 1000000"),
        (["--rounds", "0"], "--rounds 0: give more than 0"),
        (["-D", "0"], "-D 0.0: give more than 0"),
        (["--rate", "2000", "-D", "60000"], "--rate 2000 -D 60000: give at most 100000000 WRITEs"),
        (["--device", "mlx5_0,mlx5_1"], "mlx5_1: bench waiting needs legs on shared memory: g"),
    ],
)
def test_error_tells_permitted_values(
    words: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gid, "first_address", {"mlx5_0": "10.0.0.1", "mlx5_1": "10.0.0.2"}.get)
    done = CliRunner().invoke(cli.build(), ["bench", "waiting", *words])
    assert done.exit_code == 3 and text in " ".join(done.output.split())


@pytest.mark.usefixtures("patient")
def test_table_output() -> None:
    words = ["bench", "waiting", "--rate", "100", "--rounds", "1", "-D", "0.2"]
    done = CliRunner().invoke(cli.build(), words)
    assert done.exit_code == 0, done.output
    lines = done.stdout.replace("\n", " ")
    assert "0/s: reached 0 " in lines and "100/s: reached " in lines


def test_unprotected_or_late_writes_are_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """WRITEs that were not protected and rates that were not reached are errors."""
    real = waiting._write

    def late(*words: object) -> None:
        time.sleep(1)
        real(*words)

    with Stand() as stand, stand.connect(Shape("aead", "aes-128-gcm")) as link:
        monkeypatch.setattr(waiting, "_write", lambda *words: None)
        with pytest.raises(
            IntegrityError, match="20 messages, but 0 were counted as packets_sealed"
        ):
            waiting.measure(stand, link, 100, 0.2)
        monkeypatch.setattr(waiting, "_write", late)
        with pytest.raises(PaceError, match=r"100 WRITEs per second were requested, .* reached"):
            waiting.measure(stand, link, 100, 0.2)


@pytest.mark.usefixtures("patient")
def test_short_measurement_has_at_least_one_write() -> None:
    with Stand() as stand, stand.connect(Shape("aead", "aes-128-gcm")) as link:
        found = waiting.measure(stand, link, 4, 0.1)
    assert 0 < found.reached <= 4 and found.median > 0
