"""The command lines of `build/bench/ladder`, `primitives` and `many`."""

from __future__ import annotations

import json
import subprocess

import pytest

from srdma_bench.primitives import program

LIMIT = 120  # seconds until a program counts as hung


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
        (["--rung", "nonsense"], "--rung nonsense: give the beginning of a rung's name"),
        (["--rung", "raw"] * 17, "--rung raw: give at most 16 of them"),
        (["--payload", "3"], "--payload 3: give 4 to 4096 bytes"),
        (["--payload", "32x"], "--payload 32x: give 4 to 4096 bytes"),
        (["--rounds", ""], "--rounds : give 1 to 101"),
        (["--suite", "aes-128-gmac"], "--suite aes-128-gmac: give an AEAD"),
        (["--end", "a,1.2.3.4"], "--end a,1.2.3.4: give NETNS,IPV4,IPV6, twice"),
        (["--end", "a,b,c,d"], "--end a,b,c,d: give NETNS,IPV4,IPV6, twice"),
        (["--end", "a,b,c"] * 3, "--end a,b,c: give NETNS,IPV4,IPV6, twice"),
    ],
)
def test_ladder_reports_permitted_values(words, why):
    done = run("ladder", *words)
    assert (done.returncode, done.stderr) == (2, f"ladder: {why}\n")


def test_ladder_without_a_counter_of_instructions_fails(tmp_path):
    done = run("ladder", "--rung", "memcpy", "--instructions", str(tmp_path / "none"))
    assert done.returncode == 1
    assert done.stderr == f"ladder: {tmp_path}/none: No such file or directory\n"


def test_ladder_reads_the_counter_of_instructions(tmp_path):
    """The counter of an emulator that does not count: nothing takes an instruction."""
    counter = tmp_path / "counter"
    counter.write_bytes(bytes(8))
    words = ["--rung", "memcpy", "--instructions", str(counter), "--rounds", "1", "--json"]
    (rung,) = json.loads(run("ladder", *words).stdout)["rungs"]
    assert (rung["name"], rung["instructions"], rung["high"]) == ("memcpy", 0, 0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["depth:0"], "0: give a depth of 1 to 40"),
        (["depth:"], ": give a depth of 1 to 40"),
        (["aes-128-cmac:65537"], "65537: give 1 to 65536 bytes"),
        (["aes-128-cmac"], "aes-128-cmac: give SUITE:BYTES or depth:N"),
        (["aes-128-gcm:64"], "aes-128-gcm: give a suite that only authenticates"),
        (["--ms", "1.5", "depth:3"], "1.5: give 1 to 60000"),
    ],
)
def test_primitives_reports_permitted_values(words, why):
    done = run("primitives", *words)
    assert (done.returncode, done.stderr) == (2, f"primitives: {why}\n")


@pytest.mark.parametrize("flag", ["--qps", "--burst", "--key-cache", "--rounds", "--messages"])
@pytest.mark.parametrize("text", ["", "0", "1x", "1000000000"])
def test_many_reports_permitted_values(flag, text):
    done = run("many", flag, text)
    assert done.returncode == 2
    assert done.stderr.startswith(f"many: {text}: give 1 to ")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ladder", ["raw"]),
        ("ladder", ["--nonsense"]),
        ("ladder", ["--end", "a,127.0.0.1,::1"]),
        ("many", ["100"]),
        ("many", ["--mode", "mem"]),
        ("many", ["--qps", "2"] * 8),
        ("primitives", []),
    ],
)
def test_usage_of_programs(name, words):
    done = run(name, *words)
    assert done.returncode == 2 and f"Usage: {name} " in done.stderr


@pytest.mark.parametrize("burst", ["1", "3", "64"])
def test_fewer_qps_than_operations_in_flight(burst):
    words = ["--rounds", "1", "--messages", "200", "--burst", burst, "--qps", "2", "--qps", "30"]
    done = run("many", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert [crowd["qps"] for crowd in json.loads(done.stdout)] == [1, 2, 30]


@pytest.mark.parametrize("rung", ["datagrams", "udp none"])
def test_ladder_reports_a_missing_namespace(rung):
    ends = ["--end", "srdma-absent,127.0.0.1,::1"] * 2
    done = run("ladder", "--rounds", "1", "--rung", rung, *ends)
    assert done.returncode == 1
    assert done.stderr == "ladder: /run/netns/srdma-absent: No such file or directory\n"


def test_rungs_selected_by_name_prefix():
    done = run("ladder", "--json", "--rounds", "1", "--rung", "memcpy", "--rung", "forged")
    names = [rung["name"] for rung in json.loads(done.stdout)["rungs"]]
    assert names[0] == "memcpy" and len(names) > 2
    assert all(name.startswith("forged") for name in names[1:])
