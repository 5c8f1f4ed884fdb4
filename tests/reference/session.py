"""Both directions of one SRC QP (protocol.md 4): numbers, windows and the order on receive."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import wire
from .numbers import MAX_PN, Window, infer
from .protect import Direction, End, Mode, seal, unseal
from .reasons import RefusedError
from .suites import SUITES

FIRST_PN = range(1 << 23, 1 << 24)  # what a worker draws from


@dataclass(frozen=True)
class Params:
    role: int  # 0 client, 1 server
    suite: int
    level: int
    tag_len: int
    generation: bytes
    local_eid: bytes
    peer_eid: bytes
    local_qpn: int
    peer_qpn: int
    tx_pn: int  # first packet number of each direction
    rx_pn: int
    tx_secret: bytes
    rx_secret: bytes
    window: int = 64
    mtu: int = wire.MAX_PAYLOAD
    mode: int = Mode.BASIC

    def mirrored(self) -> Params:
        """Those of the other end."""
        return replace(
            self,
            role=1 - self.role,
            local_eid=self.peer_eid,
            peer_eid=self.local_eid,
            local_qpn=self.peer_qpn,
            peer_qpn=self.local_qpn,
            tx_pn=self.rx_pn,
            rx_pn=self.tx_pn,
            tx_secret=self.rx_secret,
            rx_secret=self.tx_secret,
        )

    def directions(self) -> tuple[Direction, Direction]:
        """(what this end sends, what it receives)"""
        local, peer = End(self.local_eid, self.local_qpn), End(self.peer_eid, self.peer_qpn)
        form = (self.suite, self.level, self.tag_len)
        tx = Direction(*form, self.role, local, peer, self.generation, self.tx_secret, self.mode)
        rx = replace(
            tx, direction=1 - self.role, sender=peer, receiver=local, secret=self.rx_secret
        )
        return tx, rx


class Session:
    def __init__(self, params: Params) -> None:
        self.params = params
        self.tx, self.rx = params.directions()
        self.next_pn = params.tx_pn
        self.window = Window(params.rx_pn, params.window)
        self._left = SUITES[params.suite].packets if params.suite else MAX_PN
        self._next_sent_id = 0  # id of the next request that this end sends
        self._next_seen_id = 0  # one more than the highest verified id of the peer

    def seal(self, p: wire.Packet, access_key: bytes | None = None) -> bytes:
        if p.request_id > MAX_PN:
            raise ValueError("a request id has 62 bits")
        if self._left == 0 or self.next_pn > MAX_PN:
            raise RuntimeError("the key's packet limit is reached: nothing is sent any more")
        data = seal(self.tx, self.next_pn, p, access_key)
        self.next_pn += 1
        self._left -= 1
        if p.row.request:
            self._next_sent_id = max(self._next_sent_id, p.request_id + 1)
        return data

    def open(self, data: bytes) -> tuple[int, wire.Packet]:
        """(packet number, fields with plaintext and 64-bit request id), or RefusedError."""
        p = wire.parse(data, self.params.tag_len, self.params.mtu)
        if p.qpn != self.params.local_qpn:
            raise RefusedError("unknown_qp", f"QPN {p.qpn:#08x}")
        pn = self.window.candidate(p.psn)
        p = replace(p, request_id=self._widen(p))
        if p.epoch != self.rx.epoch & 3:
            raise RefusedError("epoch", f"epoch bits {p.epoch}")
        opened = unseal(self.rx, pn, p)
        if opened is None:
            raise RefusedError("tag", f"of packet {pn}")
        self.window.move(pn)
        if p.row.request:
            self._next_seen_id = max(self._next_seen_id, p.request_id + 1)
        return pn, opened

    def _widen(self, p: wire.Packet) -> int:
        reference = self._next_seen_id if p.row.request else self._next_sent_id
        wide = infer(p.request_id, reference)
        if wide is None or (wide > reference and not p.row.request):
            raise RefusedError("request_id", f"{p.request_id:#08x} near {reference}")
        if p.ack and p.ack.request_id != wide & 0xFFFFFFFF:
            raise RefusedError("request_id", f"position {p.ack.request_id}, STH says {wide}")
        return wide
