"""The systemd units: their syntax, their programs' options, and what they forbid."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Site
from tests.e2e.nic import make_files, nic_of

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "offload").glob("*.service"))
BIN = "/usr/bin/"
PYTHON = {"srdma-agent", "srdma-proxy"}
COMMANDS = {
    f"{BIN}srdma": [sys.executable, "-m", "srdma"],
    f"{BIN}srdma-offload": [os.environ.get("SRDMA_OFFLOAD") or ROOT / "build/srdma-offload"],
    f"{BIN}srdma-control": [ROOT / "build/srdma-control"],
}
EVERY = {
    "Type=notify", "User=srdma", "Restart=on-failure", "LimitCORE=0", "NoNewPrivileges=yes",
    "CapabilityBoundingSet=", "AmbientCapabilities=", "LockPersonality=yes", "PrivateTmp=yes",
    "ProtectControlGroups=yes", "ProtectHome=yes", "ProtectHostname=yes", "ProtectKernelLogs=yes",
    "ProtectKernelModules=yes", "ProtectKernelTunables=yes", "ProtectSystem=strict",
    "RestrictNamespaces=yes", "RestrictRealtime=yes", "RestrictSUIDSGID=yes", "UMask=0077",
    "SystemCallArchitectures=native", "WantedBy=multi-user.target",
}  # fmt: skip


def lines(unit: Path) -> list[str]:
    return [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]


def value(unit: Path, key: str) -> str:
    (found,) = (line.partition("=")[2] for line in lines(unit) if line.startswith(f"{key}="))
    return found


def allowed(unit: Path) -> set[str]:
    """The system calls of the filter, by the lists of systemd."""
    found: set[str] = set()
    for line in lines(unit):
        if line.startswith("SystemCallFilter="):
            words = line.partition("=")[2]
            calls = {call for word in words.lstrip("~").split() for call in calls_of(word)}
            found = found - calls if words.startswith("~") else found | calls
    return found


def calls_of(word: str) -> set[str]:
    if not word.startswith("@"):
        return {word}
    said = subprocess.run(
        ["systemd-analyze", "--no-pager", "syscall-filter", word],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    names = re.findall(r"^\s+([@\w-]+)$", said, re.MULTILINE)
    return {call for name in names for call in calls_of(name)}


def test_the_units() -> None:
    assert [unit.stem for unit in UNITS] == [
        "srdma-agent", "srdma-control", "srdma-proxy", "srdma-worker@",
    ]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_hardening(unit: Path) -> None:
    assert set(lines(unit)) >= EVERY
    text = "\n".join(lines(unit))
    assert ("MemoryDenyWriteExecute=yes" in text) == (unit.stem not in PYTHON)
    assert "PrivateUsers" not in text  # programs are known by their uids
    assert ("RuntimeDirectory=srdma\n" in text) == (unit.stem in PYTHON)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_options_of_the_program(unit: Path) -> None:
    """Each option is in the program's help, and the example options of the comment are too."""
    program, *words = shlex.split(value(unit, "ExecStart"))
    example = re.search(r"SRDMA_OPTIONS=(.*)", unit.read_text())
    words += shlex.split(example[1]) if example else []
    if not Path(COMMANDS[program][0]).exists():
        pytest.skip(f"{program} was not built: install libssl-dev and libcbor-dev")
    sub = words[:1] if words[0][0] != "-" else []
    said = subprocess.run(
        [*COMMANDS[program], *sub, "--help"], capture_output=True, text=True, check=True,
        env=os.environ | {"COLUMNS": "200"},
    ).stdout  # fmt: skip
    options = [word for word in words if word.startswith("--")]
    assert options
    assert [each for each in options if not re.search(rf"{each}\b(?!-)", said)] == []


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """The programs are not installed here: each is replaced by one that exists."""
    name = unit.name.replace("@", "@nica")
    (tmp_path / name).write_text(unit.read_text().replace(BIN, "/bin/true "))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / name],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_system_calls(unit: Path) -> None:
    """The agent reads the state of the clock, and gives away sockets of containers."""
    calls = allowed(unit)
    assert {"openat", "prctl", "setrlimit", "recvmsg", "pidfd_open"} <= calls
    assert not calls & {"setuid", "bpf", "init_module", "clock_settime", "ptrace", "mount"}
    assert ("fchownat" in calls) == (unit.stem in PYTHON)
    for call in ("adjtimex", "clock_adjtime"):  # glibc's adjtimex() uses the latter
        assert (call in calls) == (unit.stem == "srdma-agent")
    clock = "ProtectClock=yes" in lines(unit)  # refuses adjtimex() too
    assert clock == (unit.stem != "srdma-agent")


# Programs as services ----------------------------------------------------------------


def test_ready(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent and proxy tell the service manager when programs can connect."""
    make_files(tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with nic_of(tmp_path, "a", site.a.control) as nic:
            assert manager.recv(64) == b"READY=1"
            nic.proxy()
            assert manager.recv(64) == b"READY=1"


def test_ready_in_the_abstract_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    from srdma.agent.serving import notify_ready

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(30)
        manager.bind(f"\0srdma-test-{os.getpid()}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@srdma-test-{os.getpid()}")
        notify_ready()
        assert manager.recv(64) == b"READY=1"
    notify_ready()  # the manager is gone
