"""The secrets of one key exchange: made, given to the own worker in KEYS, and wiped
(protocol.md 3.4, 8.4); those of the exchanges that follow are its too (8.5).

Without key mode `pd` they come from TLS. With it the own worker makes what this end hands over,
and the peer's end brings the rest. TLS and CBOR leave copies, which end with this process.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from srdma.control import Control, Direction, KeyRequest, Keys
from srdma.errors import RefusedError
from srdma.keyex.exchange import (
    CLIENT_DIRECTION,
    EXPORTER_LABELS,
    SERVER_DIRECTION,
    Agreed,
    Exchange,
)
from srdma.keyex.messages import MODE_PD, End, Form, Handover
from srdma.keyex.policy import secret_size

Export = Callable[[bytes, bytes, int], bytes]  # label, context, size
ENDED = errno.ENOTCONN, errno.ENOENT, errno.EPERM  # what a worker says of a QP that is no more


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
            secret, group_key = self.ask(0, group=True)
            secret[:] = bytes(len(secret))
            return Handover(group_key=group_key)
        if form == "secrets":
            return self._derive_secrets()
        return Handover()

    def _derive_secrets(self) -> Handover:
        made: list[bytearray] = []
        try:
            for number in range(len(self.ends)):
                made.append(self.ask(number)[0])
        except BaseException:
            Handover(secrets=tuple(made)).wipe()
            raise
        return Handover(secrets=tuple(made))

    def install(self, handover: Handover) -> None:
        """KEYS for every QP. handover: of Install."""
        for number in range(len(self.ends)):
            if self.agreed.mode & MODE_PD:
                tx = handover.secrets[number] if handover.secrets else bytearray()
                self._give(number, tx, bytearray(), handover.group_key)
            else:
                self._give_exported(number)

    def _give_exported(self, number: int) -> None:
        size, context = secret_size(self.agreed.suite), self.exchange.exporter_context(number)
        made = [
            bytearray(self.export(label, context, size)) if size else bytearray()
            for label in EXPORTER_LABELS
        ]
        try:
            self._give(number, made[self.direction], made[1 - self.direction], bytearray())
        finally:
            for secret in made:
                secret[:] = bytes(len(secret))

    def _give(self, number: int, tx: bytearray, rx: bytearray, group_key: bytearray) -> None:
        agreed, peer = self.agreed, self.agreed.ends[number]
        self.control.keys(
            Keys(
                qpn=self.ends[number].qpn,
                role=self.direction,
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

    def ask(self, number: int, *, group: bool = False) -> tuple[bytearray, bytearray]:
        """KEY for one QP: its secret to this end, and the group's key if that is wanted."""
        peer = self.agreed.ends[number]
        wanted = KeyRequest(
            self.ends[number].qpn,
            secret_size(self.agreed.suite),
            self.exchange.generation(number),
            peer.eid,
            peer.qpn,
            group,
        )
        return self.control.key(wanted)

    @property
    def agreed(self) -> Agreed:
        assert self.exchange.agreed is not None
        return self.exchange.agreed

    @property
    def direction(self) -> int:
        return CLIENT_DIRECTION if self.exchange.role == "client" else SERVER_DIRECTION


@dataclass(frozen=True)
class NewSecrets:
    """Of the exchanges that follow. first: of the one before them; leg: that of the QPs."""

    first: Secrets
    leg: int

    def derive(self, form: Form, age: int) -> Handover:
        """What this end hands over: by KEY, from a K_PD that is younger than `age` if it can be."""
        if not form:
            return Handover()
        self.first.control.rotate(self.leg, age)
        made: list[bytearray] = []
        try:
            for number in range(len(self.first.ends)):
                made.append(bytearray(os.urandom(self._size)))  # of a QP that has ended
                with unless_ended():
                    made[-1] = self.first.ask(number)[0]
        except BaseException:
            Handover(secrets=tuple(made)).wipe()
            raise
        return Handover(secrets=tuple(made))

    def received(self, export: Export, context: Callable[[int], bytes]) -> list[bytearray]:
        """What REKEY rx brings each QP; none: S stays. export, context: of this exchange."""
        if self._mode & MODE_PD:
            return [] if self._group else [bytearray() for _ in self.first.ends]
        return self._exported(export, context, 1 - self.first.direction)

    def sent(
        self, export: Export, context: Callable[[int], bytes], handover: Handover
    ) -> list[bytearray]:
        """What REKEY tx brings each QP, likewise; handover: of the peer."""
        if self._mode & MODE_PD:
            return list(handover.secrets)
        return self._exported(export, context, self.first.direction)

    def give(self, number: int, direction: Direction, secret: bytearray) -> None:
        """REKEY for one QP, unless that has ended. Raises RefusedError with EBUSY."""
        size = self._size if direction else 0
        with unless_ended():
            self.first.control.rekey(self.first.ends[number].qpn, direction, size, secret)

    @property
    def has_any(self) -> bool:
        """False where S stays whatever is exchanged."""
        return bool(self._size) and not self._group

    def _exported(
        self, export: Export, context: Callable[[int], bytes], direction: int
    ) -> list[bytearray]:
        label, size = EXPORTER_LABELS[direction], self._size
        qps = range(len(self.first.ends)) if size else ()
        return [bytearray(export(label, context(qp), size)) for qp in qps]

    @property
    def _size(self) -> int:
        return secret_size(self.first.agreed.suite)

    @property
    def _mode(self) -> int:
        return self.first.agreed.mode

    @property
    def _group(self) -> str:
        return self.first.agreed.group


@contextlib.contextmanager
def unless_ended() -> Iterator[None]:
    """What a worker refuses because the QP has ended, or was destroyed, does not count."""
    try:
        yield
    except RefusedError as error:
        if error.errno not in ENDED:
            raise
