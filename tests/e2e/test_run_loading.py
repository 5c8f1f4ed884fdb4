"""How programs find the library of `srdma run`, and that it looks for no other device."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path

import pytest

from tests.e2e import test_run
from tests.e2e.conftest import WAIT
from tests.e2e.test_run import LIBRARY, Hosts

PROGRAM = ["/usr/bin/python3", str(Path(__file__).parent / "verbs" / "load_at_run_time.py")]
# Where libibverbs of the system looks for devices and drivers.
ELSEWHERE = ("/dev/infiniband", "/sys/class/infiniband", "/etc/libibverbs.d", "/libibverbs/")

# Whether each path has a character device, and may be read and written.
DEVICE_FILE = """
import json, os, stat
def found(path):
    return os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode)
paths = {"device": "/dev/infiniband/uverbs0", "null": "/dev/null", "other": "/dev/uverbs0"}
print(json.dumps({k: [found(p), os.access(p, os.R_OK | os.W_OK)] for k, p in paths.items()}))
"""

NO_PATH = """
import ctypes, json
libc, room = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(512)
calls = {"stat": room, "stat64": room, "access": 0}
print(json.dumps({k: [getattr(libc, k)(None, v), ctypes.get_errno()] for k, v in calls.items()}))
"""

pytestmark = test_run.pytestmark
run_hosts = test_run.hosts


def _output(hosts: Hosts, words: list[str]) -> str:
    process = hosts.start("a", words)
    out, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 0, out
    return out


def test_program_that_loads_the_library_at_run_time(run_hosts: Hosts) -> None:
    if not list(Path("/usr/lib").glob("*/libibverbs.so")):
        pytest.skip("the system has no libibverbs.so: apt-get install libibverbs-dev")
    found = json.loads(_output(run_hosts, PROGRAM))
    assert found == {"devices": ["srdma0"], "libraries": [str(LIBRARY.resolve())]}


def test_device_file(run_hosts: Hosts) -> None:
    """Python calls stat64() and access()."""
    found = json.loads(_output(run_hosts, ["/usr/bin/python3", "-c", DEVICE_FILE]))
    assert found == {"device": [True, True], "null": [True, True], "other": [False, False]}


def test_no_path_is_a_bad_address(run_hosts: Hosts) -> None:
    """A path of NULL gives EFAULT, as libc gives it, and the program goes on."""
    found = json.loads(_output(run_hosts, ["/usr/bin/python3", "-c", NO_PATH]))
    assert found == {name: [-1, errno.EFAULT] for name in ("stat", "stat64", "access")}


@pytest.mark.parametrize("words", [PROGRAM, ["ibv_devinfo"]], ids=["loads", "linked"])
def test_no_other_device_is_looked_for(run_hosts: Hosts, words: list[str], tmp_path: Path) -> None:
    test_run.needs(words[0])
    if shutil.which("strace") is None:
        pytest.skip("no strace: apt-get install strace")
    trace = tmp_path / "trace"
    out = _output(run_hosts, ["strace", "-f", "-e", "trace=%file", "-o", str(trace), *words])
    assert "srdma0" in out
    lines = trace.read_text().splitlines()
    assert any("/dev/null" in line for line in lines)  # cmd_fd: it opened the device
    assert not [line for line in lines if any(path in line for path in ELSEWHERE)]
