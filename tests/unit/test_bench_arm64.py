"""The table of `make bench-arm64`."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from srdma_bench import arm64

RUNGS = {"nic none": 4000.4, "nic aead": 7000, "open pd": 9000, "mem random": 30000.6}
FAKE = """\
#!/bin/sh
printf '%s\\n' "$@" >>"$(dirname "$0")/words"
echo '{text}'
"""


def test_page_has_every_rung_and_the_cheapest_provider_of_a_goal() -> None:
    columns = {
        (provider, payload): {name: value * factor for name, value in RUNGS.items()}
        for provider, factor in (("openssl", 2), ("nettle", 1))
        for payload in arm64.PAYLOADS
    }
    text = arm64.page(columns)
    assert "| rung | openssl, 32 B | openssl, 2048 B | nettle, 32 B | nettle, 2048 B |" in text
    assert "| nic none | 8,001 | 8,001 | 4,000 | 4,000 |" in text
    assert "| nic none | 32 B | 3,300 | nettle | 4,000 |" in text
    assert "| mem random | 32 B | 34,000 | nettle | 30,001 |" in text


@pytest.fixture
def emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A qemu-aarch64 that writes its arguments to the file `words`."""
    rungs = [{"name": name, "instructions": value} for name, value in RUNGS.items()]
    program = tmp_path / "qemu-aarch64"
    program.write_text(FAKE.replace("{text}", json.dumps({"rungs": rungs})))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return tmp_path / "words"


def test_each_provider_and_payload_is_measured(
    emulator: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "page.md"
    arm64.main([str(tmp_path / "ladder"), str(tmp_path / "c.so"), "--results", str(results)])
    words = emulator.read_text().splitlines()
    assert words.count("--provider") == len(arm64.PROVIDERS) * len(arm64.PAYLOADS) * 2
    assert {words[i + 1] for i, word in enumerate(words) if word == "--payload"} == {"32", "2048"}
    assert results.read_text() == capsys.readouterr().out
    assert "| nic aead | 7,000 |" in results.read_text()


def test_one_rung_is_counted_alone(emulator: Path, tmp_path: Path) -> None:
    fake = emulator.with_name("qemu-aarch64")
    fake.write_text(FAKE.replace("{text}", '{"rungs": [{"name": "suite", "instructions": 5}]}'))
    results = tmp_path / "page.md"
    arguments = [str(tmp_path / "ladder"), str(tmp_path / "c.so"), "--results", str(results)]
    arm64.main([*arguments, "--rung", "suite"])
    words = emulator.read_text().splitlines()
    assert {words[i + 1] for i, word in enumerate(words) if word == "--rung"} == {"suite"}
    assert "| suite | 5 | 5 | 5 | 5 |" in results.read_text()
    assert "P13" in results.read_text() and "| nic none" not in results.read_text()


@pytest.mark.parametrize("rungs", ['{"name": "suite", "instructions": 0}', ""])
def test_a_plugin_that_does_not_count_is_an_error(emulator: Path, rungs: str) -> None:
    emulator.with_name("qemu-aarch64").write_text(FAKE.replace("{text}", f'{{"rungs": [{rungs}]}}'))
    with pytest.raises(ValueError, match=r"c\.so has counted no instructions of a rung"):
        arm64.main([str(emulator.with_name("ladder")), str(emulator.with_name("c.so"))])


def test_rungs_of_a_run_fit_into_its_options() -> None:
    assert max(map(len, arm64.RUNGS)) <= 16
