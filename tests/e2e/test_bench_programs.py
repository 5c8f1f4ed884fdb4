"""The command lines of `build/bench/ladder`, `primitives` and `many`."""

from __future__ import annotations

import json
import subprocess

import pytest

from srdma_bench.primitives import program

LIMIT = 120  # of what would hang


def run(name: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program(name), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--rung", "nonsense"], "--rung nonsense: what the name of a rung begins with"),
        (["--rung", "raw"] * 17, "--rung raw: 16 of them at most"),
        (["--payload", "3"], "--payload 3: 4 to 4096 bytes"),
        (["--payload", "32x"], "--payload 32x: 4 to 4096 bytes"),
        (["--rounds", ""], "--rounds : 1 to 101"),
        (["--suite", "aes-128-gmac"], "--suite aes-128-gmac: an AEAD"),
    ],
)
def test_the_ladder_says_what_would_be_right(words, why):
    done = run("ladder", *words)
    assert (done.returncode, done.stderr) == (2, f"ladder: {why} would be right\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["depth:0"], "0: a depth of 1 to 40"),
        (["depth:"], ": a depth of 1 to 40"),
        (["aes-128-cmac:65537"], "65537: 1 to 65536 bytes"),
        (["aes-128-cmac"], "aes-128-cmac: SUITE:BYTES or depth:N"),
        (["aes-128-gcm:64"], "aes-128-gcm: a suite that only authenticates"),
        (["--ms", "1.5", "depth:3"], "1.5: 1 to 60000"),
    ],
)
def test_primitives_say_what_would_be_right(words, why):
    done = run("primitives", *words)
    assert (done.returncode, done.stderr) == (2, f"primitives: {why} would be right\n")


@pytest.mark.parametrize("flag", ["--qps", "--burst", "--key-cache", "--rounds", "--messages"])
@pytest.mark.parametrize("text", ["", "0", "1x", "1000000000"])
def test_many_says_what_would_be_right(flag, text):
    done = run("many", flag, text)
    assert done.returncode == 2
    assert done.stderr.startswith(f"many: {text}: 1 to ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ladder", ["raw"]),
        ("ladder", ["--nonsense"]),
        ("many", ["100"]),
        ("many", ["--mode", "mem"]),
        ("many", ["--qps", "2"] * 8),
        ("primitives", []),
    ],
)
def test_programs_say_how_they_are_called(name, words):
    done = run(name, *words)
    assert done.returncode == 2 and f"Usage: {name} " in done.stderr


@pytest.mark.parametrize("burst", ["1", "3", "64"])
def test_fewer_qps_than_are_under_way(burst):
    words = ["--rounds", "1", "--messages", "200", "--burst", burst, "--qps", "2", "--qps", "30"]
    done = run("many", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert [crowd["qps"] for crowd in json.loads(done.stdout)] == [1, 2, 30]


def test_rungs_by_the_beginning_of_their_names():
    done = run("ladder", "--json", "--rounds", "1", "--rung", "memcpy", "--rung", "forged")
    names = [rung["name"] for rung in json.loads(done.stdout)["rungs"]]
    assert names[0] == "memcpy" and len(names) > 2
    assert all(name.startswith("forged") for name in names[1:])
