"""The workers' counters of a run: whether its packets had the agreed protection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from srdma.errors import IntegrityError
from srdma.native.constants import PING_MS

if TYPE_CHECKING:
    from srdma_bench.perf.measure import Result

SPARE = 4  # QPs of other users that may exist during a run


class Protection(Protocol):
    """The protection in force."""

    @property
    def level(self) -> str: ...

    @property
    def proof(self) -> bool:
        """True if requests use a capability."""

    @property
    def qps(self) -> int: ...


def pings(qps: int, seconds: float) -> int:
    """The maximum number of packets of idle QPs that a run may count: those of a second connection
    with as many QPs, compared in turn, and of SPARE others. Both ends count each PING and its
    ack."""
    return 4 * (qps + SPARE) * (1 + int(seconds * 1000 / PING_MS))


def gained(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """The difference of each counter."""
    return {name: after[name] - before[name] for name in after}


def check_counts(
    protection: Protection, result: Result, a: Mapping[str, float], b: Mapping[str, float],
    *, answers: int = 1,
) -> None:  # fmt: skip
    """Check the workers' counters of a run. Raises IntegrityError.

    Each message must be at least one packet that A sealed and B verified. At least `answers`
    packets must have been sealed by B and verified by A; one ack may cover many messages. In modes
    with `mem` each WRITE and READ carries a proof. At most pings() packets may have another
    protection.
    """
    sent, received = "packets_sealed", "packets_verified"
    other = "packets_unprotected_sent"
    if protection.level == "none":
        sent, received, other = other, "packets_unprotected_received", sent
    least = result.messages
    counts = [
        (sent, a[sent], least),
        (f"{received} at the peer", b[received], least),
        (f"{sent} at the peer", b[sent], answers),
        (received, a[received], answers),
    ]
    if protection.proof and not result.plan.row.messages:
        counts += [("proofs_made", a["proofs_made"], least)]
        counts += [("proofs_verified at the peer", b["proofs_verified"], least)]
    for name, count, wanted in counts:
        if count < wanted:
            raise IntegrityError(
                f"{result.messages} messages, but {count:.0f} were counted as {name}"
            )
    seconds = max(result.ns, sum(result.times)) / 1e9
    if (odd := a[other] + b[other]) > pings(protection.qps, seconds):
        raise IntegrityError(
            f"{odd:.0f} packets counted as {other} in a run at level {protection.level}"
        )
