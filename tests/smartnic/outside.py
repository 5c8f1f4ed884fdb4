"""The operator of the stand: it switches machines, searches their memory, and has the man in the
middle of the wire.

Tests inside the stand ask it by files in a folder that both see. The name of a file is the target,
its content the request; the operator replaces it by the file `.TARGET` with the answer.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Self

from tests.e2e.mitm import Count, Faults
from tests.smartnic.keys import Found

FOLDER = "operator"  # in the scratch folder of host 0's machine
PATIENCE, SEARCH_PATIENCE = 30, 280  # seconds
PAUSE_S = 30


class Operator(threading.Thread):
    """The end outside the stand. targets: functions from a request to its answer, by name."""

    def __init__(self, scratch: Path, targets: Mapping[str, Callable[[str], str]]) -> None:
        super().__init__(daemon=True)
        self._folder = scratch / FOLDER
        self._targets = targets
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.1):
            for file in self._folder.glob("[!.]*"):
                answer = self._targets[file.name](file.read_text())
                (self._folder / f".{file.name}").write_text(answer)
                file.unlink()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()


def ask(target: str, request: str, patience: float = PATIENCE) -> str:
    """The end inside the stand: the answer to a request."""
    folder = Path(os.environ["SRDMA_VM_SCRATCH"], FOLDER)
    file, other = folder / target, folder / f".{target}"
    other.write_text(request)
    other.rename(file)
    deadline = time.monotonic() + patience
    while file.exists():
        assert time.monotonic() < deadline, f"the operator did not do: {target} {request}"
        time.sleep(0.1)
    return other.read_text()


def switch(machine: str, action: str) -> None:
    """machine: nic0, nic1, host0 or host1.

    action: "off" as if its power failed; "stall" until "continue"; a NIC can be "on" again, NIC 0
    only with a man in the middle (docs/testing.md). Returns when this is done; a machine that is on
    must still boot.
    """
    ask(machine, action)


def pause(machine: str) -> None:
    """Stops the machine for PAUSE_S, also the one of this process. To others it seems to be off."""
    ask(machine, "pause", PAUSE_S + PATIENCE)


def tamper(faults: Faults, seed: int = 1) -> None:
    """The man in the middle of the wire, if there is one, makes these faults from now on."""
    assert ask("wire", " ".join(map(str, ("faults", seed, *faults)))) == "ok"


def tampered() -> Count:
    """The counts of the man in the middle, since its start."""
    return Count(*map(int, ask("wire", "count").split()))


def keys_in(machine: str, mark: str) -> Found:
    """Keys in the memory of a machine, after keys.tell() of both NICs with this mark."""
    return Found(**json.loads(ask(f"keys-{machine}", mark, SEARCH_PATIENCE)))
