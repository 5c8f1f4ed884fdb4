"""The secrets of one key exchange: made, given to the own worker in KEYS, and wiped
(protocol.md 3.4, 8.4).

Without key mode `pd` they come from TLS. With it the own worker makes what this end hands over,
and the peer's end brings the rest. TLS and CBOR leave copies, which end with this process.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .control import Control, KeyRequest, Keys
from .exchange import CLIENT_DIRECTION, EXPORTER_LABELS, SERVER_DIRECTION, Agreed, Exchange
from .exchange_messages import MODE_PD, End, Form, Handover
from .policy import secret_size

Export = Callable[[bytes, bytes, int], bytes]  # label, context, size


@dataclass(frozen=True)
class Secrets:
    """Of the QPs of one exchange. export: of the TLS connection; identity: the peer's."""

    control: Control
    export: Export
    exchange: Exchange
    ends: tuple[End, ...]
    identity: str

    def derive(self, form: Form) -> Handover:
        """What this end hands over: its own worker's, by KEY."""
        if form == "kpd":
            secret, group_key = self._ask(0, group=True)
            secret[:] = bytes(len(secret))
            return Handover(group_key=group_key)
        if form == "secrets":
            return self._derive_secrets()
        return Handover()

    def _derive_secrets(self) -> Handover:
        made: list[bytearray] = []
        try:
            for number in range(len(self.ends)):
                made.append(self._ask(number)[0])
        except BaseException:
            Handover(secrets=tuple(made)).wipe()
            raise
        return Handover(secrets=tuple(made))

    def install(self, handover: Handover) -> None:
        """KEYS for every QP. handover: of Install."""
        for number in range(len(self.ends)):
            if self._agreed.mode & MODE_PD:
                tx = handover.secrets[number] if handover.secrets else bytearray()
                self._give(number, tx, bytearray(), handover.group_key)
            else:
                self._give_exported(number)

    def _give_exported(self, number: int) -> None:
        size, context = secret_size(self._agreed.suite), self.exchange.exporter_context(number)
        made = [
            bytearray(self.export(label, context, size)) if size else bytearray()
            for label in EXPORTER_LABELS
        ]
        try:
            self._give(number, made[self._direction], made[1 - self._direction], bytearray())
        finally:
            for secret in made:
                secret[:] = bytes(len(secret))

    def _give(self, number: int, tx: bytearray, rx: bytearray, group_key: bytearray) -> None:
        agreed, peer = self._agreed, self._agreed.ends[number]
        self.control.keys(
            Keys(
                qpn=self.ends[number].qpn,
                role=self._direction,
                suite=agreed.suite.id,
                level=agreed.suite.level,
                tag_len=agreed.suite.tag_len,
                mode=agreed.mode,
                secret_len=secret_size(agreed.suite),
                generation=self.exchange.generation(number),
                peer_eid=peer.eid,
                peer_qpn=peer.qpn,
                peer_pn=peer.pn,
                peer_mtu=peer.mtu,
                peer_window=peer.window,
                peer_reads=peer.reads,
                peer_wire=peer.wire,
                peer_identity=self.identity,
                tx_secret=tx,
                rx_secret=rx,
                group_key=group_key,
            )
        )

    def _ask(self, number: int, *, group: bool = False) -> tuple[bytearray, bytearray]:
        """KEY for one QP: its secret to this end, and the group's key if that is wanted."""
        peer = self._agreed.ends[number]
        wanted = KeyRequest(
            self.ends[number].qpn,
            secret_size(self._agreed.suite),
            self.exchange.generation(number),
            peer.eid,
            peer.qpn,
            group,
        )
        return self.control.key(wanted)

    @property
    def _agreed(self) -> Agreed:
        assert self.exchange.agreed is not None
        return self.exchange.agreed

    @property
    def _direction(self) -> int:
        return CLIENT_DIRECTION if self.exchange.role == "client" else SERVER_DIRECTION
