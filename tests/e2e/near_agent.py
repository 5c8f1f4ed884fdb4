"""The agent of a NIC whose host is the same computer: `python -m tests.e2e.near_agent POLICY`.

It is `srdma agent --config POLICY`, but believes that a leg which a user of this computer opened is
of the same user of a host (control-link.md 3). So programs may have legs over shared memory, which
they open at the worker themselves, while their channels come through a proxy and a control link.
"""

from __future__ import annotations

import sys
from pathlib import Path

from srdma.agent import program, worker
from srdma.agent.accounts import User, check_owner, host_of
from srdma.agent.policy import Policy


def check_near(user: User, opener: int, charged: str) -> None:
    """See check_owner()."""
    if isinstance(user, str) and not charged:
        user = int(user.removeprefix(f"{host_of(user)}:"))
    check_owner(user, opener, charged)


if __name__ == "__main__":
    worker.check_owner = check_near
    program.run(Policy(Path(sys.argv[1])))
