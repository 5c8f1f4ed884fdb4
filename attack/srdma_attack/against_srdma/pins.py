"""An authorised peer that keeps what all peers share: packets behind a gap that it never fills."""

from __future__ import annotations

from dataclasses import replace

from srdma_attack.against_srdma.on_path import DATA, Reorder
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import REGION, RIGHTS, WAIT, Counters, lab, until
from srdma_attack.middle import pass_on
from srdma_attack.peer import Peer, write

HOGS = 32  # QPs of the peer
BEHIND = 24  # packets of each behind the gap


def reorder_buffers(settings: Settings) -> Finding:
    """Fills the reorder buffers, on many QPs of one identity, until the worker keeps no more. Then
    packets of the neighbour arrive out of order."""
    with lab(settings) as it:
        middle = it.middle()
        pair = it.pair(middle)
        region = it.undo.enter_context(it.server.pd.alloc(REGION, RIGHTS, scope="pd"))
        counters = Counters(it.server)
        for peer in [Peer(it) for _ in range(HOGS)]:
            for number in range(1, BEHIND + 1):
                peer.send(replace(write(region.addr, region.rkey, b"late"), request_id=number))
        until(lambda: counters.rose().get("refused_gap", 0) > 0, "a packet without a place")
        pinned = counters.rose()
        neighbour = Counters(it.server)
        middle.rule = Reorder()
        pair.client.write(DATA, pair.remote, timeout=WAIT)
        middle.rule = pass_on
        kept, dropped = (neighbour.rose().get(name, 0) for name in ("kept", "refused_gap"))
        note = f"{kept} packets of the neighbour kept, {dropped} dropped"
        return Finding(outcome(dropped > 0 or not pair.works()), pinned, note)
