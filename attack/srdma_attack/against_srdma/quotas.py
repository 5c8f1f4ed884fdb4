"""A local program that takes all that a worker has. A program that comes later must get its share.

`requests_refused` is what the attacker sees.
"""

from __future__ import annotations

from collections.abc import Callable

from srdma_attack.against_srdma.local import memory
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import lab
from tests.daemon import Client, Kind, RefusedError, reg_mr
from tests.neighbours import neighbour

RING, RECORDS = 64, 1 << 16  # of a leg; records for as many QPs as a worker may have
MOST = 1 << 17  # requests after which a hog gives up


def hog(settings: Settings) -> Finding:
    """Takes legs, QPs and regions until the worker refuses more. A program that comes later needs
    one of each."""
    with lab(settings) as it, neighbour(it.server.worker.control) as intruder, memory() as file:
        leg, _ = intruder.open(RECORDS)
        refused = sum(
            _exhausts(take)
            for take in (
                lambda: intruder.init(leg, 1, 1),
                lambda: intruder.request(Kind.REG_MR, reg_mr(leg), [file]),
                lambda: intruder.open(RING),
            )
        )
        with neighbour(it.server.worker.control) as newcomer:
            served = _serves(newcomer)
        return Finding(outcome(not served), {"requests_refused": refused})


def _exhausts(take: Callable[[], object]) -> bool:
    """Repeats the request until it is refused. False if it never is."""
    for _ in range(MOST):
        try:
            take()
        except RefusedError:
            return True
    return False


def _serves(client: Client) -> bool:
    """True if the client gets a leg, a QP and a region."""
    try:
        leg, _ = client.open(RING)
        client.init(leg, 1, 1)
        with memory() as file:
            client.request(Kind.REG_MR, reg_mr(leg), [file])
    except (RefusedError, OSError, EOFError):
        return False
    return True
