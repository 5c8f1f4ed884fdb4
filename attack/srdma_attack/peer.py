"""An authorised peer that breaks the rules: the reference of tests/reference with valid keys, on a
UDP socket. The victim is a real worker."""

from __future__ import annotations

import os
import select
import time
from dataclasses import replace

from srdma import SecureQP
from srdma.control import Keys
from srdma_attack import datagrams
from srdma_attack.attack import KitError
from srdma_attack.lab import SUITE, WAIT, Lab
from tests.keying import GENERATION_LEN
from tests.reference import wire
from tests.reference.ack import AckBody, Kind
from tests.reference.icrc import ICRC_LEN
from tests.reference.reasons import Reason, RefusedError
from tests.reference.session import Params, Session

IDENTITY = "spiffe://lab/peer"
SECRET_LEN = 16  # of the suite
FIRST = 1 << 23  # packet number
MTU = 1024
WINDOW = 1024
READS = 16
DEPTH = 8  # of the victim's queues
CREDIT = 1 << 16
TOKEN = (1 << 31) - 1  # bits of `path` in an ack
QUIET = 0.2  # seconds without an answer after which none is expected


class Peer:
    """A connected peer of a new QP of the server."""

    def __init__(self, lab: Lab) -> None:
        self.host = lab.server
        self.socket = lab.undo.enter_context(datagrams.open_socket())
        self.qp = lab.undo.enter_context(SecureQP(self.host.pd, DEPTH, DEPTH))
        self.next_id = 0
        own, info = os.urandom(16), self.qp.info
        to_victim, to_peer = os.urandom(SECRET_LEN), os.urandom(SECRET_LEN)
        generation = os.urandom(GENERATION_LEN)
        address, port = self.socket.getsockname()
        keys = Keys(
            self.qp.qp_num, 1, *SUITE, 0, SECRET_LEN, generation, own, 1, FIRST, MTU, WINDOW, READS,
            f"{address}:{port}", IDENTITY, to_peer, to_victim,
        )  # fmt: skip
        params = Params(
            0, *SUITE, generation, own, info.eid, 1, info.qpn, FIRST, info.pn, to_victim, to_peer,
            WINDOW,
        )  # fmt: skip
        self._session = Session(params)
        self.host.pd.control.keys(keys)
        self._connect()

    def _connect(self) -> None:
        self.control(Kind.OPEN)
        if not self.answers(most=1):
            raise KitError("the worker did not answer the malicious peer")
        self.qp.connected = True

    # Sending -------------------------------------------------------------------

    def seal(self, packet: wire.Packet) -> bytes:
        return self._session.seal(packet)

    def send(self, packet: wire.Packet) -> None:
        datagrams.send(self.socket, self.seal(packet), self.host.wire)

    def sealed_request(self, packet: wire.Packet) -> bytes:
        """Seals a packet that is a whole request, with the next request id."""
        self.next_id += 1
        return self.seal(replace(packet, request_id=self.next_id - 1))

    def request(self, packet: wire.Packet) -> None:
        datagrams.send(self.socket, self.sealed_request(packet), self.host.wire)

    def control(self, kind: Kind, token: int = 0) -> None:
        """Sends an ack of everything, which grants much; OPEN and PING ask for an ack."""
        datagrams.send(self.socket, self.sealed_control(kind, token), self.host.wire)

    def sealed_control(self, kind: Kind, token: int = 0) -> bytes:
        highest = self._session.window.highest
        body = AckBody(
            kind, highest_pn=highest, recv_credit=CREDIT, request_credit=CREDIT, path=token
        )
        flags = 0 if kind is Kind.ACK else wire.Flag.ACK_NOW
        return self.seal(wire.Packet(wire.Op.ACKNOWLEDGE, flags=flags, ack=body))

    # Receiving -----------------------------------------------------------------

    def answers(self, quiet: float = QUIET, most: int = 1 << 20) -> list[wire.Packet]:
        """The packets of the victim, until there was none for `quiet` seconds. The first one may
        take longer."""
        found: list[wire.Packet] = []
        patience = WAIT
        while len(found) < most and select.select([self.socket], [], [], patience)[0]:
            patience = quiet
            data = self.socket.recv(datagrams.LONGEST)[:-ICRC_LEN]
            try:
                found.append(self._session.open(data)[1])
            except RefusedError as refused:
                raise KitError(f"the reference refuses a packet of the worker: {refused}") from None
            self._answer_challenge(found[-1])
        return found

    def _answer_challenge(self, packet: wire.Packet) -> None:
        """Shows that it receives at its address (protocol.md 7.3)."""
        body = packet.ack
        if body and body.kind in (Kind.OPEN, Kind.PING) and (token := body.path & TOKEN):
            self.control(Kind.ACK, token)

    def verdict(self, packet: wire.Packet) -> tuple[Reason, bytes]:
        """Sends a request. Returns the reason of the NAK, NONE without one, and the data."""
        self.request(packet)
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            found = self.answers(most=1)
            for answer in found:
                if answer.ack and answer.ack.kind == Kind.NAK:
                    return Reason(answer.ack.reason), b""
                if not answer.ack or answer.ack.request_id >= self.next_id:
                    return Reason.NONE, answer.payload
        raise KitError("the worker did not answer a request")

    def fetch(self, request: wire.Packet) -> bytes:
        """Reads, and acknowledges the responses. Returns their data."""
        self.request(request)
        pieces: dict[int, bytes] = {}
        while sum(map(len, pieces.values())) < request.dma_len:
            found = self.answers(most=1)
            if not found or (found[0].ack and found[0].ack.kind == Kind.NAK):
                raise KitError("the worker did not answer a READ")
            if not found[0].ack:
                pieces[found[0].offset] = found[0].payload
        self.control(Kind.ACK)
        return b"".join(pieces[at] for at in sorted(pieces))


def write(address: int, rkey: int, data: bytes) -> wire.Packet:
    return wire.Packet(wire.Op.WRITE_ONLY, va=address, rkey=rkey, dma_len=len(data), payload=data)


def read(address: int, rkey: int, length: int) -> wire.Packet:
    return wire.Packet(wire.Op.READ_REQUEST, va=address, rkey=rkey, dma_len=length)
