"""The daemon with several worker processes: sockets, start and stop, statistics, cores."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon import BINARY, PATIENCE, Client, Kind, Worker, run, until, worker

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

THREADS = 3
ALL = ["--name", "a", "--control", "/x/a", "--wire-dev", "shm:/x"]
UDP = ["--name", "a", "--control", "/x/a", "--wire-dev", "udp", "--wire-listen"]
CORES = sorted(os.sched_getaffinity(0))

WRONG = [
    (["--workers", "0"], "--workers 0: give a number from 1 to 64"),
    (["--workers", "65"], "1 to 64"),
    (["--workers", "two"], "1 to 64"),
    (["--pin", ""], "--pin : give numbers of cores and ranges of them, 0,2-5"),
    (["--pin", "a"], "0,2-5"),
    (["--pin", "1,"], "0,2-5"),
    (["--pin", ",1"], "0,2-5"),
    (["--pin", "1-"], "0,2-5"),
    (["--pin", "1 2"], "0,2-5"),
    (["--pin", "-1"], "0,2-5"),
    (["--pin", "3-2"], "0,2-5"),
    (["--pin", "1024"], "0,2-5"),
    (["--pin", "0,2-5,3"], "each core once"),
    ([*ALL, "--workers", "3", "--pin", "0,1"], "--pin names 2 cores for --workers 3"),
    (
        ["--name", "a" * 62, *ALL[2:], "--workers", "11"],
        "with --workers 11: NAME.i has at most 63 bytes",
    ),
    (
        ["--name", "a", "--control", "/" + "x" * 104, *ALL[4:], "--workers", "11"],
        "with --workers 11: PATH.i has at most 107 bytes",
    ),
    (
        [*ALL, "--workers", "16", "--max-qps", "524289"],
        "--max-qps 524289 with --workers 16: give at most 524288, because",
    ),
    ([*UDP, "127.0.0.1:65534", "--workers", "3"], "--wire-listen 127.0.0.1:65534 with --workers 3"),
]


@pytest.mark.parametrize(("options", "text"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_options(options: list[str], text: str) -> None:
    done = run(*options)
    assert done.returncode == 2
    assert text in done.stderr and done.stderr.count("\n") == 1


def test_former_name_of_the_option_has_the_same_effect() -> None:
    done = run("--threads", "65")
    assert done.returncode == 2
    assert "--workers 65: give a number from 1 to 64" in done.stderr


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Worker]:
    with worker(tmp_path, "a", "--workers", str(THREADS)) as found:
        yield found


def client(found: Worker, thread: int) -> Client:
    made = Client(control(found, thread))
    found.clients.append(made)
    return made


def control(found: Worker, thread: int) -> Path:
    return Path(f"{found.control}.{thread}") if thread else found.control


def names(found: Worker) -> list[str]:
    return [found.name, *(f"{found.name}.{i}" for i in range(1, THREADS))]


def sockets(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_socket()}


def statistics(found: Worker, lines: int) -> list[dict[str, object]]:
    """Returns the next lines of statistics. It does not use readline(), which reads ahead, so that
    select() would not see the rest."""
    out, raw = found.process.stdout, b""
    assert out
    while raw.count(b"\n") < lines:
        assert select.select([out], [], [], PATIENCE)[0]
        raw += os.read(out.fileno(), 65536)
    assert raw.endswith(b"\n")
    return [json.loads(line) for line in raw.splitlines()]


def test_each_process_has_a_socket_and_a_wire(three: Worker) -> None:
    ready = [f"ready {n} control={control(three, i)} wire={n}" for i, n in enumerate(names(three))]
    assert [line for line in three.log().splitlines() if line.startswith("ready")] == ready
    assert sockets(three.folder) == {
        "a.ctl", "a.ctl.1", "a.ctl.2", "a.sock", "a.1.sock", "a.2.sock"
    }  # fmt: skip


def test_hello_tells_the_number_of_processes(three: Worker) -> None:
    suites = set()
    for i, name in enumerate(names(three)):
        body, _ = client(three, i).request(Kind.HELLO, struct.pack(">I", 1))
        assert struct.unpack(">II", body[240:248]) == (THREADS, i)
        assert body[80:208].replace(b"\0", b"") == 2 * name.encode()
        suites.add(body[208:240])
    assert len(suites) == 1  # measured once


def pids(found: Worker, threads: int = THREADS) -> list[int]:
    """Returns the pids of the worker processes from HELLO."""
    hello = [client(found, i).request(Kind.HELLO, struct.pack(">I", 1))[0] for i in range(threads)]
    return [int.from_bytes(body[12:16], "big") for body in hello]


def status(pid: int, field: str) -> str:
    text = Path(f"/proc/{pid}/status").read_text()
    return re.findall(rf"^{field}:\t(.*)$", text, re.MULTILINE)[0]


def ended(pid: int) -> bool:
    try:
        return status(pid, "State").startswith("Z")
    except FileNotFoundError:
        return True


def test_each_is_a_process_with_one_thread(three: Worker) -> None:
    first, *others = pids(three)
    assert first == three.process.pid
    assert len({first, *others}) == THREADS
    for i, pid in enumerate(others, 1):
        assert status(pid, "Name") == f"srdma.{i}"
        assert status(pid, "PPid") == str(first)
    for pid in (first, *others):
        assert status(pid, "Threads") == "1"
        assert resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0)


def test_memory_of_each_process_is_locked(tmp_path: Path) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, unlimited)
    except (ValueError, PermissionError):
        pytest.skip(f"locked memory: at most {before[1]} bytes here; make test-rxe has no limit")
    try:
        with worker(tmp_path, "a", "--workers", "3") as found:
            assert all(int(status(pid, "VmLck").split()[0]) > 0 for pid in pids(found))
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)


def test_leg_belongs_to_its_process(three: Worker) -> None:
    first, second = client(three, 1), client(three, 2)
    leg, token = first.open()
    assert first.attach(token) == leg
    assert "no leg has this token" in second.refused(1, Kind.ATTACH, token)


def test_qpn_tells_its_process(three: Worker) -> None:
    for i in range(THREADS):
        one = client(three, i)
        leg = one.open()[0]
        assert {one.init(leg, 1, 1).qpn % THREADS for _ in range(20)} == {i}


def test_udp_ports_are_consecutive(tmp_path: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.77", 0))
        port = min(probe.getsockname()[1], 65000)
    options = ["--wire-dev", "udp", "--wire-listen", f"127.0.0.77:{port}"]
    with worker(tmp_path, "a", *options, "--workers", "3") as found:
        wires = re.findall(r"wire=(\S+)", found.log())
    assert wires == [f"127.0.0.77:{port + i}" for i in range(3)]


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_all_processes(three: Worker, sign: int) -> None:
    clients = [client(three, i) for i in range(THREADS)]
    for one in clients:
        one.open()
    assert three.stop(sign) == 0
    assert all(one.closed() for one in clients)
    assert sockets(three.folder) == set()
    assert f"srdma-offload: worker process 0: signal {int(sign)}: stopping\n" in three.log()


def test_signal_to_a_worker_process_is_ignored(three: Worker) -> None:
    """A sender that signals all processes of a service gets the effect once,
    from the supervisor."""
    for pid in pids(three)[1:]:
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGUSR1)
    three.process.send_signal(signal.SIGUSR1)
    assert len(statistics(three, THREADS)) == THREADS
    assert all(client(three, i).alive() for i in range(THREADS))


@pytest.mark.parametrize("thread", range(1, THREADS))
def test_killed_process_ends_all(three: Worker, thread: int) -> None:
    clients = [client(three, i) for i in range(THREADS)]
    os.kill(pids(three)[thread], signal.SIGKILL)
    assert three.process.wait(PATIENCE) == 1
    assert all(one.closed() for one in clients)
    assert (
        f"error: worker process {thread} was killed by signal 9 (Killed): all end\n" in three.log()
    )
    assert sockets(three.folder) == {f"a.{thread}.sock"}  # only its process could remove it


def test_killed_process_is_reported_while_another_hangs(three: Worker) -> None:
    _, killed, hangs = pids(three)
    os.kill(hangs, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    text = "error: worker process {} was killed by signal 9 (Killed): all end\n"
    until(lambda: text.format(1) in three.log())
    os.kill(hangs, signal.SIGKILL)
    assert three.process.wait(PATIENCE) == 1
    assert three.log().count("error") == 2
    assert text.format(2) in three.log()


@pytest.mark.slow
def test_process_that_hangs_at_the_stop_is_killed(three: Worker) -> None:
    os.kill(pids(three)[1], signal.SIGSTOP)
    assert three.stop() == 1
    assert "worker process 1 does not end: killing it\n" in three.log()
    assert three.log().count("killing it") == 1
    assert "worker process 1 was killed by signal 9" in three.log()


def test_start_with_sigchld_ignored(tmp_path: Path) -> None:
    """A process may be started with SIGCHLD ignored. Without a reset, the kernel would reap the
    worker processes without reporting their end."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with worker(tmp_path, "a", "--workers", "3") as found:
            os.kill(pids(found)[1], signal.SIGKILL)
            until(lambda: "worker process 1 was killed by signal 9" in found.log())
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_restart_after_kill_succeeds_at_once(tmp_path: Path) -> None:
    """Processes of the killed worker end one after the other. The new one waits for them."""
    for _ in range(10):
        with worker(tmp_path, "a", "--workers", "3") as dead:
            others = pids(dead)[1:]
            dead.stop(signal.SIGKILL)
        assert len(sockets(tmp_path)) == 6
        with worker(tmp_path, "a", "--workers", "3") as alive:
            assert all(client(alive, i).alive() for i in range(THREADS))
            assert all(map(ended, others))
            assert alive.stop() == 0
        assert sockets(tmp_path) == set()


HEIR = """
import os, socket, sys, time
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(4096)
if os.fork() == 0:
    os.write(1, str(os.getpid()).encode())
    os.close(1)
    time.sleep(float(sys.argv[2]))
os._exit(0)
"""


def inherited(path: Path, seconds: float) -> int:
    """Makes a socket whose creator has ended. Another process, whose pid is returned, keeps it open
    for this time."""
    command = [sys.executable, "-c", HEIR, path, str(seconds)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def test_start_waits_for_the_last_process_of_a_dead_worker(tmp_path: Path) -> None:
    heir = inherited(tmp_path / "a.ctl", 0.5)
    with worker(tmp_path, "a") as found:
        assert ended(heir)
        assert found.client().alive()
        assert "replacing the control socket of a dead worker" in found.log()


def test_start_waits_for_a_dead_worker_for_a_limited_time(tmp_path: Path) -> None:
    heir = inherited(tmp_path / "a.ctl", 600)
    try:
        done = run("--control", f"{tmp_path}/a.ctl", "--wire-dev", f"shm:{tmp_path}")
    finally:
        os.kill(heir, signal.SIGKILL)
    assert done.returncode == 1
    assert "a worker is already running on" in done.stderr


@pytest.mark.parametrize("files", range(6, 13))
def test_missing_descriptors_while_a_dead_worker_is_detected(tmp_path: Path, files: int) -> None:
    heir = inherited(tmp_path / "a.ctl", 0.2)
    _, log = limited(tmp_path, resource.RLIMIT_NOFILE, files).communicate(timeout=PATIENCE)
    assert "Too many open files" in log and "running" not in log
    until(lambda: ended(heir))


def in_the_way(folder: Path, name: str) -> None:
    (folder / name).write_text("mine")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ctl.2", "a file that is not a socket has this path"),
        ("a.2.sock", "worker process 2: error: --wire-dev"),
    ],
)
def test_failed_start_of_a_process_ends_all(tmp_path: Path, name: str, text: str) -> None:
    in_the_way(tmp_path, name)
    options = ["--control", f"{tmp_path}/a.ctl", "--wire-dev", f"shm:{tmp_path}", "--name", "a"]
    done = run(*options, "--workers", "4")
    assert done.returncode == 1
    assert text in done.stderr and "ready" not in done.stderr
    assert done.stderr.count("error") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def limited(folder: Path, limit: int, value: int) -> subprocess.Popen[str]:
    command = [BINARY, "--name", "a", "--control", folder / "a.ctl"]
    command += ["--wire-dev", f"shm:{folder}", "--workers", str(THREADS)]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(limit, (value, value)),
    )


def test_process_killed_during_its_start(tmp_path: Path) -> None:
    """With RLIMIT_FSIZE of 0 the kernel kills the process when it creates its doorbell, a memfd."""
    process = limited(tmp_path, resource.RLIMIT_FSIZE, 0)
    _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    number = int(signal.SIGXFSZ)
    assert (
        f"error: worker process 1 was killed by signal {number} (File size limit exceeded)" in log
    )
    assert log.count("error") == 1 and "ready" not in log
    assert sockets(tmp_path) <= {"a.1.sock"}


def test_missing_descriptors_during_the_start(tmp_path: Path) -> None:
    """If a step of the start fails, the worker logs one error and leaves no file."""
    wanting = set()
    for files in range(5, 100):
        process = limited(tmp_path, resource.RLIMIT_NOFILE, files)
        assert process.stderr
        log = ""
        while (line := process.stderr.readline()) and not line.startswith("ready a.2"):
            log += line
        if line:
            process.terminate()
        process.communicate(timeout=PATIENCE)
        assert sockets(tmp_path) == set()
        assert process.returncode == (0 if line else 1)
        if line:
            break
        assert log.count("error") == 1
        assert re.search("Too many open files|no file descriptors left", log)
        steps = "no file descriptors or memory|control socket /|worker process 1 cannot be started"
        wanting |= set(re.findall(steps, log))
    assert len(wanting) == 3


def test_statistics_of_each_process(three: Worker) -> None:
    second = client(three, 2)
    second.init(second.open()[0])
    three.process.send_signal(signal.SIGUSR1)
    lines = {str(line["name"]): line["qps"] for line in statistics(three, THREADS)}
    assert lines == {"a": 0, "a.1": 0, "a.2": 1}


def test_lines_of_statistics_are_not_mixed(three: Worker) -> None:
    """A line is longer than PIPE_BUF, so that a write of it alone would not be atomic."""
    for _ in range(20):
        three.process.send_signal(signal.SIGUSR1)
        lines = statistics(three, THREADS)
        assert sorted(str(line["name"]) for line in lines) == names(three)


@pytest.mark.skipif(os.geteuid() != 0, reason="workers are not dumpable: only root sees their fds")
def test_statistics_are_dropped_if_the_lock_is_held(tmp_path: Path) -> None:
    """A process that hangs while it holds the lock of standard output costs
    lines of statistics only."""
    with worker(tmp_path, "a", "--workers", "3", "--log-level", "debug") as found:
        fds = Path(f"/proc/{found.process.pid}/fd").iterdir()
        turn = next(fd for fd in fds if "memfd:srdma-report" in os.readlink(fd))
        with turn.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)
            found.process.send_signal(signal.SIGUSR1)
            until(lambda: found.log().count("a line of statistics was dropped") == THREADS)
            assert found.stop() == 0


@pytest.mark.parametrize("threads", [1, THREADS])
def test_statistics_are_dropped_if_the_terminal_is_full(tmp_path: Path, threads: int) -> None:
    ours, theirs = os.openpty()
    command = [BINARY, "--name", "a", "--control", tmp_path / "a.ctl", "--log-level", "debug"]
    command += ["--wire-dev", f"shm:{tmp_path}", "--workers", str(threads)]

    def asked_until_one_is_lost() -> bool:
        process.send_signal(signal.SIGUSR1)
        return "a line of statistics was dropped" in (tmp_path / "log").read_text()

    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(command, stdout=theirs, stderr=log)
        try:
            until(lambda: "ready a " in (tmp_path / "log").read_text())
            until(asked_until_one_is_lost)
            process.terminate()
            assert process.wait(PATIENCE) == 0
            assert os.get_blocking(theirs)  # the shell's descriptor is still blocking
        finally:
            process.kill()
            process.wait()
            os.close(ours)
            os.close(theirs)


@pytest.mark.soak
def test_process_that_hangs_during_its_start_is_killed(tmp_path: Path) -> None:
    """A worker process is stopped by SIGSTOP while it waits for the lock of its wire's folder."""
    wire = tmp_path / "wire"
    wire.mkdir()
    folder = os.open(wire, os.O_RDONLY)
    command = [BINARY, "--name", "a", "--control", tmp_path / "a.ctl"]
    command += ["--wire-dev", f"shm:{wire}", "--workers", "3"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        until(lambda: children.read_text() != "")
        os.kill(int(children.read_text().split()[0]), signal.SIGSTOP)
        log = process.communicate(timeout=60)[1]
    finally:
        process.kill()
        process.wait()
        os.close(folder)
    assert process.returncode == 1
    assert "worker process 1 does not start" in log and "worker process 1 does not end" in log
    assert "ready" not in log


def test_many_clients_of_all_processes_at_once(three: Worker) -> None:
    """Clients open legs and leave while statistics are requested. The
    processes do not interfere."""

    def come_and_go(thread: int) -> None:
        for _ in range(50):
            one = Client(control(three, thread))
            one.init(one.open()[0])
            one.request(Kind.STATS)
            one.close()

    clients = [threading.Thread(target=come_and_go, args=(i,)) for i in range(THREADS)]
    for one in clients:
        one.start()
    for one in clients:
        one.join()
    assert all(client(three, i).alive() for i in range(THREADS))


def cores(found: Worker, threads: int) -> list[str]:
    return [status(pid, "Cpus_allowed_list") for pid in pids(found, threads)]


@pytest.mark.skipif(len(CORES) < 2, reason="this machine has one core")
def test_pin(tmp_path: Path) -> None:
    chosen = CORES[1::-1]  # not in ascending order
    with worker(tmp_path, "a", "--workers", "2", "--pin", ",".join(map(str, chosen))) as found:
        assert cores(found, 2) == [str(core) for core in chosen]


def test_pin_of_a_single_process(tmp_path: Path) -> None:
    with worker(tmp_path, "a", "--pin", str(CORES[-1])) as found:
        assert cores(found, 1) == [str(CORES[-1])]


def test_without_pin_all_cores_are_used(three: Worker) -> None:
    assert len(set(cores(three, THREADS))) == 1


def test_pin_to_a_missing_core(tmp_path: Path) -> None:
    options = ["--control", f"{tmp_path}/a.ctl", "--wire-dev", f"shm:{tmp_path}", "--workers", "2"]
    done = run(*options, "--pin", f"{CORES[0]},1023")
    assert done.returncode == 1
    assert "worker process 1: error: --pin: core 1023: this machine has no such core" in done.stderr
    assert list(tmp_path.iterdir()) == []
