"""`srdma send` and `srdma recv`: files of all sizes, and errors."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from srdma.cli import files as transfer
from srdma.demo.stage import make_identities
from srdma.embedded import Embedded
from srdma.identity import create_ca, issue
from tests.e2e.leftovers import Place, place

SRDMA = [sys.executable, "-m", "srdma"]
MIB = 1 << 20


@dataclass
class Site:
    """Workers and identities of one test. `out` is the folder for received files."""

    place: Place
    worker_a: Path
    worker_b: Path
    identities: Path
    out: Path

    def recv(self, *arguments: str, listen: str = "127.0.0.1:0", **how: object) -> Receiving:
        words = ["recv", "--json", "--listen", listen, "--worker", str(self.worker_b)]
        words += ["--identity", str(self.identities / "host-b"), "--out", str(self.out)]
        return Receiving([*SRDMA, *words, *arguments], self.place.env, **how)

    def send(
        self, file: Path, to: str, *arguments: str, identity: str = "host-a"
    ) -> subprocess.CompletedProcess[str]:
        words = ["send", str(file), to, "--worker", str(self.worker_a)]
        words += ["--identity", str(self.identities / identity)]
        return run(*words, *arguments, env=self.place.env)

    def arrived(self) -> list[str]:
        return sorted(path.name for path in self.out.iterdir())


class Receiving:
    """One `srdma recv --json`, listening."""

    def __init__(self, command: list[str], env: dict[str, str], **how: object) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            command, env=env, stdout=pipe, stderr=pipe, text=True, **how
        )
        self.first = self.process.stdout.readline()
        self.address = json.loads(self.first)["listening"] if self.first else ""

    def refused(self, text: str) -> None:
        """It logged a refused peer, and goes on waiting for another one until it is ended."""
        assert self.process.stderr
        assert text in self.process.stderr.readline()
        assert self.process.poll() is None
        self.process.terminate()
        self.end()

    def end(self, timeout: float = 60) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=timeout)
        return self.process.returncode, out, err


def run(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SRDMA, *words], env=env, capture_output=True, text=True, timeout=120)


@pytest.fixture
def site() -> Iterator[Site]:
    with place() as here:
        out = here.folder / "out"
        out.mkdir()
        with Embedded() as nics:
            identities = make_identities(nics.folder / "identities")
            a, b = nics.start("nica"), nics.start("nicb")
            yield Site(here, a.control, b.control, identities, out)
        for path in out.iterdir():
            path.unlink()
        out.rmdir()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return random_file(tmp_path / "file.bin", 5 * MIB + 3)


def random_file(path: Path, size: int) -> Path:
    path.write_bytes(os.urandom(size))
    return path


# Good flow ---------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 4097, MIB, 40 * MIB + 5])
def test_file_arrives(site: Site, tmp_path: Path, size: int) -> None:
    file = random_file(tmp_path / "some file", size)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    receiving = site.recv("--peer", "spiffe://demo/host-a")
    sent = site.send(file, receiving.address, "--json", "--peer", "spiffe://demo/host-b")
    assert sent.returncode == 0, sent.stderr
    code, out, err = receiving.end()
    assert (code, err) == (0, "")
    last = [json.loads(text.splitlines()[-1]) for text in (sent.stdout, out)]
    assert [value["sha256"] for value in last] == [digest, digest]
    assert (site.out / "some file").read_bytes() == file.read_bytes()


def test_embedded(tmp_path: Path) -> None:
    with place() as here:
        file, out = random_file(tmp_path / "f", 3 * MIB), tmp_path / "copy"
        done = run("send", str(file), "--embedded", "--out", str(out), env=here.env)
        assert done.returncode == 0, done.stderr
        assert out.read_bytes() == file.read_bytes()
        assert "equal at both ends" in done.stdout and "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize("suite", ["aes-128-gmac"])
def test_suite(site: Site, file: Path, suite: str) -> None:
    receiving = site.recv("--suite", suite)
    sent = site.send(file, receiving.address, "--suite", suite)
    assert sent.returncode == 0 and suite in sent.stdout
    assert receiving.end()[0] == 0 and site.arrived() == ["file.bin"]


def test_overwriting_needs_the_option(site: Site, file: Path) -> None:
    (site.out / "file.bin").write_text("precious")
    receiving = site.recv()
    sent = site.send(file, receiving.address)
    assert sent.returncode == 4 and "file.bin exists: nothing was written" in sent.stderr
    assert receiving.end()[0] == 3
    assert (site.out / "file.bin").read_text() == "precious"
    receiving = site.recv("--force")
    assert site.send(file, receiving.address).returncode == 0 and receiving.end()[0] == 0
    assert (site.out / "file.bin").read_bytes() == file.read_bytes()


# Bad input -----------------------------------------------------------------------


def test_disk_full(site: Site, tmp_path: Path) -> None:
    """The receiver cannot write the whole file: both ends report it, and no
    part of the file is left."""
    room = transfer.REGION + MIB  # the limit applies to shared memory too

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    file = random_file(tmp_path / "file.bin", room + MIB)
    receiving = site.recv(preexec_fn=small_disk)
    sent = site.send(file, receiving.address)
    assert sent.returncode == 4
    assert "the peer reports: cannot write " in sent.stderr and "File too large" in sent.stderr
    code, _, err = receiving.end()
    assert code == 3 and "cannot write " in err
    assert site.arrived() == []


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    options = ["-t", "tmpfs", "-o", "size=2m", "srdma-test", str(folder)]
    if subprocess.run(["mount", *options], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_disk_full_on_tmpfs(site: Site, file: Path) -> None:
    with full_disk(site.out):
        receiving = site.recv()
        sent = site.send(file, receiving.address)
        assert sent.returncode == 4 and "No space left on device" in sent.stderr
        assert receiving.end()[0] == 3 and site.arrived() == []


def test_foreign_and_unexpected_identities(site: Site, file: Path) -> None:
    receiving = site.recv("--peer", "spiffe://demo/host-c")
    sent = site.send(file, receiving.address)
    assert sent.returncode == 6 and "which is not allowed" in sent.stderr
    receiving.refused("which is not allowed")
    foreign = site.identities / "foreign"
    create_ca(foreign, "foreign")
    issue(foreign, "spiffe://demo/host-a", foreign / "host-a")
    receiving = site.recv()
    sent = site.send(file, receiving.address, identity="foreign/host-a")
    assert sent.returncode == 6 and "another CA" in sent.stderr
    receiving.refused("another CA")
    assert site.arrived() == []


@pytest.mark.parametrize("mode", ["pd", "pd+mem"])
def test_key_mode(site: Site, file: Path, mode: str) -> None:
    receiving = site.recv()
    sent = site.send(file, receiving.address, "--mode", mode, "--mode", "basic")
    assert sent.returncode == 0 and f"key mode {mode}" in " ".join(sent.stdout.split())
    code, out, _ = receiving.end()
    assert code == 0 and json.loads(out.splitlines()[0])["mode"] == mode


def test_no_common_key_mode(site: Site, file: Path) -> None:
    receiving = site.recv("--mode", "pd")
    sent = site.send(file, receiving.address, "--mode", "mem")
    assert sent.returncode == 4 and "no common mode" in sent.stderr
    assert receiving.end()[0] == 4
    sent = site.send(file, receiving.address, "--mode", "best")
    assert sent.returncode == 3 and "give one of basic, pd, mem, pd+mem" in sent.stderr


def test_no_common_suite(site: Site, file: Path) -> None:
    receiving = site.recv("--suite", "aes-256-gcm")
    sent = site.send(file, receiving.address, "--suite", "aes-128-cmac")
    assert sent.returncode == 4 and "no common suite" in sent.stderr
    assert receiving.end()[0] == 4


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("send", "/nonexistent", "127.0.0.1:1", "--identity", "x"), 3, "is not a regular file"),
        (("send", "/etc/passwd"), 3, "give the HOST:PORT"),
        (("send", "/etc/passwd", "127.0.0.1:1"), 3, "give --identity PREFIX"),
        (("send", "/etc/passwd", "127.0.0.1:1", "--identity", "/nonexistent/x"), 5, "no worker"),
        (("send", "/etc/passwd", "nowhere", "--identity", "x"), 5, "no worker"),
        (("send", "/etc/passwd", "--embedded"), 3, "give --out"),
        (("send", "/etc/passwd", "a:1", "--embedded", "--out", "x"), 3, "no HOST:PORT"),
        (("recv", "--identity", "x", "--worker", "/nonexistent"), 5, "no worker at /nonexistent"),
        (("recv",), 3, "give --identity PREFIX"),
    ],
)
def test_usage_errors(words: tuple[str, ...], code: int, text: str) -> None:
    with place() as here:
        env = {k: v for k, v in here.env.items() if k != "SRDMA_WORKER"}
        done = run(*words, env=env)
        assert done.returncode == code and text in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_wrong_addresses(site: Site, file: Path) -> None:
    for to, code, text in (
        ("127.0.0.1:1", 4, "no listener at 127.0.0.1:1"),
        ("127.0.0.1", 3, "is not an address: give HOST:PORT"),
        ("127.0.0.1:99999", 3, "is not an address: give HOST:PORT"),
        ("no-such-host.invalid:4433", 3, "no such host"),
    ):
        sent = site.send(file, to)
        assert sent.returncode == code and text in sent.stderr, sent.stderr


def test_file_name_cannot_leave_the_folder(site: Site, tmp_path: Path) -> None:
    for name in (".bashrc", "a\nb"):
        receiving = site.recv()
        sent = site.send(random_file(tmp_path / name, 10), receiving.address)
        assert sent.returncode == 4 and "is not a valid file name" in sent.stderr
        assert receiving.end()[0] == 3 and site.arrived() == []
    receiving = site.recv("--out", str(site.out / "fine"))
    assert site.send(random_file(tmp_path / ".x", 10), receiving.address).returncode == 0
    assert receiving.end()[0] == 0 and site.arrived() == ["fine"]


def test_file_above_max_size(site: Site, file: Path) -> None:
    receiving = site.recv("--max-size", str(5 * MIB))
    sent = site.send(file, receiving.address)
    assert sent.returncode == 4 and "above --max-size 5242880" in sent.stderr
    assert receiving.end()[0] == 3 and site.arrived() == []


# Interrupted -----------------------------------------------------------------------


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """A sparse file so long that no test waits for the end of its transfer."""
    path = tmp_path / "long"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    return path


def wait_for_part(folder: Path) -> None:
    """Waits until some of the file is there."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if any(path.stat().st_size for path in folder.glob(".*.part")):
                return
        time.sleep(0.01)
    pytest.fail("nothing arrived")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_embedded(tmp_path: Path, long_file: Path, how: signal.Signals) -> None:
    """Ctrl-C leaves no process, no folder and nothing in /dev/shm."""
    out = tmp_path / "out"
    out.mkdir()
    with place() as here:
        words = ["send", str(long_file), "--embedded", "--out", str(out)]
        process = subprocess.Popen([*SRDMA, *words], env=here.env, stderr=subprocess.PIPE)
        wait_for_part(out)
        process.send_signal(how)
        _, err = process.communicate(timeout=30)
        code = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
        assert process.returncode == code and b"Traceback" not in err
        _wait_until(lambda: not here.processes())
        if how is signal.SIGKILL:  # no process was left to remove the folder of the sockets
            remove_folder(here)
    _wait_until(lambda: not list(out.iterdir()))


def remove_folder(here: Place) -> None:
    for folder in here.folder.iterdir():
        assert folder.name.startswith("srdma-")
        subprocess.run(["rm", "-r", str(folder)], check=True)


def _wait_until(condition: object, timeout: float = 20) -> None:
    deadline = time.monotonic() + timeout
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("victim", ["sender", "receiver"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_one_end_is_killed(site: Site, long_file: Path, victim: str, how: signal.Signals) -> None:
    """The other end reports it at once and removes the partial file."""
    receiving = site.recv()
    words = ["send", str(long_file), receiving.address, "--worker", str(site.worker_a)]
    words += ["--identity", str(site.identities / "host-a")]
    sender = subprocess.Popen([*SRDMA, *words], env=site.place.env, stderr=subprocess.PIPE)
    wait_for_part(site.out)
    dying, other = sender, receiving.process
    if victim == "receiver":
        dying, other = other, dying
    dying.send_signal(how)
    _, err = other.communicate(timeout=30)
    dying.communicate(timeout=30)
    assert other.returncode == 4, err
    assert "PEER_" in (err if isinstance(err, str) else err.decode())
    if victim == "receiver" and how is signal.SIGKILL:
        assert [name for name in site.arrived() if not name.endswith(".part")] == []
    else:
        assert site.arrived() == []
