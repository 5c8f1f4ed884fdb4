"""Debian packages of another architecture, unpacked into a folder without installing them.

apt gets a state folder of its own, as if no package were installed, and the sources of this
machine. Nothing of this machine changes, and root is not needed.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ARCH = "arm64"


def unpack(names: Sequence[str], folder: Path) -> Path:
    """Returns FOLDER/root with the files of these packages and of all that they depend on.
    The folder's path is absolute, as apt requires.

    A second call with the same names changes nothing.
    """
    root, stamp = folder / "root", folder / "packages"
    wanted = "\n".join(names)
    if stamp.exists() and stamp.read_text() == wanted:
        return root
    shutil.rmtree(folder, ignore_errors=True)
    apt = _apt(folder)
    _run([*apt, "update"])
    _run([*apt, "install", "--download-only", "--no-install-recommends", "-y", *names])
    root.mkdir()
    archives = folder / "cache/archives"
    for package in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(root)])
    shutil.rmtree(archives)
    stamp.write_text(wanted)
    return root


def _apt(folder: Path) -> list[str]:
    """The command of an apt that knows no installed package."""
    state, cache = folder / "state", folder / "cache"
    for place in (state / "lists/partial", cache / "archives/partial"):
        place.mkdir(parents=True)
    status = folder / "status"
    status.touch()
    options = {
        "APT::Architecture": ARCH,
        "APT::Architectures": ARCH,
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "Dir::Cache": cache,
        "Dir::State": state,
        "Dir::State::status": status,
    }
    return ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]


def _run(command: Sequence[str]) -> None:
    """Runs a program; its output is shown if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print(done.stdout)
        done.check_returncode()
