"""The daemon as a process: options, start and stop, statistics (local-interface.md 3)."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import stat
import struct
import time
import tomllib
from pathlib import Path

import pytest

from tests.daemon import BINARY, PATIENCE, ROOT, Kind, Worker, cpu_seconds, run, worker

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")


WRONG = [
    ([], "give --name NAME or --control PATH"),
    (["--name", "a"], "XDG_RUNTIME_DIR is not set"),
    (["--name", "a", "--control", "/x/a"], "give --wire-dev shm:DIR"),
    (["--name", "a/b"], "letters, digits"),
    (["--name", ""], "letters, digits"),
    (["--name", ".a"], "letters, digits"),
    (["--name", 'a"b'], "letters, digits"),
    (["--name", "a" * 64], "1 to 63"),
    (["--control", "/tmp/ä.sock", "--wire-dev", "shm:/x"], "by --name"),
    (["--control", ""], "1 to 107 bytes"),
    (["--control", "/" + "x" * 108], "1 to 107 bytes"),
    (["--name", "a", "--control", "/x/a", "--wire-dev", "shm"], "shm:DIR"),
    (["--name", "a", "--control", "/x/a", "--wire-dev", "shm:"], "shm:DIR"),
    (["--name", "a", "--control", "/x/a", "--wire-dev", ""], "RDMA device"),
    (
        ["--name", "a", "--control", "/x/a", "--wire-dev", "shm:/x", "--wire-listen", "1.2.3.4:5"],
        "leave it out",
    ),
    (
        ["--name", "a", "--control", "/x/a", "--wire-dev", "shm:/x", "--host-listen", "10.0.0.1"],
        "--host-listen goes with an RDMA device, not with --host-dev shm: leave it out",
    ),
    (
        ["--name", "a", "--control", "/x/a", "--wire-dev", "shm:/x", "--wire-trains"],
        "--wire-trains goes with --wire-dev udp, not with --wire-dev shm:/x: leave it out",
    ),
    (["--name", "a", "--control", "/x/a", "--wire-dev", "mlx5_0", "--wire-trains"], "leave it out"),
    (["--name", "a", "--control", "/x/a", "--wire-dev", "udp"], "--wire-listen IP:PORT"),
    (["--name", "a", "--control", "/x/a", "--wire-dev", "udp:10.0.0.1"], "--wire-listen IP:PORT"),
    (
        ["--name", "a", "--control", "/x/a", "--wire-dev", "shm:/x", "--host-dev", "shm:/x"],
        "--host-dev takes shm",
    ),
    (["--mtu", "255"], "256 to 4096"),
    (["--mtu", "4097"], "256 to 4096"),
    (["--mtu", "4k"], "256 to 4096"),
    (["--mtu", "-1"], "256 to 4096"),
    (["--mtu", "99999999999999999999"], "256 to 4096"),
    (["--window", "0"], "1 to 1024"),
    (["--window", "1025"], "1 to 1024"),
    (["--reads", "129"], "1 to 128"),
    (["--key-cache", "65537"], "--key-cache 65537: give a number from 0 to 65536"),
    (["--key-cache", "-1"], "0 to 65536"),
    (["--key-cache", "1k"], "0 to 65536"),
    (["--key-cache", ""], "0 to 65536"),
    (["--key-cache"], "needs a value"),
    (["--max-qps", "0"], "--max-qps 0: give a number from 1 to 1048576"),
    (["--max-qps", "1048577"], "1 to 1048576"),
    (["--table-memory", "0"], "--table-memory 0: give a number from 1 to 1048576"),
    (["--table-memory", "1048577"], "1 to 1048576"),
    (["--ping", "0"], "--ping 0: give seconds from 0.01 to 3600"),
    (["--ping", "-1"], "0.01 to 3600"),
    (["--ping", "1e3"], "0.01 to 3600"),
    (["--ping", "1.2.3"], "0.01 to 3600"),
    (["--ping", "."], "0.01 to 3600"),
    (["--ping", ""], "0.01 to 3600"),
    (["--ping", "nan"], "0.01 to 3600"),
    (["--silence", "3600.01"], "--silence 3600.01: give seconds from 0.01 to 3600"),
    (["--name", "a", "--control", "/x/a", "--silence", "5"], "more seconds than --ping"),
    (
        ["--name", "a", "--control", "/x/a", "--ping", "0.25", "--silence", "0.25"],
        "--silence 0.25: give more seconds than --ping, which is 0.25",
    ),
    (["--rekey-packets", "0"], "1 to 16777216"),
    (["--rekey-packets", "16777217"], "1 to 16777216"),
    (["--rekey-bytes", "0"], "1 to 68719476736"),
    (["--rekey-bytes", "68719476737"], "1 to 68719476736"),
    (["--rekey-seconds", "0.001"], "0.01 to 60"),
    (["--rekey-seconds", "60.01"], "--rekey-seconds 60.01: give seconds from 0.01 to 60"),
    (["--stats", "0"], "1 to 86400"),
    (["--agent-uid", "4294967295"], "--agent-uid 4294967295: give a number from 0 to 4294967294"),
    (["--agent-uid", "root"], "0 to 4294967294"),
    (["--log-level", "verbose"], "error, info or debug"),
    (["--name"], "needs a value"),
    (["--gid", "10.0.0"], "--gid 10.0.0 is not an IPv4 or IPv6 address: give one without"),
    (["--gid", "[2001:db8::1]"], "without brackets and port"),
    (["--gid", "0.0.0.0"], "--gid 0.0.0.0 is not a unicast address: give one address of this"),
    (["--gid", "ff02::1"], "not a unicast address"),
    (["--frobnicate"], "--frobnicate is not an option"),
    (["--help=1"], "takes no value"),
    (["a"], "only options are taken"),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_options(options: list[str], text: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert text in done.stderr and done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_help_has_a_line_per_option() -> None:
    done = run("--help")
    assert done.returncode == 0 and done.stderr == ""
    options = re.findall(r"^  (--[a-z-]+)", done.stdout, re.MULTILINE)
    assert len(options) == len(set(options)) == 29
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert run("--version").stdout == f"srdma-offload {project['version']} (srdma-1)\n"


def test_unknown_device_is_named_in_the_error(tmp_path: Path) -> None:
    control = str(tmp_path / "a.ctl")
    done = run("--control", control, "--wire-dev", "nodev", "--wire-listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert "nodev" in done.stderr
    assert not Path(control).exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--wire-listen", "192.0.2.1"], "192.0.2.1 is not an address of this host"),
        (["--wire-listen", "0.0.0.0"], "name one address"),
        (["--wire-listen", "eth0"], "is not IP, IP:PORT, [IPv6] or [IPv6]:PORT"),
        (["--wire-listen", "127.0.0.1", "--host-dev", "udp"], "give shm or an RDMA device"),
    ],
)
def test_udp_wire_error_tells_what_to_do(tmp_path: Path, options: list[str], words: str) -> None:
    done = run("--control", str(tmp_path / "a.ctl"), "--wire-dev", "udp", *options)
    assert done.returncode == 1
    assert words in done.stderr


def test_unknown_provider_error_lists_the_providers(tmp_path: Path) -> None:
    options = ["--wire-dev", f"shm:{tmp_path}", "--provider", "rot13"]
    done = run("--control", str(tmp_path / "a.ctl"), *options)
    assert done.returncode == 1
    assert "--provider rot13 is not part of this build: use openssl" in done.stderr


def test_provider(tmp_path: Path) -> None:
    with worker(tmp_path, "p", "--provider", "openssl") as found:
        assert "crypto provider: openssl" in found.log()


def test_default_control_path(tmp_path: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(tmp_path)}
    done = run("--name", "a", "--wire-dev", f"shm:{tmp_path}/none/none", **environment)
    folder = tmp_path / "srdma"
    assert done.returncode == 1, done.stderr
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert list(folder.iterdir()) == []  # a failed start leaves no files


def test_ready_line_and_sockets(a: Worker) -> None:
    assert f"ready a control={a.control} wire=a\n" in a.log()
    for path in (a.control, a.folder / "a.sock"):
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_clean_stop(a: Worker, sign: int) -> None:
    client = a.client()
    assert client.alive()
    client.open()
    assert a.stop(sign) == 0
    assert not a.control.exists() and not (a.folder / "a.sock").exists()
    assert client.closed()


def test_no_core_dumps(a: Worker) -> None:
    limits = Path(f"/proc/{a.process.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)


def test_second_worker_is_refused(a: Worker, tmp_path: Path) -> None:
    done = run("--control", str(a.control), "--wire-dev", f"shm:{tmp_path}")
    assert done.returncode == 1
    assert f"a worker is already running on {a.control}" in done.stderr
    assert a.client().alive()


def test_socket_of_a_dead_worker_is_replaced(tmp_path: Path) -> None:
    with worker(tmp_path) as dead:
        dead.stop(signal.SIGKILL)
    assert dead.control.exists()
    with worker(tmp_path) as alive:
        assert alive.client().alive()
        assert "replacing the control socket of a dead worker" in alive.log()


def test_locked_socket_folder(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    done = run("--control", f"{tmp_path}/a.sock", "--wire-dev", f"shm:{tmp_path}")
    os.close(fd)
    assert done.returncode == 1 and "another process keeps its directory locked" in done.stderr


def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.ctl"
    path.write_text("mine")
    done = run("--control", str(path), "--wire-dev", f"shm:{tmp_path}")
    assert done.returncode == 1 and "a file that is not a socket has this path" in done.stderr
    assert path.read_text() == "mine"


def test_notifies_its_manager(tmp_path: Path) -> None:
    for address in (str(tmp_path / "notify"), f"\0srdma-test-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address)
            manager.settimeout(PATIENCE)
            told = address.replace("\0", "@")
            with worker(tmp_path, NOTIFY_SOCKET=told) as found:
                assert manager.recv(100) == b"READY=1"
                found.stop()
                assert manager.recv(100) == b"STOPPING=1"


def no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def test_statistics_line(a: Worker) -> None:
    client = a.client()
    client.init(client.open()[0])
    a.process.send_signal(signal.SIGUSR1)
    found = json.loads(a.line(), object_pairs_hook=no_duplicates)
    assert found["name"] == "a" and found["qps"] == 1 and found["uptime"] >= 0
    names = {"packets_sealed", "bytes_verified", "refused_tag", "refused_replay", "wakeups"}
    assert names < found.keys()
    assert {name for name in found if name.startswith("reason_")}
    assert all(value == 0 for name, value in found.items() if name.startswith("refused_"))


def test_statistics_every_second(tmp_path: Path) -> None:
    with worker(tmp_path, "a", "--stats", "1") as found:
        lines = [json.loads(found.line()) for _ in range(2)]
    assert lines[0]["uptime"] < lines[1]["uptime"]


def test_stats_response_has_all_counters_of_the_line(a: Worker) -> None:
    a.process.send_signal(signal.SIGUSR1)
    line = json.loads(a.line())
    body, _ = a.client().request(Kind.STATS)
    counters = struct.unpack(f">{len(body) // 8}Q", body)
    assert len(counters) >= len(line) - 3  # reserved counters have no name


def test_reader_of_statistics_stops_reading(tmp_path: Path) -> None:
    with worker(tmp_path) as found:
        out = found.process.stdout
        assert out
        fcntl.fcntl(out, fcntl.F_SETPIPE_SZ, 4096)
        client = found.client()
        for _ in range(10):
            found.process.send_signal(signal.SIGUSR1)
            assert client.alive()
        out.close()
        found.process.send_signal(signal.SIGUSR1)
        assert client.alive()
        assert found.stop() == 0


def test_idle_worker_sleeps(a: Worker) -> None:
    client = a.client()
    client.open()
    before = cpu_seconds(a.process.pid)
    time.sleep(1)
    assert cpu_seconds(a.process.pid) - before < 0.2
    assert client.alive()
