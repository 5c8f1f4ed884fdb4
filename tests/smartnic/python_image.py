"""Makes python.cpio: Python, srdma and the packages that it needs, for a NIC that runs the agent.

    python -m tests.smartnic.python_image FOLDER

FOLDER is that of image.py, which comes first. The kernel unpacks python.cpio behind firmware.cpio.
Python is Debian's. The packages are wheels for aarch64 from the package index that pip uses. The
extension modules of srdma are those that `make native-arm64` left beside their sources.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

from tests.rxe import cpio
from tests.smartnic.image import libraries, unpacked

ROOT = Path(__file__).parents[2]
VERSION = sysconfig.get_python_version()  # that of this machine, which compiles the byte code
STDLIB = f"usr/lib/python{VERSION}"
SITE = f"usr/local/lib/python{VERSION}/dist-packages"
UNUSED = ("test", "idlelib", "lib2to3", "ensurepip", "turtledemo", "tkinter", "pydoc_data")
PLATFORMS = "manylinux2014_aarch64", "manylinux_2_28_aarch64"


def make(folder: Path) -> None:
    root, tree = unpacked(folder), folder / "python"
    shutil.rmtree(tree, ignore_errors=True)
    unused = shutil.ignore_patterns(*UNUSED, "__pycache__", "config-*")
    shutil.copytree(root / STDLIB, tree / STDLIB, ignore=unused)
    shutil.copytree(_wheels(folder / "wheels"), tree / SITE)
    foreign = shutil.ignore_patterns("__pycache__", "*.pyx", "*.pxd", "*.pyi", "*-x86_64-*.so")
    shutil.copytree(ROOT / "srdma", tree / SITE / "srdma", ignore=foreign)
    _compile(tree)
    files = {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}
    python = root / f"usr/bin/python{VERSION}"
    files["bin/python3"] = python.read_bytes()
    for path in libraries(root, [python, *tree.rglob("*.so")]):
        files[str(path.relative_to(root))] = path.read_bytes()
    (folder / "python.cpio").write_bytes(cpio.archive(files))


def _wheels(folder: Path) -> Path:
    """The packages that srdma depends on, for aarch64, in a folder that is filled once."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        wanted = tomllib.load(file)["project"]["dependencies"]
    stamp = folder / ".wanted"
    if stamp.exists() and stamp.read_text() == repr(wanted):
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    platforms = [f"--platform={name}" for name in PLATFORMS]
    options = ["--target", folder, *platforms, "--only-binary=:all:"]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-compile"]
    subprocess.run([*pip, *options, "--python-version", VERSION, *wanted], check=True)
    stamp.write_text(repr(wanted))
    return folder


def _compile(tree: Path) -> None:
    """Writes byte code that Python does not compare with times: files of an initramfs have none.
    Without it the NIC would compile for a minute at each start."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*command, "-s", str(tree), "-p", "/", str(tree)], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve())
