"""The environment of a result: machine, programs and crypto provider."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from subprocess import run
from typing import Any

import srdma
from srdma.embedded import find_worker
from srdma_bench.device import Device
from srdma_bench.primitives import folder
from srdma_bench.stand import ROOT, Stand

PACKAGES = (Path(srdma.__file__).resolve().parent, Path(__file__).resolve().parent)
FLAGS = ("aes", "vaes", "avx2", "avx512f", "sha_ni", "asimd", "sha2")


@dataclass(frozen=True)
class Facts:
    """The environment of a result."""

    device: str
    provider: str
    commit: str
    build: str  # digest of the binaries and packages in use
    cpu: str
    flags: str
    cores: int  # number of cores that this process may use
    memory_gib: int
    kernel: str
    openssl: str
    ipsec_mb: str


def facts_here(device: Device) -> dict[str, Any]:
    """The facts for a folder of results. Starts a stand to learn the crypto provider."""
    with Stand(device) as stand:
        return asdict(facts(device.name, stand.provider))


def facts(device: str, provider: str) -> Facts:
    """The facts of this machine."""
    cpuinfo = Path("/proc/cpuinfo").read_text()
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpuinfo, re.MULTILINE)
    has = set(found[1].split()) if found else set()
    model = re.search(r"^model name\s*:\s*(.*)$", cpuinfo, re.MULTILINE)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Facts(
        device=device,
        provider=provider,
        commit=_commit(),
        build=_build(),
        cpu=model[1] if model else platform.machine(),
        flags=" ".join(flag for flag in FLAGS if flag in has),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(memory / 2**30),
        kernel=platform.release(),
        openssl=_said_by("libcrypto.so.3", "OpenSSL_version", 0),
        ipsec_mb=_said_by("libIPSec_MB.so.1", "imb_get_version_str"),
    )


def _commit() -> str:
    """The commit, with a "+" if there are uncommitted changes; "" outside a repository."""
    done = run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip()


def _build() -> str:
    """A digest of the worker, the programs of bench/ and both packages with their extensions."""
    programs = (path for path in folder().glob("*") if path.is_file() and os.access(path, os.X_OK))
    package = (path for root in PACKAGES for kind in ("*.py", "*.so") for path in root.rglob(kind))
    digest = sha256()
    for path in (find_worker(), *sorted(programs), *sorted(package)):
        with open(path, "rb") as file:
            digest.update(path.name.encode() + file_digest(file, sha256).digest())
    return digest.hexdigest()[:12]


def _said_by(library: str, function: str, *words: int) -> str:
    """The version that a library reports; "" if it is not installed."""
    try:
        ask = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return ""
    ask.restype = ctypes.c_char_p
    return (ask(*words) or b"").decode()
