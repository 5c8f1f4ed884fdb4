"""Attacks by source addresses. A worker must not follow an address before its owner has shown that
it receives there (RFC 9000 8 and 9.3)."""

from __future__ import annotations

import select
from collections.abc import Iterable

from srdma.errors import Error
from srdma_attack import datagrams
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import REGION, RIGHTS, Counters, lab
from srdma_attack.middle import LEFT, Rule, pass_on
from srdma_attack.peer import Peer, read
from tests.reference.icrc import ICRC_LEN

READS = 8  # with the victim's address
FACTOR = 3  # bytes to an address per byte from there (RFC 9000 8.1)
QUIET = 1.0  # seconds after which no more datagrams are expected
REQUESTS = 16  # of a client that is raced
PATIENCE = 5.0  # seconds of such a request


def reflect(settings: Settings) -> Finding:
    """An authorised peer sends READ requests with the source address of a victim, to whom the
    responses go."""
    with lab(settings) as it, datagrams.open_socket() as victim:
        peer = Peer(it)
        region = it.undo.enter_context(it.server.pd.alloc(REGION, RIGHTS, scope="pd"))
        counters = Counters(it.server)
        sent = got = 0
        for _ in range(READS):
            packet = peer.sealed_request(read(region.addr, region.rkey, REGION))
            datagrams.send(victim, packet, it.server.wire)
            sent += len(packet) + ICRC_LEN
        while select.select([victim], [], [], QUIET)[0]:
            got += len(victim.recv(datagrams.LONGEST))
        works = it.pair().works()
        note = f"{got} bytes at the victim for {sent}"
        return Finding(outcome(got > FACTOR * sent or not works), counters.rose(), note)


def race(settings: Settings) -> Finding:
    """An observer who cannot hold packets back sends a copy of each one from its own address, which
    arrives before the original. It passes nothing on."""
    with lab(settings) as it, datagrams.open_socket() as racer:
        middle = it.middle()
        pair = it.pair(middle, timeout=PATIENCE)
        counters = Counters(it.server)

        def copy(side: int, packet: bytes) -> Iterable[tuple[int, bytes]]:
            if side == LEFT:
                datagrams.send(racer, packet, it.server.wire)
            return pass_on(side, packet)

        rule: Rule = copy
        middle.rule = rule
        lost = 0
        try:
            for number in range(REQUESTS):
                pair.client.write(bytes([number]), pair.remote, number, timeout=PATIENCE)
        except Error:
            lost = 1
        return Finding(outcome(bool(lost) or not pair.works()), counters.rose())
