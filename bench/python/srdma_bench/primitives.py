"""The programs of bench/ and their output. The program `primitives` measures MACs of blocks and
keys of memory ranges, in CPU time."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from srdma.errors import DeviceError, LocalError
from srdma_bench.stand import ROOT


@dataclass(frozen=True)
class Cell:
    """One line of the output of `primitives`. what: its argument, such as `aes-128-cmac:64`."""

    what: str
    threads: int
    ns: float
    per_second: float


def folder() -> Path:
    """The folder of the programs of bench/: in $BUILD, or in the build folder of this tree."""
    return ROOT / os.environ.get("BUILD", "build") / "bench"


def program(name: str) -> Path:
    """The path of a program of bench/. Raises LocalError if it is not built."""
    path = folder() / name
    if not os.access(path, os.X_OK):
        raise LocalError(f"the program {path} is missing: build it with `make bench`")
    return path


def said(command: Sequence[str | Path]) -> str:
    """The standard output of a program. Raises DeviceError with its stderr if it fails."""
    words = [os.fspath(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        text = done.stderr.strip() or f"code {done.returncode}"
        raise DeviceError(f"{Path(words[0]).name}: {text}")
    return done.stdout


def measure(
    cells: Sequence[str], *, threads: int = 1, ms: int = 5, provider: str = ""
) -> list[Cell]:
    """Measure each cell once. ms: CPU time of each; provider "": the fastest."""
    command = [str(program("primitives")), "--threads", str(threads), "--ms", str(ms)]
    command += ["--provider", provider] if provider else []
    found = [json.loads(line) for line in said([*command, *cells]).splitlines()]
    return [
        Cell(what, row["threads"], row["ns"], row["per_second"])
        for what, row in zip(cells, found, strict=True)
    ]
