"""The command line: tables, exit codes, and reports of doctor about simulated machines."""

from __future__ import annotations

import ipaddress
import json
import resource
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from srdma import errors, identity
from srdma._engine import host_device
from srdma.cli import app as cli
from srdma.cli import doctor as cli_doctor
from srdma.cli.finding import Finding
from srdma.identity import CA_DAYS, parse_certificates


def run(*words: str, **env: str) -> Any:
    return CliRunner().invoke(cli.build(), list(words), env=env)


def test_help_lists_every_command() -> None:
    text = run("--help").output
    for name in cli.commands():
        assert f"  {name}" in text
    assert "Exit codes:" in text


def test_packages_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    text = run("--help").output
    assert all(f"  {name}" in text for name in ("perf", "bench", "attack"))
    assert "not installed" in text
    for words in (("perf", "write_bw", "--embedded"), ("bench", "paper", "--smoke"), ("perf",)):
        done = run(*words)
        assert done.exit_code == 3 and "pip install 'srdma[bench]'" in done.stderr
    done = run("attack", "--list")
    assert done.exit_code == 3 and "pip install --no-build-isolation -e ./attack" in done.stderr
    assert run("doctor").exit_code in (0, 1)


def test_an_installed_package_that_does_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("perf", "no_such_module:PERF", cli.ENTRY_POINTS)
    monkeypatch.setattr(cli, "entry_points", lambda **_: (point,))
    done = run("perf", "write_bw")
    assert done.exit_code == 3 and "no_such_module" in done.stderr


@pytest.mark.parametrize("words", [("fly",), ("doctor", "--jason"), ("ca", "init"), ("send",)])
def test_usage_errors(words: tuple[str, ...]) -> None:
    assert run(*words).exit_code == 2


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Timeout("x"), 7),
        (errors.IntegrityError("x"), 6),
        (errors.NoWorkerError("x"), 5),
        (errors.RefusedError(22, "x"), 5),
        (errors.RemoteError("x"), 4),
        (errors.BoundsError("x"), 3),
        (errors.Error("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_code_names_the_side_at_fault(error: BaseException, code: int, capfd: Any) -> None:
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        cli.guarded(command)()
    assert ended.value.exit_code == code
    assert capfd.readouterr().err.startswith("srdma: ")


def test_markup_in_an_error_is_text(capfd: Any) -> None:
    def command() -> None:
        raise errors.RemoteError("[bold]no[/] [link=x]")

    with pytest.raises(typer.Exit):
        cli.guarded(command)()
    assert capfd.readouterr().err == "srdma: [bold]no[/] [link=x]\n"


# ca ------------------------------------------------------------------------------


def test_ca(tmp_path: Path) -> None:
    folder, prefix = str(tmp_path / "ca"), str(tmp_path / "a")
    assert run("ca", "init", folder, "--name", "mine").exit_code == 0
    ca = parse_certificates((tmp_path / "ca/ca.pem").read_bytes(), "ca")[0]
    assert (ca.not_valid_after_utc - ca.not_valid_before_utc).days == CA_DAYS
    made = run("ca", "issue", folder, "--id", "spiffe://x/a", "--out", prefix, "--json")
    assert json.loads(made.output) == {
        "identity": "spiffe://x/a",
        "certificate": f"{prefix}.pem",
        "key": f"{prefix}.key",
    }
    again = run("ca", "issue", folder, "--id", "spiffe://x/a", "--out", prefix)
    assert again.exit_code == 3 and "nothing was written" in again.stderr
    forced = run("ca", "issue", folder, "--id", "spiffe://x/a", "--out", prefix, "--force")
    assert forced.exit_code == 0 and "PRIVATE" not in forced.output


def test_ca_address(tmp_path: Path) -> None:
    """Addresses are further names of the certificate."""
    run("ca", "init", str(tmp_path / "ca"))
    words = ["--id", "spiffe://x/a", "--address", "10.0.0.2", "--address", "fd00::2"]
    run("ca", "issue", str(tmp_path / "ca"), "--out", str(tmp_path / "a"), *words)
    [made] = parse_certificates((tmp_path / "a.pem").read_bytes(), "a")
    assert [str(each) for each in identity.addresses_of(made)] == ["10.0.0.2", "fd00::2"]
    assert identity.identity_of(made) == "spiffe://x/a"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--id", "host-a"], "is no identity"),
        (["--id", "spiffe://x/a", "--days", "0"], "validity of 0"),
        (["--id", "spiffe://x/a", "--algorithm", "rsa"], "p256 or ed25519"),
        (["--id", "spiffe://x/a", "--address", "host-a"], "--address: 'host-a' does not appear"),
    ],
)
def test_ca_refuses(words: list[str], text: str, tmp_path: Path) -> None:
    run("ca", "init", str(tmp_path / "ca"))
    done = run("ca", "issue", str(tmp_path / "ca"), "--out", str(tmp_path / "a"), *words)
    assert done.exit_code == 3 and text in done.stderr
    assert not (tmp_path / "a.key").exists()


# doctor ----------------------------------------------------------------------------


def test_doctor_on_this_machine() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "srdma", "doctor", "--json"], capture_output=True, text=True
    )
    findings = {f["name"]: f for f in json.loads(done.stdout)}
    missing = [f for f in findings.values() if f["state"] == "missing"]
    assert done.returncode == bool(missing), missing
    wanted = {"python", "suites", "openssl", "aes", "srdma-offload", "workers", "memfd",
              "process_vm", "memlock", "pyverbs", "rdma devices", "rxe"}  # fmt: skip
    assert wanted <= set(findings)
    assert all(f["remedy"] for f in findings.values() if f["state"] != "ok")


def test_doctor_text_output() -> None:
    text = run("doctor").output
    assert "srdma-offload" in text and "\x1b" not in text


def test_missing_worker_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRDMA_OFFLOAD", "/nonexistent")
    finding = cli_doctor.worker_program()
    assert finding.state == "missing" and "SRDMA_OFFLOAD=/nonexistent" in finding.detail
    assert run("doctor", SRDMA_OFFLOAD="/nonexistent").exit_code == 1


def test_dead_and_absent_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SRDMA_WORKER", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert cli_doctor.running_workers().detail == "no worker is running"
    (tmp_path / "srdma").mkdir()
    monkeypatch.setenv("SRDMA_WORKER", str(tmp_path / "nicb.ctl"))  # one of another computer
    assert cli_doctor.running_workers(True).detail == "no worker is running"
    assert "nicb.ctl" in cli_doctor.running_workers().detail
    (tmp_path / "srdma/nica.sock").touch()
    finding = cli_doctor.running_workers(True)
    assert finding.state == "note" and "nica.sock" in finding.detail


@pytest.mark.parametrize(
    ("cpuinfo", "machine", "state"),
    [
        ("flags\t\t: fpu aes pclmulqdq avx2", "x86_64", "ok"),
        ("flags\t\t: fpu aes", "x86_64", "note"),
        ("Features\t: fp asimd aes pmull sha2", "aarch64", "ok"),
        ("Features\t: fp asimd", "aarch64", "note"),
        ("", "x86_64", "note"),
    ],
)
# review A44
def test_aes(cpuinfo: str, machine: str, state: str) -> None:
    assert cli_doctor.aes(cpuinfo, machine).state == state


@pytest.mark.parametrize(
    ("limit", "status", "state"),
    [
        (65536, "CapEff:\t0000000000000000\n", "note"),
        (65536, "CapEff:\t000001ffffffffff\n", "ok"),
        (64 << 20, "CapEff:\t0000000000000000\n", "ok"),
        (resource.RLIM_INFINITY, "", "ok"),
    ],
)
def test_memlock(limit: int, status: str, state: str) -> None:
    finding = cli_doctor.memlock(limit, status)
    assert finding.state == state
    assert state == "ok" or "64 KiB" in finding.detail


@pytest.mark.parametrize(
    ("uid", "scope", "state"), [(1000, "1\n", "ok"), (1000, "2\n", "note"), (0, "2\n", "ok")]
)
def test_ptrace_scope(uid: int, scope: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: uid)
    finding = cli_doctor.process_vm(scope)
    assert finding.state == state or "process_vm_readv" in finding.detail  # filtered in a container


def test_devices(tmp_path: Path) -> None:
    assert cli_doctor.devices(tmp_path / "none").state == "note"
    for port, state in (("mlx5_0/ports/1", "1: DOWN"), ("mlx5_0/ports/2", "4: ACTIVE")):
        (tmp_path / port).mkdir(parents=True)
        (tmp_path / port / "state").write_text(f"{state}\n")
    assert cli_doctor.devices(tmp_path) == Finding(
        "rdma devices", "ok", "mlx5_0 (1: DOWN, 4: ACTIVE)"
    )
    (tmp_path / "mlx5_0/ports/2/state").write_text("3: ARMED\n")
    found = cli_doctor.devices(tmp_path)
    assert found.state == "note" and "no port of mlx5_0 is active" in found.detail


@pytest.mark.parametrize(("size", "state"), [("4199", "note"), ("4200", "ok")])
def test_mtu_of_rdma(
    size: str, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = ipaddress.ip_address("10.0.0.1")
    gids = [host_device.Gid(address, "eth1"), host_device.Gid(address, "eth2")]
    monkeypatch.setattr(host_device, "devices", lambda: ["mlx5_0"])
    monkeypatch.setattr(host_device, "gids", lambda _: iter(gids))
    for name, mtu in (("eth1", "9000"), ("eth2", size)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mtu").write_text(f"{mtu}\n")
    (found,) = cli_doctor.mtu(tmp_path)
    assert (found.state, f"eth1 9000, eth2 {size}" in found.detail) == (state, True)
    monkeypatch.setattr(host_device, "devices", list)
    assert not list(cli_doctor.mtu(tmp_path))


def test_rxe(tmp_path: Path) -> None:
    loaded, modules = tmp_path / "loaded", tmp_path / "modules"
    assert "make demo-rxe" in cli_doctor.rxe(loaded, modules, "6.1").remedy
    folder = modules / "6.1/kernel/drivers/infiniband/sw/rxe"
    folder.mkdir(parents=True)
    (folder / "rdma_rxe.ko.xz").touch()
    assert "modprobe" in cli_doctor.rxe(loaded, modules, "6.1").remedy
    loaded.mkdir()
    assert cli_doctor.rxe(loaded, modules, "6.1").state == "ok"


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_doctor, "PACKAGES", ("cbor2", "no-such-package"))
    missing, present = cli_doctor.python_packages()
    assert missing.state == "missing" and missing.remedy == "pip install no-such-package"
    assert "cbor2" in present.detail
