"""The file run.toml (srdma/run_policy.py)."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest

from srdma import run_policy
from srdma.errors import LocalError

GOOD = """\
worker = "/w"
agent = "/a"
identity = "host-a"
[[peer]]
gid = "10.0.0.0/24"
allow = ["spiffe://x/a", "spiffe://x/*"]
[[peer]]
gid = "fd00::1"
allow = ["spiffe://x/b"]
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_variable(tmp_path: Path) -> None:
    policy = run_policy.read(write(tmp_path, GOOD))
    system = {"libibverbs.so.1": Path("/v"), "librdmacm.so.1": Path("/c")}
    assert policy.variable(system) == (
        "worker=/w\nagent=/a\nidentity=host-a\nlibibverbs=/v\nlibrdmacm=/c\n"
        "peer=10.0.0.0/24 spiffe://x/a spiffe://x/*\n"
        "peer=fd00::1 spiffe://x/b\n"
    )


def test_mapped_memory(tmp_path: Path) -> None:
    for text, line in (("true", "map_memory=1\n"), ("false", "")):
        policy = run_policy.read(write(tmp_path, f"map_memory = {text}\n{GOOD}"))
        assert policy.variable({}).startswith(f"worker=/w\nagent=/a\nidentity=host-a\n{line}peer=")


def test_sockets_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRDMA_WORKER", "/other-w")
    monkeypatch.setenv("SRDMA_AGENT", "/other-a")
    text = GOOD.replace('worker = "/w"\nagent = "/a"\n', "")
    policy = run_policy.read(write(tmp_path, text))
    assert (policy.worker, policy.agent) == ("/other-w", "/other-a")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("worker =", "colour =", "unknown key 'colour'"),
        ('"/w"', '""', "worker is missing"),
        ('"/w"', "7", "worker is missing"),
        ('"/w"', '"/w\\n"', "control character"),
        ('identity = "host-a"\n', "", "identity is missing"),
        ('agent = "/a"\n', 'agent = "/a"\nmap_memory = 1\n', "map_memory must be true or false"),
        ("[[peer]]", "[[other]]", "unknown key 'other'"),
        ('gid = "10.0.0.0/24"', "", "the keys gid and allow"),
        ('"10.0.0.0/24"', '"10.0.0.1/24"', "has host bits set"),
        ('"10.0.0.0/24"', '"fd00::1"', "same gid"),
        ('["spiffe://x/b"]', "[]", "needs 1 to 16 identities"),
        ('["spiffe://x/b"]', "[7]", "must be texts"),
        ('["spiffe://x/b"]', '["no uri"]', "'no uri' in allow of"),
        ('["spiffe://x/b"]', '["spiffe://x/b c"]', "'spiffe://x/b c' in allow of"),
    ],
)
def test_bad_files(tmp_path: Path, old: str, new: str, text: str) -> None:
    assert old in GOOD
    with pytest.raises(LocalError, match=text):
        run_policy.read(write(tmp_path, GOOD.replace(old, new)))


def test_no_peers(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=r"1 to 64 entries \[\[peer\]\]"):
        run_policy.read(write(tmp_path, GOOD[: GOOD.index("[[")]))


def test_file_that_others_can_change(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.chmod(0o620)
    with pytest.raises(LocalError, match="other users can change it"):
        run_policy.read(path)


def test_no_file_and_no_toml(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="No such file"):
        run_policy.read(tmp_path / "run.toml")
    with pytest.raises(LocalError, match="Expected"):
        run_policy.read(write(tmp_path, "worker"))


def test_too_long(tmp_path: Path) -> None:
    long = "/" + "w" * run_policy.SIZE_MAX
    policy = run_policy.read(write(tmp_path, GOOD.replace("/w", long)))
    with pytest.raises(LocalError, match="more than 16383 bytes"):
        policy.variable({})


def test_limits_are_those_of_the_library() -> None:
    header = (Path(__file__).parents[2] / "verbs/policy.h").read_text()
    limits = dict(re.findall(r"\b(VERBS_\w+) = (\d+)", header))
    assert int(limits["VERBS_PEERS"]) == run_policy.PEERS_MAX
    assert int(limits["VERBS_ALLOWED"]) == run_policy.ALLOWED_MAX
    assert int(limits["VERBS_POLICY_LEN"]) == run_policy.SIZE_MAX + 1


def test_default_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SRDMA_CONFIG", "/my.toml")
    assert run_policy.default_path() == Path("/my.toml")
    monkeypatch.delenv("SRDMA_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/conf")
    assert run_policy.default_path() == Path("/conf/srdma/run.toml")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert run_policy.default_path() == Path.home() / ".config/srdma/run.toml"


def test_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = run_policy.read(write(tmp_path, GOOD))
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    made = run_policy.environment(policy, Path("/lib/run"))
    assert made["LD_LIBRARY_PATH"] == "/lib/run:/mine"
    assert made["LD_PRELOAD"] == ":".join(f"/lib/run/{name}" for name in run_policy.PRELOADED)
    system = run_policy.system_libraries(Path("/lib/run"))
    assert made["SRDMA_RUN"] == policy.variable(system)
    assert made["PATH"] == os.environ["PATH"]


def test_libraries_of_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other libraries with their names come first in the paths, as below `srdma run`."""
    for name in run_policy.LIBRARIES:
        (tmp_path / name).touch()
        ctypes.CDLL(name)  # installed by .ci/setup
    monkeypatch.setenv("LD_LIBRARY_PATH", f"{tmp_path}:/mine")
    assert run_policy.system_libraries(Path("/other")) == {}
    found = run_policy.system_libraries(tmp_path)
    assert list(found) == list(run_policy.LIBRARIES)
    assert all(path.is_file() and path.parent != tmp_path for path in found.values())


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).touch()


def test_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_policy, "__file__", str(tmp_path / "srdma" / "run_policy.py"))
    monkeypatch.setattr(run_policy, "FOLDERS", (str(tmp_path / "installed"),))
    with pytest.raises(LocalError, match="make run"):
        run_policy.find_library()
    (tmp_path / "installed").mkdir()
    touch(tmp_path / "installed", *run_policy.PRELOADED)
    assert run_policy.find_library() == tmp_path / "installed"
    monkeypatch.setenv("SRDMA_RUN_FOLDER", str(tmp_path))
    with pytest.raises(LocalError, match=r"SRDMA_RUN_FOLDER=.* has no librdmacm"):
        run_policy.find_library()
    touch(tmp_path, "librdmacm.so.1")
    with pytest.raises(LocalError, match=r"SRDMA_RUN_FOLDER=.* has no libibverbs"):
        run_policy.find_library()
    touch(tmp_path, "libibverbs.so.1")
    with pytest.raises(LocalError, match=r"SRDMA_RUN_FOLDER=.* has no libsrdma-device"):
        run_policy.find_library()
    touch(tmp_path, "libsrdma-device.so.1")
    assert run_policy.find_library() == tmp_path
