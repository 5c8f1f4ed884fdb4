"""Forged answers: an attacker who sees all packets sends what a peer could answer, under each of
the next packet numbers. All genuine packets are lost meanwhile, so that only the forged ones can
have an effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from srdma.errors import Error
from srdma_attack import datagrams
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import WAIT, Counters, Lab, Pair, lab, until
from srdma_attack.middle import LEFT, RIGHT, Middle, pass_on
from tests.reference import wire
from tests.reference.ack import AckBody, Kind
from tests.reference.reasons import Reason

EVIL = b"forged.." * 8
NUMBERS = 64  # packet numbers that the forger tries, from the next one on
CREDIT = 1 << 16
COMPLETION = 0.2  # seconds in which a worker that believes an ack completes the request


@dataclass(frozen=True)
class Scene:
    """A client with one request under way, whose packets are lost."""

    lab: Lab
    pair: Pair
    middle: Middle
    counters: Counters
    request: Future[bytes | None]

    def forge(self, packet: wire.Packet) -> None:
        """Sends the packet to the client, under each of the next numbers of the server."""
        first = psn(self.middle.last(RIGHT)) + 1
        with datagrams.open_socket() as sock:
            for number in range(first, first + NUMBERS):
                numbered = replace(packet, qpn=self.pair.client.qp_num, psn=number % (1 << 24))
                datagrams.send(sock, self.lab.forged(numbered), self.lab.client.wire)
        until(lambda: self.counters.taken() >= NUMBERS, "the forged packets to arrive")

    def ack(self, kind: Kind, reason: Reason = Reason.NONE) -> wire.Packet:
        """An ack of all that the client sent."""
        highest, done = psn(self.middle.last(LEFT)), int(kind is Kind.ACK)
        body = AckBody(kind, reason, done, 0, highest, CREDIT, CREDIT)
        return wire.Packet(wire.Op.ACKNOWLEDGE, request_id=done, ack=body)

    def end(self) -> bytes | None:
        """Lets the genuine packets pass again. Returns the result of the request, None if the
        request failed."""
        self.middle.rule = pass_on
        try:
            return self.request.result(WAIT)
        except Error:
            return None


def _is_request(seen: tuple[int, bytes]) -> bool:
    side, packet = seen
    return side == LEFT and packet[0] in (wire.Op.WRITE_ONLY, wire.Op.READ_REQUEST)


def psn(packet: bytes) -> int:
    return int.from_bytes(packet[9:12], "big")


Request = Callable[[Pair], bytes | None]


def _write(pair: Pair) -> bytes:
    pair.client.write(b"genuine", pair.remote, timeout=WAIT)
    return b"written"


def _read(pair: Pair) -> bytes:
    return bytes(pair.client.read(pair.remote, 0, len(EVIL), timeout=WAIT))


@contextmanager
def _scene(settings: Settings, request: Request) -> Iterator[Scene]:
    with lab(settings) as it, ExitStack() as undo:
        middle = it.middle()
        pair = it.pair(middle)
        counters = Counters(it.client)
        middle.rule = lambda side, packet: ()
        before = len(middle.seen)
        pool = undo.enter_context(ThreadPoolExecutor(1))
        future = pool.submit(request, pair)
        until(lambda: any(map(_is_request, middle.seen[before:])), "the request to leave")
        yield Scene(it, pair, middle, counters, future)


def forge_ack(settings: Settings) -> Finding:
    """An ack of a WRITE that the server never got."""
    with _scene(settings, _write) as scene:
        scene.forge(scene.ack(Kind.ACK))
        with suppress(TimeoutError):
            scene.request.result(COMPLETION)
        believed = scene.request.done() and scene.pair.untouched
        scene.end()
        return Finding(outcome(believed), scene.counters.rose())


def forge_nak(settings: Settings) -> Finding:
    """A NAK, which ends a QP."""
    return _end_by(settings, Kind.NAK, Reason.BAD_RKEY)


def forge_close(settings: Settings) -> Finding:
    """A CLOSE, with which a peer ends the session."""
    return _end_by(settings, Kind.CLOSE, Reason.PEER_CLOSED)


def _end_by(settings: Settings, kind: Kind, reason: Reason) -> Finding:
    with _scene(settings, _write) as scene:
        scene.forge(scene.ack(kind, reason))
        ended = not scene.pair.alive
        result = scene.end()
        return Finding(outcome(ended or result is None), scene.counters.rose())


def forge_response(settings: Settings) -> Finding:
    """Data for a READ."""
    with _scene(settings, _read) as scene:
        scene.forge(wire.Packet(wire.Op.READ_RESPONSE_ONLY, payload=EVIL))
        return Finding(outcome(scene.end() == EVIL), scene.counters.rose())
