"""`srdma bench targets` on this machine, for a moment: refusals, two rows, and their page."""

from __future__ import annotations

import json
import os

import pytest
from typer.testing import CliRunner

from srdma import cli
from srdma.bench import targets_measure as how
from srdma.bench.waiting import PaceError


def run(*words: str, **env: str):
    return CliRunner().invoke(cli.build(), ["bench", "targets", *words], env=env)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--only", "P13"], "--only P13: there are P1, P2"),
        (["--smoke"], "build it by `make bench`"),
    ],
)
def test_says_what_would_be_right(tmp_path, words, why):
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
    assert all(line["median"] > 0 and line["rounds"] == 1 for line in lines)
    assert page.read_text() == (tmp_path / "out" / "RESULTS.md").read_text()
    assert "| P3 |" in page.read_text() and "not measured: not asked for" in page.read_text()
    again = run(*words)
    assert again.exit_code == 0 and "seal, 2 KiB" in again.stdout
    assert [line["when"] for line in lines] == [
        json.loads(line)["when"] for line in run(*words, "--json").stdout.splitlines()
    ]


def test_a_page_that_cannot_be_written(tmp_path):
    words = ["--smoke", "--only", "P1", "--out", str(tmp_path / "out"), "--results"]
    done = run(*words, os.fspath(tmp_path / "none" / "page.md"))
    assert done.exit_code == 3 and "there is no folder" in " ".join(done.output.split())
    done = run(*words, os.fspath(tmp_path))
    assert done.exit_code == 3 and "cannot be written" in " ".join(done.output.split())


def test_a_machine_too_busy_for_a_pace_has_no_value(monkeypatch):
    def refuse(stand, link, rate, seconds):
        raise PaceError("1000 per second were asked for")

    monkeypatch.setattr(how, "wait", refuse)
    with pytest.raises(how.NotMeasuredError, match="1000 per second were asked for"):
        how.waiting(how.SMOKE)
