"""An authorised peer reaches for memory that it may not use. It has valid keys, so that only the
access checks of protocol.md 6 stop it. Each refused request costs it its QP."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable

from srdma import MR, PD, Access, RecvWR, SecureQP
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import REGION, RIGHTS, WAIT, Counters, Lab, lab
from srdma_attack.peer import Peer, read, write
from tests.reference import wire
from tests.reference.reasons import Reason

SECRET = b"not for this peer"
GUESSES = 32
SEED = 16
SIZE = 4096
FRESH = (1, 7, 1023, 4096, 4099, 65536)  # bytes of regions
FORMER = 4  # regions of each size
WRITABLE = Access.LOCAL_WRITE | Access.REMOTE_WRITE
READABLE = Access.LOCAL_WRITE | Access.REMOTE_READ


def _secret(
    it: Lab, rights: Access = RIGHTS, pd: PD | None = None, *,
    scope: SecureQP | str = "pd", proof: bool = False,
) -> MR:  # fmt: skip
    """A region of the victim with SECRET at its start. proof: it demands memory proofs."""
    pd = pd or it.server.pd
    made = pd.alloc(SIZE, rights, proof=True) if proof else pd.alloc(SIZE, rights, scope=scope)
    region = it.undo.enter_context(made)
    region.buf[: len(SECRET)] = SECRET
    return region


def _refused(it: Lab, requests: Iterable[tuple[Peer, wire.Packet, Reason]], region: MR) -> Finding:
    """Sends each request. It must be refused for its reason, and must neither give nor change
    bytes of the region, of which each lies wholly inside."""
    counters = Counters(it.server)
    before = bytes(region.buf)
    succeeded = False
    for peer, packet, reason in requests:
        found, data = peer.verdict(packet)
        succeeded |= found is not reason or bool(data)
    changed = bytes(region.buf) != before
    works = it.pair().works()
    return Finding(outcome(succeeded or changed or not works), counters.rose())


def guess_rkey(settings: Settings) -> Finding:
    """Tries the neighbours of its own rkey, and random ones."""
    with lab(settings) as it:
        region = _secret(it)
        own = it.undo.enter_context(it.server.pd.alloc(SIZE, RIGHTS, scope="pd")).rkey
        dice = random.Random(SEED)
        near = [(own + step) % (1 << 32) for step in (-256, -1, 1, 256)]
        guesses = near + [dice.randrange(1 << 32) for _ in range(GUESSES)]
        requests = (
            (Peer(it), read(region.addr, rkey, len(SECRET)), Reason.BAD_RKEY)
            for rkey in guesses
            if rkey not in (own, region.rkey)
        )
        return _refused(it, requests, region)


def use_rkey_of_another_pd(settings: Settings) -> Finding:
    """Knows the rkey of another program at the same worker."""
    with lab(settings) as it:
        other = it.host(it.server.worker)
        region = _secret(it, pd=other.pd)
        packets = (read(region.addr, region.rkey, 8), write(region.addr, region.rkey, b"evil"))
        return _refused(it, ((Peer(it), p, Reason.WRONG_PD) for p in packets), region)


def use_rkey_of_another_qp(settings: Settings) -> Finding:
    """Knows the rkey that was given to another peer of the same PD."""
    with lab(settings) as it:
        region = _secret(it, scope=Peer(it).qp)
        packets = (read(region.addr, region.rkey, 8), write(region.addr, region.rkey, b"evil"))
        return _refused(it, ((Peer(it), p, Reason.QP_SCOPE) for p in packets), region)


def waive_proof(settings: Settings) -> Finding:
    """Knows the rkey of a region that demands memory proofs, and has no capability."""
    with lab(settings) as it:
        region = _secret(it, proof=True)
        packets = (read(region.addr, region.rkey, 8), write(region.addr, region.rkey, b"evil"))
        return _refused(it, ((Peer(it), p, Reason.PROOF_REQUIRED) for p in packets), region)


def over_read(settings: Settings) -> Finding:
    """Reads and writes beyond both ends of its region."""
    with lab(settings) as it:
        region = _secret(it)
        at, end, rkey = region.addr, region.addr + SIZE, region.rkey
        packets = (
            read(at - 1, rkey, 8), read(end - 4, rkey, 8), read(at, rkey, SIZE + 1),
            read(end, rkey, 1), read(at - 8, rkey, 4), write(end - 1, rkey, b"evil"),
            write(at - 1, rkey, b"evil"), read((1 << 64) - 4, rkey, 8),
        )  # fmt: skip
        return _refused(it, ((Peer(it), p, Reason.OUT_OF_BOUNDS) for p in packets), region)


def exceed_rights(settings: Settings) -> Finding:
    """Reads a region for writes, writes a region for reads, and changes both by atomics."""
    with lab(settings) as it:
        region, readable = _secret(it, WRITABLE), _secret(it, READABLE)
        add = (
            wire.Packet(wire.Op.FETCH_ADD, va=mr.addr, rkey=mr.rkey, swap_add=1)
            for mr in (region, readable)
        )
        packets = (
            read(region.addr, region.rkey, 8), write(readable.addr, readable.rkey, b"evil"), *add,
        )  # fmt: skip
        found = _refused(it, ((Peer(it), p, Reason.NO_RIGHT) for p in packets), region)
        changed = bytes(readable.buf[: len(SECRET)]) != SECRET
        return Finding(outcome(changed), found.counters) if changed else found


def late_access(settings: Settings) -> Finding:
    """Uses an rkey after the region was deregistered, and the memory has other contents."""
    with lab(settings) as it:
        buffer = bytearray(SIZE)
        with it.server.pd.reg_mr(buffer, RIGHTS, scope="pd") as former:
            rkey, address = former.rkey, former.addr
        buffer[: len(SECRET)] = SECRET
        region = it.undo.enter_context(it.server.pd.reg_mr(buffer, RIGHTS, scope="pd"))
        packets = (read(address, rkey, 8), write(address, rkey, b"evil"))
        return _refused(it, ((Peer(it), p, Reason.BAD_RKEY) for p in packets), region)


def stale_read(settings: Settings) -> Finding:
    """Reads memory that was just allocated for what others left: in former regions of the same
    sizes, which it read too, and in the buffers of the worker, which carried it."""
    with lab(settings) as it:
        pair, peer = it.pair(), Peer(it)
        counters = Counters(it.server)
        leaked = 0
        for size in FRESH:
            with contextlib.ExitStack() as regions:
                for _ in range(FORMER):
                    former = regions.enter_context(it.server.pd.alloc(size, RIGHTS, scope="pd"))
                    former.buf[:] = (SECRET * (size // len(SECRET) + 1))[:size]
                    peer.fetch(read(former.addr, former.rkey, size))
            pair.client.write(SECRET * (REGION // len(SECRET)), pair.remote, timeout=WAIT)
            for _ in range(FORMER):
                with it.server.pd.alloc(size, RIGHTS, scope="pd") as fresh:
                    leaked += sum(map(bool, peer.fetch(read(fresh.addr, fresh.rkey, size))))
        note = f"{leaked} bytes that are not zero"
        return Finding(outcome(leaked > 0 or not pair.works()), counters.rose(), note)


def remote_invalidate(settings: Settings) -> Finding:
    """Invalidates the rkey that another peer uses, by SEND with invalidate."""
    with lab(settings) as it:
        pair = it.pair()
        peer = Peer(it)
        message = it.undo.enter_context(it.server.pd.alloc(SIZE))
        peer.qp.post_recv(RecvWR(sg=[message.sge()]))
        counters = Counters(it.server)
        packet = wire.Packet(wire.Op.SEND_ONLY_INV, imm=pair.region.rkey, payload=b"x")
        reason, _ = peer.verdict(packet)
        harmed = reason is not Reason.UNSUPPORTED or not pair.works()
        return Finding(outcome(harmed), counters.rose())
