"""The policy of `srdma run`, the file run.toml (docs/run.md 3), and the library that it gives to
programs.

The policy narrows what the agent grants. The library takes it from the environment: it has no
secret.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.agent.ranges import range_of, range_text
from srdma.errors import LocalError
from srdma.uri import check_pattern

VARIABLE = "SRDMA_RUN"
SIZE_MAX = 16_383  # bytes of the variable
PEERS_MAX, ALLOWED_MAX = 64, 16  # of entries, of identities in one
KEYS, PEER_KEYS = {"worker", "agent", "identity", "map_memory", "peer"}, {"gid", "allow"}
LIBRARIES = "librdmacm.so.1", "libibverbs.so.1"  # the system may have them, too
PRELOADED = (*LIBRARIES, "libsrdma-device.so.1")
# A program that loads libraries and prints the files that it has mapped.
LOAD = """
import ctypes, sys
for name in sys.argv[1:]:
    ctypes.CDLL(name)
print(open("/proc/self/maps").read())
"""
FOLDERS = ("/usr/local/lib/srdma/run", "/usr/lib/srdma/run")


@dataclass(frozen=True)
class RunPolicy:
    """worker, agent: their sockets; identity: a name of the agent's policy; peers: range of GIDs
    -> identities that are allowed there; map_memory: docs/run.md 4.1."""

    worker: str
    agent: str
    identity: str
    peers: Mapping[str, tuple[str, ...]]
    map_memory: bool = False

    def variable(self, system: Mapping[str, Path]) -> str:
        """The value of $SRDMA_RUN. system: system_libraries(). Raises LocalError if it is too
        long."""
        lines = [f"worker={self.worker}", f"agent={self.agent}", f"identity={self.identity}"]
        lines += [f"{name.split('.')[0]}={path}" for name, path in system.items()]
        lines += ["map_memory=1"] if self.map_memory else []
        lines += [f"peer={gids} {' '.join(allowed)}" for gids, allowed in self.peers.items()]
        text = "".join(f"{line}\n" for line in lines)
        if len(text.encode()) > SIZE_MAX:
            raise LocalError(f"the policy has more than {SIZE_MAX} bytes: give fewer peers")
        return text


def default_path() -> Path:
    """$SRDMA_CONFIG, else ~/.config/srdma/run.toml."""
    if chosen := os.environ.get("SRDMA_CONFIG"):
        return Path(chosen)
    base = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(base) / "srdma" / "run.toml"


def read(path: Path) -> RunPolicy:
    """The policy of a file that only this user or root can change. Raises LocalError."""
    try:
        with path.open("rb") as file:
            _check_owner(path, os.fstat(file.fileno()))
            fields = tomllib.load(file)
        return _policy(fields)
    except OSError as error:
        raise LocalError(f"{path}: {error.strerror}: docs/run.md has an example") from None
    except ValueError as error:
        raise LocalError(f"{path}: {error}") from None


def find_library() -> Path:
    """Folder of the libraries: $SRDMA_RUN_FOLDER, else this tree's build folder, else that of
    `make install`. Raises LocalError."""
    if chosen := os.environ.get("SRDMA_RUN_FOLDER"):
        if missing := _missing(Path(chosen)):
            raise LocalError(
                f"SRDMA_RUN_FOLDER={chosen} has no {missing}: give the folder that has it"
            )
        return Path(chosen)
    tree = Path(__file__).resolve().parents[1] / "build" / "run"
    for folder in (tree, *map(Path, FOLDERS)):
        if not _missing(folder):
            return folder
    raise LocalError(
        f"{' and '.join(PRELOADED)} of srdma not found: build them by `make run`, or install them "
        "by `make install`"
    )


def system_libraries(library: Path) -> dict[str, Path]:
    """Names and paths of the libraries of the system; none if one of them is not installed. A
    process loads them that does not see those of `library`: this one may have been started by
    `srdma run` itself."""
    command = [sys.executable, "-I", "-c", LOAD, *LIBRARIES]
    clean = dict(os.environ)
    for variable in ("LD_LIBRARY_PATH", "LD_PRELOAD"):
        words = os.environ.get(variable, "").split(":")
        clean[variable] = ":".join(word for word in words if not word.startswith(str(library)))
    loaded = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    paths = [Path(line.split(maxsplit=5)[5]) for line in loaded.stdout.splitlines() if "/" in line]
    found = {name: path for name in LIBRARIES for path in paths if path.name.startswith(name)}
    return found if len(found) == len(LIBRARIES) else {}


def environment(policy: RunPolicy, library: Path) -> dict[str, str]:
    """The environment of a program: linked programs and those that load the libraries later
    find srdma's."""
    made = dict(os.environ)
    made[VARIABLE] = policy.variable(system_libraries(library))
    made["LD_LIBRARY_PATH"] = ":".join(
        filter(None, (str(library), os.environ.get("LD_LIBRARY_PATH")))
    )
    ours = [str(library / name) for name in PRELOADED]
    made["LD_PRELOAD"] = ":".join(filter(None, (*ours, os.environ.get("LD_PRELOAD"))))
    return made


# Internal -----------------------------------------------------------------------


def _missing(folder: Path) -> str:
    """The first library that a folder lacks, or ""."""
    return next((name for name in PRELOADED if not (folder / name).is_file()), "")


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LocalError(f"{path}: other users can change it: make it yours, with mode 0600")


def _policy(fields: dict[str, Any]) -> RunPolicy:
    """Raises ValueError."""
    if unknown := sorted(set(fields) - KEYS):
        raise ValueError(f"unknown key {unknown[0]!r}: known are {', '.join(sorted(KEYS))}")
    texts = [
        _text(name, fields.get(name, os.environ.get(variable, "")))
        for name, variable in (("worker", "SRDMA_WORKER"), ("agent", "SRDMA_AGENT"))
    ]
    entries = fields.get("peer", [])
    if not isinstance(entries, list) or not 0 < len(entries) <= PEERS_MAX:
        raise ValueError(f"it needs 1 to {PEERS_MAX} entries [[peer]]")
    peers = dict(_peer(entry) for entry in entries)
    if len(peers) < len(entries):
        raise ValueError("two entries [[peer]] have the same gid")
    map_memory = fields.get("map_memory", False)
    if not isinstance(map_memory, bool):
        raise ValueError("map_memory must be true or false")
    identity = _text("identity", fields.get("identity", ""))
    return RunPolicy(texts[0], texts[1], identity, peers, map_memory)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is missing: give a text")
    if any(ord(letter) < ord(" ") for letter in value):
        raise ValueError(f"{name} has a control character")
    return value


def _peer(entry: object) -> tuple[str, tuple[str, ...]]:
    if not isinstance(entry, dict) or set(entry) != PEER_KEYS:
        raise ValueError("an entry [[peer]] has the keys gid and allow")
    gids, allowed = range_text(range_of(entry["gid"], "[[peer]]")), entry["allow"]
    if not isinstance(allowed, list) or not 0 < len(allowed) <= ALLOWED_MAX:
        raise ValueError(f"allow of [[peer]] {gids} needs 1 to {ALLOWED_MAX} identities")
    for identity in allowed:
        if not isinstance(identity, str):
            raise ValueError(f"allow of [[peer]] {gids} must be texts")
        try:
            check_pattern(identity)
        except ValueError as error:
            raise ValueError(f"{identity!r} in allow of [[peer]] {gids}: {error}") from None
    return gids, tuple(allowed)
