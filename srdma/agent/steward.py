"""Gives the quotas of a policy to the processes of a worker (agent.md 12)."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from srdma.agent.audit import Audit
from srdma.agent.quotas import Quotas
from srdma.control import Control
from srdma.control.quotas import set_quotas
from srdma.errors import DeviceError, Timeout

REVISIONS = 1 << 32


class Steward:
    """Each policy has its revision, by which the worker knows the quotas of earlier ones. The first
    is random: the policy of an agent before had another one."""

    def __init__(self, quotas: Callable[[], Quotas], audit: Audit) -> None:
        """quotas: those of the policy in force."""
        self._quotas, self._audit = quotas, audit
        self._revision = secrets.randbelow(REVISIONS)

    def renew(self) -> None:
        """The policy was read again."""
        self._revision = (self._revision + 1) % REVISIONS

    def give(self, control: Control) -> None:
        """Give all quotas to a worker process, by a connection that has the role for all legs.

        Twice: what the first pass takes from some accounts, the second one guarantees to others. A
        worker that refuses them, or ends, has an audit line.
        """
        quotas = self._quotas().all()
        try:
            set_quotas(control, quotas, self._revision)
            refused = set_quotas(control, quotas, self._revision)
        except (DeviceError, Timeout) as error:
            self._audit("failed", code="quota", text=str(error))
            return
        if refused:
            (kind, name), first = refused[0]
            text = f"{len(refused)} of {len(quotas)} quotas, first {kind.name} {name!r}: {first}"
            self._audit("failed", code="quota", text=text)
