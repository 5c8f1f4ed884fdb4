"""Parts of the stand (tests/smartnic) that need no machine."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from tests.rxe import cpio
from tests.rxe.ports import Port, table
from tests.smartnic import identities, keys, plan, service
from tests.smartnic.capture import Capture
from tests.smartnic.service import Here, ScriptError


@pytest.mark.skipif(shutil.which("busybox") is None, reason="needs busybox (.ci/setup rxe)")
def test_an_archive_has_its_files_and_the_folders_above_them(tmp_path: Path) -> None:
    files = {"init": b"odd", "a/b/c": b"", "a/d": bytes(5000)}
    archive = cpio.archive(files, ["dev", "run/lock"])
    subprocess.run(["busybox", "cpio", "-i"], input=archive, cwd=tmp_path, check=True)
    assert {name: (tmp_path / name).read_bytes() for name in files} == files
    assert (tmp_path / "init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "run/lock").is_dir() and (tmp_path / "dev").is_dir()
    assert len(archive) % 4 == 0  # another archive can follow


def record(frame: bytes) -> bytes:
    return struct.pack("=IIII", 0, 0, len(frame), len(frame)) + frame


def test_a_capture_leaves_an_unfinished_frame_for_later(tmp_path: Path) -> None:
    path, third = tmp_path / "pcap", record(b"third")
    path.write_bytes(bytes(24) + record(b"before"))
    capture = Capture(path)
    with open(path, "ab", buffering=0) as file:
        file.write(record(b"first") + record(b"") + third[:18])
        assert capture.take() == [b"first", b""]
        assert capture.take() == []
        file.write(third[18:])
    assert capture.take() == [b"third"]


def test_a_table_of_ports_has_a_line_for_each() -> None:
    ports = [Port("p0", "52:54:00:00:00:01", ("10.0.0.1/24", "10.1.0.1/24"), "rxe0")]
    ports.append(Port("tmfifo_net0", "52:54:00:00:00:02", ()))
    first, second = table(ports).splitlines()
    assert first == "p0 52:54:00:00:00:01 rxe0 10.0.0.1/24 10.1.0.1/24"
    assert second == "tmfifo_net0 52:54:00:00:00:02 -"


@pytest.mark.parametrize("machines", [1, 2])
def test_each_cable_of_the_stand_has_two_ends(machines: int) -> None:
    ends = [*plan.hosts(machines), *map(plan.nic, range(plan.NICS))]
    cables = [cable for ports in ends for cable in ports]
    assert all(cables.count(cable) == 2 for cable in cables)
    macs = [port.mac for ports in ends for port in ports.values()]
    assert len(set(macs)) == len(macs)


def test_private_keys_of_programs_are_where_the_agents_are(tmp_path: Path) -> None:
    identities.make(tmp_path)
    own = {"control/ca.pem", "control/host1.key", "control/host1.pem"}
    programs = {"programs/ca.pem", "programs/host-b.key", "programs/host-b.pem"}
    for agent, wanted in (("nic", own), ("host", own | programs)):
        files = identities.files(tmp_path, identities.names("host", 1, agent))
        assert files.keys() == wanted
        assert all((tmp_path / name).read_bytes() == data for name, data in files.items())


def test_secrets_of_key_logs() -> None:
    """A control link is in the log of one NIC, a connection between the agents in both."""
    shared = f"SERVER_TRAFFIC_SECRET_0 {'a1' * 32} {'0a' * 48}\r\n"
    links = [f"EXPORTER_SECRET {'b2' * 32} {number}{'b' * 95}\r\n" for number in range(2)]
    logs = [f"{links[0]}{shared}SRDMA_SECRET 00beef tx 0102030405060708 {'c3' * 16}\r\nmark"]
    logs.append(f"[ 1.0] virtio\r\n{shared}{links[1]}mark")
    assert keys.secrets(logs) == {"S": {b"\xc3" * 16}, "TLS": {b"\n" * 48}}


def test_a_script_that_fails_raises_its_output() -> None:
    assert Here().run("echo done") == "done\n"
    with pytest.raises(ScriptError, match=r"exit code 3 .*: why"):
        Here().run("echo why >&2; exit 3")


def test_a_program_in_the_background_can_be_killed(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(service, "LOGS", tmp_path)
    program = Here().start("sleep", "sleep", "60")
    assert program.alive()
    program.kill()
    assert not program.alive()
