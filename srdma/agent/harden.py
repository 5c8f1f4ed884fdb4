"""Protection of the memory of an agent: it holds private keys (agent.md 1)."""

from __future__ import annotations

import ctypes
import resource

PR_SET_DUMPABLE = 4


def harden() -> None:
    """Forbid core dumps and tracing by processes of the same user; use all descriptors."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")
