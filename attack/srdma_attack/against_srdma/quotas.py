"""A program, or a remote identity, that takes all that a worker has. One that comes later must get
its share.

`requests_refused` is what the attacker sees. `quota_qps` are the QPs that the ledger refused
(USAGE, local-interface.md 3.10).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

from srdma import MR
from srdma.control import Control
from srdma.control.quotas import AccountKind, Quota, Usage, accounts, set_quota
from srdma.errors import RefusedError as Refusal
from srdma_attack.against_srdma.local import memory
from srdma_attack.attack import Finding, KitError, Settings, outcome
from srdma_attack.lab import RIGHTS, Lab, lab
from srdma_attack.peer import IDENTITY, Peer, read, write
from tests.daemon import Client, Kind, RefusedError, reg_mr
from tests.neighbours import neighbour

RING, RECORDS = 64, 1 << 16  # of a leg; records for as many QPs as a worker may have
MOST = 1 << 17  # requests after which a hog gives up
LIMIT, BEYOND = 12, 4  # QPs of the identity, and how many more it tries
BEHIND = 24  # packets of each QP behind a gap
CHUNK = 1 << 16  # bytes of a READ


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
            served = serves(newcomer)
        return Finding(outcome(not served), {"requests_refused": refused})


def _exhausts(take: Callable[[], object]) -> bool:
    """Repeats the request until it is refused. False if it never is."""
    for _ in range(MOST):
        try:
            take()
        except RefusedError:
            return True
    return False


def serves(client: Client) -> bool:
    """True if the client gets a leg, a QP and a region."""
    try:
        leg, _ = client.open(RING)
        client.init(leg, 1, 1)
        with memory() as file:
            client.request(Kind.REG_MR, reg_mr(leg), [file])
    except (RefusedError, OSError, EOFError):
        return False
    return True


# A remote identity -------------------------------------------------------------------------


def exhaust_as_peer(settings: Settings) -> Finding:
    """Takes QPs up to the limit of its identity and beyond, and keeps all of them busy. Then
    another identity connects, and works."""
    with lab(settings) as it:
        agent = it.server.pd.control
        agent.agent()
        set_quota(agent, (AccountKind.IDENTITY, IDENTITY), Quota(limits={"qps": LIMIT}))
        peers = _until_refused(it)
        region = it.undo.enter_context(it.server.pd.alloc(CHUNK, RIGHTS, scope="pd"))
        for peer in peers:
            take_all(peer, region)
        qps = _use(agent).uses["qps"]
        harmed = qps.used != LIMIT or len(peers) != LIMIT or not it.pair().works()
        note = f"{len(peers)} QPs of {LIMIT + BEYOND}"
        return Finding(outcome(harmed), {"quota_qps": qps.refused}, note)


def take_all(peer: Peer, region: MR) -> None:
    """Asks for as many READs as a QP may have, and confirms none; sends packets behind a gap."""
    late = write(region.addr, region.rkey, b"late")
    for number in range(peer.qp.info.reads):
        peer.send(replace(read(region.addr, region.rkey, CHUNK), request_id=number))
    for number in range(1, BEHIND + 1):
        peer.send(replace(late, request_id=peer.qp.info.reads + number))


def _until_refused(it: Lab) -> list[Peer]:
    """Connects QPs. Returns those that the worker accepted."""
    peers = []
    for _ in range(LIMIT + BEYOND):
        try:
            peers.append(Peer(it))
        except Refusal as refused:
            if refused.errno != errno.EDQUOT:
                raise
    return peers


def _use(agent: Control) -> Usage:
    """The resources that the identity of the malicious peer uses."""
    for account in accounts(agent):
        if account.name == IDENTITY:
            return account
    raise KitError("the worker has no account of the malicious peer")
