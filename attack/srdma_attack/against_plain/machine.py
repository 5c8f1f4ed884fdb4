"""The virtual machine in which plain RoCE is attacked: tests/rxe/vm.py, whose kernel has rdma_rxe.

In it the same command runs, and prints a line of JSON for each attack.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from srdma_attack import ROOT
from srdma_attack.attack import Finding, KitError, Outcome, Settings

VM = "SRDMA_VM_SCRATCH"  # set in the virtual machines of tests/rxe/vm.py
SECONDS = 600


def is_inside() -> bool:
    return VM in os.environ


def findings(names: Sequence[str], settings: Settings) -> dict[str, Finding]:
    """Runs attacks on plain RoCE in a fresh machine. Raises KitError."""
    full = ["--full"] if settings.full else []
    done = subprocess.run(command([*names, *full]), cwd=ROOT, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if [line["attack"] for line in lines] != list(names):
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        raise KitError(f"the virtual machine failed with code {done.returncode}: {''.join(last)}")
    return {
        line["attack"]: Finding(Outcome(line["plain"]), note=line["note_plain"]) for line in lines
    }


def command(words: Sequence[str]) -> list[str]:
    """Runs `srdma attack` with these words in the machine."""
    inside = [sys.executable, "-m", "srdma", "attack", "--target", "plain", "--json", *words]
    return [sys.executable, "tests/rxe/vm.py", "--timeout", str(SECONDS), "--", *inside]
