"""Switches machines of the stand, from a test inside it (stand.py has the other end)."""

from __future__ import annotations

import os
import time
from pathlib import Path

PATIENCE = 30  # seconds


def switch(machine: str, action: str) -> None:
    """machine: nic0, nic1, host0 or host1.

    action: "off" as if its power failed; "stall" until "continue"; NIC 1 alone can be "on" again
    (plan.options). Returns when this is done; a machine that is on must still boot.
    """
    folder = Path(os.environ["SRDMA_VM_SCRATCH"], "power")
    request = folder / machine
    draft = folder / f".{machine}"
    draft.write_text(action)
    draft.rename(request)
    deadline = time.monotonic() + PATIENCE
    while request.exists():
        assert time.monotonic() < deadline, f"nothing switched {machine} {action}"
        time.sleep(0.1)
