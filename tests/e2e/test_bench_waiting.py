"""`srdma bench waiting`: what it says of workers that wait was measured on real ones."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from srdma import cli


def test_rows_of_no_load_and_of_a_pace() -> None:
    words = ["bench", "waiting", "--rate", "200", "--rounds", "1", "-D", "0.5", "--json"]
    done = CliRunner().invoke(cli.build(), words)
    assert done.exit_code == 0, done.output
    idle, paced = (json.loads(line) for line in done.stdout.splitlines())
    assert (idle["rate"]["median"], idle["median"]["median"]) == (0, 0)
    assert paced["rate"]["median"] == 200 and paced["rate"]["rounds"] == 1
    assert 0 < paced["median"]["median"] <= paced["p99"]["median"]
    assert paced["worker_a"]["median"] > 0 < paced["worker_b"]["median"]


def test_rows_for_people() -> None:
    words = ["bench", "waiting", "--rate", "100", "--rounds", "1", "-D", "0.2"]
    done = CliRunner().invoke(cli.build(), words)
    assert done.exit_code == 0, done.output
    lines = done.stdout.replace("\n", " ")
    assert "0/s: worker_a " in lines and "100/s: worker_a " in lines
