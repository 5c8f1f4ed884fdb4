"""The claims of `srdma demo` hold, and it reports a claim that does not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from srdma.cli.demo import Show
from srdma.cli.output import console
from srdma.demo import run as module
from srdma.demo.run import Check, Demo, sample_text
from srdma.demo.stage import EmbeddedStage, HostProcess
from tests.e2e.leftovers import place

CLAIMS = 10


def run(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "srdma", "demo", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)


def test_text_output() -> None:
    with place() as here:
        done = run(env=here.env)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{CLAIMS} of {CLAIMS} checks passed" in done.stdout
        for word in ("host A", "NIC A", "NIC B", "host B", "spiffe://demo/host-b", "aes-128-gcm",
                     "WRITE", "READ", "SEND", "STH.request id", "ciphertext"):  # fmt: skip
            assert word in done.stdout, word
        assert "\x1b" not in done.stdout and done.stderr == ""


def test_json_output() -> None:
    with place() as here:
        done = run("--json", env=here.env)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
    checks = [event for event in result["events"] if event["event"] == "check"]
    assert result["held"] and len(checks) == CLAIMS and all(check["held"] for check in checks)
    pids = next(e for e in result["events"] if e["event"] == "processes")["pids"]
    assert len(set(pids.values())) == 4  # and host A, the caller
    sealed = next(e for e in result["events"] if e["event"] == "sealed")
    tag = next(field for field in sealed["fields"] if field["name"] == "tag")
    assert len(tag["data"]) == 32


def test_unknown_device() -> None:
    with place() as here:
        done = run("--device", "carrier-pigeon", env=here.env)
        assert done.returncode == 3
        assert "--device carrier-pigeon: give embedded or rxe" in done.stderr


def test_sample_text_has_the_marker_in_every_packet() -> None:
    text = sample_text(1 << 16)
    assert len(text) == 1 << 16
    assert all(module.MARKER in text[at : at + 4096] for at in range(0, len(text), 4096))


@pytest.mark.parametrize("liar", ["plaintext", "flip"])
def test_false_claim_is_reported(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulated faults are visible plaintext and a man in the middle that flips nothing."""
    host_b, stage = HostProcess(), EmbeddedStage()
    try:
        host_b.wait_until_up()
        if liar == "plaintext":
            monkeypatch.setattr(stage.secure, "raw", lambda: [b"frame: " + module.SECRET])
        else:
            monkeypatch.setattr(stage.secure, "flip", lambda **_: None)
        events = list(Demo(stage, host_b).run())
    finally:
        host_b.close()
        stage.close()
    failed = {e.claim for e in events if isinstance(e, Check) and not e.held}
    assert (
        failed
        == {
            "plaintext": {"no packet on the wire contained the plaintext marker"},
            "flip": {
                "NIC B refused the packet with one flipped bit",
                "NIC A retransmitted its data with a new packet number",
            },
        }[liar]
    )


def test_failed_check_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show(console())
    show.event(Check("the sky is blue", True))
    show.event(replace(Check("pigs fly", False), detail="0 of 3"))
    show.end(1, 2, 0.5)
    out = capsys.readouterr().out
    assert "passed the sky is blue" in out and "FAILED pigs fly (0 of 3)" in out
    assert "1 of 2 checks passed" in out


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["NIC A", "One packet"])
def test_interrupt_leaves_nothing(how: signal.Signals, after: str) -> None:
    """An interrupt at any moment leaves no process and no file."""
    with place() as here:
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "srdma", "demo"],
            env=here.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout
        while after not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(how)
        _, err = process.communicate(timeout=60)
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[how]
        assert "Traceback" not in err
