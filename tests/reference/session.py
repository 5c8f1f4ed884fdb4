"""Both directions of one SRC QP (protocol.md 4): numbers, windows and the
order of receive checks."""

from __future__ import annotations

from dataclasses import dataclass, replace

from . import epoch, wire
from .ack import Kind
from .numbers import MAX_PN, Window, infer
from .protect import Direction, End, Mode, seal, unseal
from .reasons import RefusedError
from .suites import SUITES

FIRST_PN = range(1 << 23, 1 << 24)  # range from which a worker draws


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
    rekey_packets: int = epoch.PACKETS
    rekey_bytes: int = epoch.BYTES
    rekey_ns: int = epoch.NANOSECONDS

    def mirrored(self) -> Params:
        """Returns the parameters of the other end."""
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
        """Returns (direction that this end sends, direction that it receives)."""
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
        tx, rx = params.directions()
        limits = epoch.Limits(params.rekey_packets, params.rekey_bytes, params.rekey_ns)
        hard_stop = SUITES[params.suite].packets if params.suite else MAX_PN
        self.outgoing = epoch.Outgoing(tx, params.tx_pn, hard_stop, limits)
        self.incoming = epoch.Incoming(rx)
        self.opened_in = rx  # direction in which the last packet was opened
        self.next_pn = params.tx_pn
        self.window = Window(params.rx_pn, params.window)
        self._next_sent_id = 0  # id of the next request that this end sends
        self._next_seen_id = 0  # one more than the highest verified id of the peer

    @property
    def tx(self) -> Direction:
        return self.outgoing.now

    @property
    def rx(self) -> Direction:
        return self.incoming.now

    def advance(self, now: int, told: int) -> int:
        """See epoch.Outgoing."""
        if not self.params.level:
            return 0
        return self.outgoing.advance(now, told, self.rx.epoch, self.next_pn)

    def renew(self, direction: int, secret: bytes) -> None:
        """Sets a new secret for receiving (direction 1) or sending (2)."""
        (self.incoming if direction == 1 else self.outgoing).fresh = secret

    def seal(self, p: wire.Packet, access_key: bytes | None = None) -> bytes:
        if p.request_id > MAX_PN:
            raise ValueError("a request id has 62 bits")
        if self.next_pn > MAX_PN:
            raise RuntimeError("packet numbers have 62 bits: nothing is sent any more")
        data = seal(self.tx, self.next_pn, p, access_key)
        last_words = p.ack is not None and p.ack.kind in (Kind.NAK, Kind.CLOSE)
        self.outgoing.spend(len(p.payload), last_words)
        self.next_pn += 1
        if p.row.request:
            self._next_sent_id = max(self._next_sent_id, p.request_id + 1)
        return data

    def open(self, data: bytes) -> tuple[int, wire.Packet]:
        """Returns (packet number, fields with plaintext and 64-bit request
        id) or raises RefusedError."""
        p = wire.parse(data, self.params.tag_len, self.params.mtu)
        if p.qpn != self.params.local_qpn:
            raise RefusedError("unknown_qp", f"QPN {p.qpn:#08x}")
        pn = self.window.candidate(p.psn)
        p = replace(p, request_id=self._widen(p))
        opened = self._unseal(pn, p)
        self.window.move(pn)
        self.incoming.verified(self.opened_in, pn)
        self.incoming.passed(self.window.highest, self.window.size)
        if p.row.request:
            self._next_seen_id = max(self._next_seen_id, p.request_id + 1)
        return pn, opened

    def _unseal(self, pn: int, p: wire.Packet) -> wire.Packet:
        for d in self.incoming.candidates(p.epoch, pn, self.window.highest):
            opened = unseal(d, pn, p)
            if opened is not None:
                self.opened_in = d
                return opened
        raise RefusedError("tag", f"of packet {pn}")

    def _widen(self, p: wire.Packet) -> int:
        reference = self._next_seen_id if p.row.request else self._next_sent_id
        wide = infer(p.request_id, reference)
        if wide is None or (wide > reference and not p.row.request):
            raise RefusedError("request_id", f"{p.request_id:#08x} near {reference}")
        if p.ack and p.ack.request_id != wide & 0xFFFFFFFF:
            raise RefusedError("request_id", f"position {p.ack.request_id}, STH says {wide}")
        return wide
