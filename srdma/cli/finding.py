"""A line of `srdma doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

SYS = Path("/sys")

State = Literal["ok", "note", "missing"]


@dataclass(frozen=True)
class Finding:
    """`missing`: the embedded NIC, or the process of the given file, cannot run here; `note`: only
    an optional feature cannot, or there is a risk."""

    name: str
    state: State
    detail: str
    remedy: str = ""


def read(path: Path) -> str:
    """The text of a file of the kernel; "" if there is no such file."""
    try:
        return path.read_text()
    except OSError:
        return ""
