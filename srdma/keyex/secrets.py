"""The secrets of a key exchange (protocol.md 3.4, 8.4) and of the exchanges that follow (8.5).

This module makes them, gives them to the local worker in KEYS or REKEY, and wipes them. Without
key mode `pd` the secrets come from the TLS exporter. In modes with `pd` each end's worker makes
the secrets with which the peer sends, and CONFIRM or RENEW carries them. TLS and CBOR leave
copies, which end with this process.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from srdma.control import Control, Direction, KeyRequest, Keys
from srdma.control.client import ENDED
from srdma.errors import RefusedError
from srdma.keyex import keylog
from srdma.keyex.agreement import Agreement
from srdma.keyex.exchange import (
    CLIENT_DIRECTION,
    EXPORTER_LABELS,
    SERVER_DIRECTION,
    Agreed,
    Exchange,
)
from srdma.keyex.messages import Form, Handover
from srdma.keyex.offers import MODE_PD, End
from srdma.keyex.policy import secret_size

Export = Callable[[bytes, bytes, int], bytes]  # label, context, size


@dataclass(frozen=True)
class Secrets:
    """The secrets of the QPs of the first exchange.

    export: exporter of the TLS connection; ends: the local ends; identity: URI of the peer; own:
    URI of this end, for the key log.
    """

    control: Control
    export: Export
    exchange: Exchange
    ends: tuple[End, ...]
    identity: str
    own: str = ""

    def derive(self, form: Form) -> Handover:
        """The secrets of this end's CONFIRM, made by the local worker (KEY). The caller owns and
        wipes them."""
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

    def install(self, handover: Handover, life: int = 0) -> None:
        """Send KEYS for every QP to the local worker, and LIFE behind that. handover: that of the
        event Install; life: seconds, 0 without LIFE."""
        exported: list[bytearray] = []
        try:
            keys = [self._keys(n, handover, exported) for n in range(len(self.ends))]
            self.control.keys(*keys, life=life)
        finally:
            for secret in exported:
                secret[:] = bytes(len(secret))

    def _keys(self, number: int, handover: Handover, exported: list[bytearray]) -> Keys:
        """exported: gets the secrets that the caller wipes."""
        agreed, peer = self.agreed, self.agreed.ends[number]
        tx, rx = bytearray(), bytearray()
        if agreed.mode & MODE_PD:
            tx = handover.secrets[number] if handover.secrets else tx
        elif size := secret_size(agreed.suite):
            context = self.exchange.exporter_context(number)
            made = [bytearray(self.export(label, context, size)) for label in EXPORTER_LABELS]
            exported += made
            tx, rx = made[self.direction], made[1 - self.direction]
        generation = self.exchange.generation(number)
        self._log(number, generation)
        for direction, secret in (("tx", tx), ("rx", rx)):
            keylog.secret(self.ends[number].qpn, direction, generation, secret)
        return Keys(
            qpn=self.ends[number].qpn,
            role=self.direction,
            suite=agreed.suite.id,
            level=agreed.suite.level,
            tag_len=agreed.suite.tag_len,
            mode=agreed.mode,
            secret_len=secret_size(agreed.suite),
            generation=generation,
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
            group_key=handover.group_key if agreed.mode & MODE_PD else bytearray(),
        )

    def _log(self, number: int, generation: bytes) -> None:
        agreed, here, peer = self.agreed, self.ends[number], self.agreed.ends[number]
        suite = agreed.suite
        keylog.session(
            keylog.Session(
                here.qpn, generation, self.direction, suite.id, suite.level, suite.tag_len,
                agreed.mode, here.eid, here.pn, peer.qpn, peer.eid, peer.pn, self.own,
                self.identity,
            )
        )  # fmt: skip

    def ask(self, number: int, *, group: bool = False) -> tuple[bytearray, bytearray]:
        """KEY for QP `number`: the secret with which its peer sends, and the key of the trust
        group if `group`. The caller owns both."""
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
        """The direction in which this end sends, which is also its role in KEYS."""
        return CLIENT_DIRECTION if self.exchange.role == "client" else SERVER_DIRECTION


@dataclass(frozen=True, slots=True)
class NewSecrets:
    """The secrets of the exchanges after the first one (8.5).

    leg: number of the leg of the QPs.
    """

    control: Control
    agreement: Agreement
    leg: int

    def derive(self, form: Form, age: int) -> Handover:
        """The secrets of this end's RENEW, by ROTATE and KEY. ROTATE replaces a K_PD that is older
        than `age` seconds. The caller owns and wipes the secrets."""
        if not form:
            return Handover()
        self.control.rotate(self.leg, age)
        made: list[bytearray] = []
        try:
            for number in range(len(self.agreement.qpns)):
                made.append(bytearray(os.urandom(self._size)))  # kept only if the QP has ended
                with unless_ended():
                    made[-1] = self._ask(number)
        except BaseException:
            Handover(secrets=tuple(made)).wipe()
            raise
        return Handover(secrets=tuple(made))

    def received(self, export: Export, context: Callable[[int], bytes]) -> list[bytearray]:
        """The secrets of REKEY rx, one per QP; an empty list if S stays.

        export, context: exporter of the inner connection and its context per QP. The caller owns
        and wipes the secrets.
        """
        if self.agreement.mode & MODE_PD:
            return [] if self.agreement.group else [bytearray() for _ in self.agreement.qpns]
        return self._exported(export, context, 1 - self.agreement.direction)

    def sent(
        self, export: Export, context: Callable[[int], bytes], handover: Handover
    ) -> list[bytearray]:
        """The secrets of REKEY tx, as received(); handover: that of the peer's RENEW."""
        if self.agreement.mode & MODE_PD:
            return list(handover.secrets)
        return self._exported(export, context, self.agreement.direction)

    def give(self, number: int, direction: Direction, secret: bytearray) -> None:
        """REKEY for QP `number`, ignored if that QP has ended. Raises RefusedError (EBUSY) while
        the QP does not yet use the secrets of the previous REKEY."""
        size, qpn = self._size if direction else 0, self.agreement.qpns[number]
        if direction:
            name = direction.name.lower()
            keylog.secret(qpn, name, self.agreement.generation(number), secret)
        with unless_ended():
            self.control.rekey(qpn, direction, size, secret)

    def _ask(self, number: int) -> bytearray:
        """KEY for QP `number`, which has no group."""
        agreement = self.agreement
        wanted = KeyRequest(
            agreement.qpns[number],
            self._size,
            agreement.generation(number),
            *agreement.peers[number],
            False,
        )
        return self.control.key(wanted)[0]

    def _exported(
        self, export: Export, context: Callable[[int], bytes], direction: int
    ) -> list[bytearray]:
        label, size = EXPORTER_LABELS[direction], self._size
        qps = range(len(self.agreement.qpns)) if size else ()
        return [bytearray(export(label, context(qp), size)) for qp in qps]

    @property
    def _size(self) -> int:
        return self.agreement.secret_size


@contextlib.contextmanager
def unless_ended() -> Iterator[None]:
    """Ignore the worker's refusal of a call for a QP that has ended or was destroyed."""
    try:
        yield
    except RefusedError as error:
        if error.errno not in ENDED:
            raise
