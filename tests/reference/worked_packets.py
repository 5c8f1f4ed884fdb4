"""Worked examples of packets (protocol.md 2.4, 3.3, 3.5, 5.2, 11a), for
tests/vectors/worked-examples.json and docs/worked-examples.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from . import protect, wire
from . import worked_exchange as exchange
from .ack import AckBody, Kind
from .epoch import by_chain
from .example_modes import CLIENT_PD, SERVER_PD
from .jsonform import packet_from_json, params_from_json, to_json
from .kdf import cmac, fixed_data, traffic_context
from .pd import with_secrets
from .protect import Mode
from .reasons import Reason
from .session import Params, Session
from .suites import SUITES, Level
from .wire import Flag, Op, Packet
from .worked_exchange import hexes

CLIENT, SERVER = 0, 1
LOW32 = 0xFFFFFFFF
PAYLOAD = bytes(range(0x80, 0xA8))  # two blocks of AES and a half
TEXT = b"srdma!"
REQUEST = 0x1FFFFFFFF  # request id at the position; the next id differs in its high 32 bits
PART = 4  # bytes of payload of each packet of the requests from there on
LAST_REQUEST = REQUEST + 10
WINDOW = 1024  # of UDP
GAP_TO_REQUEST = 1 << 31
LIMITED, CHALLENGE = 1 << 31, 0x1F2E3D4C  # of the field `path` (7.3)
CREDIT = 1024  # requests that a target takes beyond its position
CLIENT_RECVS, SERVER_RECVS = 4, 16
Step = dict[str, Any]


def params() -> Params:
    """The client's end of QP 0 of the exchange in worked_exchange.py."""
    return Params(
        role=CLIENT,
        suite=1,
        level=Level.AEAD,
        tag_len=16,
        generation=exchange.transcript().generation(0),
        local_eid=exchange.CLIENT_EID,
        peer_eid=exchange.SERVER_EID,
        local_qpn=exchange.CLIENT_QPNS[0],
        peer_qpn=exchange.SERVER_QPNS[0],
        tx_pn=exchange.CLIENT_PNS[0],
        rx_pn=exchange.SERVER_PNS[0],
        tx_secret=exchange.exported(CLIENT, 0).out,
        rx_secret=exchange.exported(SERVER, 0).out,
        window=WINDOW,
    )


@dataclass
class Life:
    """A connection between two ends of the reference, and its steps so far."""

    client: Params

    def __post_init__(self) -> None:
        self.ends = Session(self.client), Session(self.client.mirrored())
        self.steps: list[Step] = []

    def send(self, sender: int, packet: Packet, name: str = "", told: int | None = None) -> None:
        """Without a name the packet is lost. told: highest packet number that the peer has
        reported; with it the sender may begin an epoch."""
        end = self.ends[sender]
        began = {} if told is None else {"told": told, "began": end.advance(0, told)}
        way, pn = end.tx, end.next_pn
        datagram = end.seal(packet)
        step = {"name": name, "from": sender, "pn": pn, "fields": to_json(packet)}
        step |= {"payload": packet.payload.hex()} | began
        if name:
            full = replace(packet, qpn=way.receiver.qpn, psn=pn & wire.LOW24, epoch=way.epoch & 3)
            assert self.ends[1 - sender].open(datagram)[0] == pn
            step |= {
                "epoch": way.epoch,
                **({"secret": way.secret.hex()} if way.epoch else {}),
                "nonce": protect.nonce(way, way.keys[1], pn).hex(),
                "ad": protect.associated_data(way, pn, full).hex(),
                "datagram": datagram.hex(),
            }
        self.steps.append(step)

    def contents(self, name: str, **more: Any) -> dict[str, Any]:
        client = to_json(self.client) | {"suite": self.client.suite}
        return {"name": name, "client": client, **more, "steps": self.steps}


# --- acknowledgements (2.4, 5.2) ------------------------------------------------------


def _requests() -> Iterator[Packet]:
    """WRITEs of the client, three packets each, which are lost."""
    for request_id in range(REQUEST, LAST_REQUEST + 1):
        for i, op in enumerate((Op.WRITE_FIRST, Op.WRITE_MIDDLE, Op.WRITE_LAST)):
            packet = Packet(op, request_id=request_id, offset=PART * i, payload=bytes([i] * PART))
            if op == Op.WRITE_FIRST:
                packet = replace(packet, va=0x7F0011223340, rkey=0x8BADF00D, dma_len=3 * PART)
            yield packet


def _ack(kind: Kind, position: tuple[int, int], highest: int, **more: Any) -> Packet:
    """more: recvs, and gaps, skips, reason and path where they are not zero."""
    request_id, offset = position
    body = AckBody(
        kind,
        more.get("reason", 0),
        request_id=request_id & LOW32,
        offset=offset,
        highest_pn=highest & LOW32,
        recv_credit=more["recvs"],
        request_credit=request_id + CREDIT & LOW32,
        gaps=tuple(more.get("gaps", ())),
        skips=more.get("skips", 0),
        path=more.get("path", 0),
    )
    flags = Flag.ACK_NOW if kind in (Kind.OPEN, Kind.PING) else 0
    return Packet(Op.ACKNOWLEDGE, request_id=request_id, offset=offset, flags=int(flags), ack=body)


def _middles(first: int, last: int) -> list[tuple[int, int, int]]:
    """A gap for the MIDDLE packet of each of these requests."""
    return [(request_id & LOW32, PART, PART) for request_id in range(first, last + 1)]


def _acks() -> dict[str, Any]:
    life = Life(params())
    first = life.client.tx_pn
    opening = _ack(
        Kind.OPEN, (0, 0), life.client.rx_pn - 1, recvs=CLIENT_RECVS, path=LIMITED | CHALLENGE
    )
    life.send(CLIENT, opening, "open")
    for packet in _requests():
        life.send(CLIENT, packet)
    highest = life.ends[CLIENT].next_pn - 1
    executed, refused = (REQUEST, PART), (REQUEST + 3, 0)
    two = [
        (REQUEST & LOW32, PART, PART),
        (REQUEST + 2 & LOW32, 2 * PART, GAP_TO_REQUEST + 2),
    ]
    server = {"recvs": SERVER_RECVS}
    told = first + 15  # LAST of request REQUEST + 4
    bodies = {
        "ack-two-gaps": _ack(Kind.ACK, executed, told, gaps=two, path=CHALLENGE, **server),
        "ack-eight-gaps": _ack(
            Kind.ACK, executed, highest - 9, gaps=_middles(REQUEST, REQUEST + 7), **server
        ),
        "ack-skips": _ack(
            Kind.ACK,
            executed,
            highest,
            gaps=_middles(LAST_REQUEST - 6, LAST_REQUEST),
            skips=1,
            **server,
        ),
        "rnr": _ack(Kind.RNR, (REQUEST + 1, 0), highest, **server),
        "nak-access": _ack(Kind.NAK, refused, highest, reason=Reason.BAD_RKEY, **server),
        "nak-invalid": _ack(Kind.NAK, refused, highest, reason=Reason.MALFORMED, **server),
        "nak-operation": _ack(Kind.NAK, refused, highest, reason=Reason.TARGET_DMA, **server),
    }
    for name, packet in bodies.items():
        life.send(SERVER, packet, name)
    heard = life.ends[SERVER].next_pn - 1
    life.send(CLIENT, _ack(Kind.PING, (0, 0), heard, recvs=CLIENT_RECVS), "ping")
    close = _ack(Kind.CLOSE, (0, 0), heard, recvs=CLIENT_RECVS, reason=Reason.PEER_CLOSED)
    life.send(CLIENT, close, "close")
    return life.contents("acks")


# --- suites and tags (3.3, 4.5) -------------------------------------------------------

FORMS = {
    "chacha20-poly1305": (0x07, Level.AEAD, 16),
    "aes-128-ocb": (0x04, Level.AEAD, 16),
    "gmac-header": (0x30, Level.HEADER, 16),
    "poly1305-packet": (0x38, Level.PACKET, 16),
    "short-tag-hmac": (0x12, Level.PACKET, 12),
    "short-tag-cmac": (0x20, Level.HEADER, 12),
}


def _suite(name: str) -> dict[str, Any]:
    suite, level, tag_len = FORMS[name]
    size = 16 if SUITES[suite].key_size <= 16 else 32
    secrets = [exchange.exported(way, 0, n=size).out for way in (CLIENT, SERVER)]
    form = {"suite": suite, "level": level, "tag_len": tag_len}
    life = Life(replace(params(), **form, tx_secret=secrets[0], rx_secret=secrets[1]))
    packet = Packet(
        Op.WRITE_ONLY,
        request_id=7,
        va=0x7F0011223340,
        rkey=0x8BADF00D,
        dma_len=len(PAYLOAD) - 1,
        payload=PAYLOAD[:-1],
    )
    life.send(CLIENT, packet, name)
    return life.contents(name)


# --- epochs (3.5) ---------------------------------------------------------------------


def _send_only(request_id: int) -> Packet:
    return Packet(Op.SEND_ONLY, request_id=request_id, payload=TEXT)


def _epochs() -> dict[str, Any]:
    """A packet of each of the epochs 0 to 4, then a new secret."""
    life = Life(replace(params(), rekey_packets=1))
    client, server = life.ends
    for epoch in range(5):
        life.send(CLIENT, _send_only(epoch), f"epoch-{epoch}", told=server.window.highest)
    secret = exchange.exported(CLIENT, 0, exchange.COUNT).out
    server.renew(1, secret)
    client.renew(2, secret)
    life.steps.append({"renew": CLIENT, "secret": secret.hex()})
    ping = _ack(Kind.PING, (0, 0), life.client.rx_pn - 1, recvs=CLIENT_RECVS)
    life.send(CLIENT, ping, "epoch-5-renewed", told=server.window.highest)
    return life.contents("epochs")


def _epochs_pd() -> dict[str, Any]:
    """Key mode pd: S stays, the traffic keys change."""
    client = replace(params(), rekey_packets=1, mode=Mode.PD)
    generation = exchange.transcript(*exchange.EXCHANGES["pd"]).generation(0)
    client = with_secrets(replace(client, generation=generation), CLIENT_PD, SERVER_PD)
    life = Life(client)
    for epoch in range(2):
        told = life.ends[SERVER].window.highest
        life.send(CLIENT, _send_only(epoch), f"pd-epoch-{epoch}", told=told)
    keys = [CLIENT_PD.group_key.hex(), SERVER_PD.group_key.hex()]
    return life.contents("epochs-pd", policy="owner", group_keys=keys)


def contents() -> list[dict[str, Any]]:
    return [_acks(), *map(_suite, FORMS), _epochs(), _epochs_pd()]


# --- the page -----------------------------------------------------------------------


def blocks(connections: list[dict[str, Any]]) -> dict[str, list[str]]:
    found = {"keys": list(_keys(connections[0], 0)) + list(_keys(connections[0], 1))}
    for c in connections:
        for step in c["steps"]:
            if step.get("name"):
                found[step["name"]] = list(_step(c, step))
    return found


def _keys(c: dict[str, Any], way: int, epoch: int = 0, secret: bytes = b"") -> Iterator[str]:
    p = params_from_json(c["client"])
    d = p.directions()[way]
    d = replace(d, epoch=epoch, secret=secret or d.secret)
    key, iv = d.keys
    context = traffic_context(d.generation, way, epoch, (SUITES[d.suite], d.level, d.tag_len))
    yield f"{('client', 'server')[way]} ->, epoch {epoch}"
    yield from hexes("S", d.secret)
    yield from hexes("context", context)
    yield from hexes("K(0)", cmac(d.secret, fixed_data("traffic", context, len(key) + len(iv))))
    yield from hexes("key", key)
    yield from hexes("iv", iv)


def _ratchet(c: dict[str, Any], step: Step) -> Iterator[str]:
    """S of the step's epoch from S of the epoch before it, unless S is new or stays."""
    p = params_from_json(c["client"])
    before = after = p.directions()[CLIENT]
    for _ in range(step["epoch"]):
        before, after = after, by_chain(after)
    if p.mode & Mode.PD or after.secret.hex() != step["secret"]:
        return
    context = p.generation + bytes([CLIENT]) + after.epoch.to_bytes(4, "big")
    fixed = fixed_data("next", context, len(before.secret))
    yield from hexes(f"S({before.epoch})", before.secret)
    yield from hexes("context", context)
    yield from hexes("K(0)", cmac(before.secret, fixed))
    yield from hexes(f"S({after.epoch})", after.secret)
    yield ""


def _step(c: dict[str, Any], step: Step) -> Iterator[str]:
    if "told" in step:
        secret = bytes.fromhex(step["secret"]) if step["epoch"] else b""
        if secret:
            yield from _ratchet(c, step)
        yield from _keys(c, 0, step["epoch"], secret)
        yield ""
    elif c["name"] in FORMS:
        suite, level, tag_len = FORMS[c["name"]]
        name = f"{SUITES[suite].name} ({suite:#04x}), level {level.name.lower()} ({int(level)})"
        yield f"{name}, tag {tag_len} bytes"
        yield from _keys(c, 0)
        yield ""
    yield from _packet(c, step)


def _packet(c: dict[str, Any], step: Step) -> Iterator[str]:
    p = packet_from_json(step["fields"], step["payload"])
    sender = ("client", "server")[step["from"]]
    parsed = wire.parse(bytes.fromhex(step["datagram"]), c["client"]["tag_len"])
    layout = wire.layout(parsed)
    kind = f" {Kind(p.ack.kind).name}" if p.ack else ""
    numbers = f"pn {step['pn']:#x}, request id {p.request_id:#x}"
    yield f"{Op(p.opcode).name}{kind}, {sender} ->, {numbers}"
    yield from hexes("BTH", layout.bth)
    if layout.extension:
        yield from hexes(" + ".join(p.row.headers), layout.extension)
    yield from hexes("STH", layout.sth)
    yield from hexes("tag", layout.tag)
    if p.ack:
        yield "ack body"
        yield from _body(p.ack)
    if layout.payload:
        if layout.payload != p.payload:
            yield from hexes("plaintext", p.payload)
        yield from hexes("payload", layout.payload)
    if layout.pad:
        yield from hexes("pad", layout.pad)
    if step["nonce"]:
        yield from hexes("nonce", bytes.fromhex(step["nonce"]))
    yield from hexes("AD", bytes.fromhex(step["ad"]))
    yield from hexes("packet", bytes.fromhex(step["datagram"]))


def _path(path: int) -> str:
    """The meaning of the field `path`: bit 31, and the token."""
    parts = ["limited"] * (path >= LIMITED) + [f"token {path % LIMITED:#x}"] * (path % LIMITED > 0)
    return ", ".join(["path", *parts])


def _body(body: AckBody) -> Iterator[str]:
    data = body.encode()
    fields = [
        (1, f"kind {Kind(body.kind).name}"),
        (1, f"reason {Reason(body.reason).name} ({body.reason})" if body.reason else "reason"),
        (1, f"gaps: {len(body.gaps)}"),
        (1, f"skips {body.skips}"),
        (4, "position: request id, low 32 bits"),
        (4, f"position: offset {body.offset}"),
        (4, "highest packet number, low 32 bits"),
        (4, f"RECV credit {body.recv_credit}"),
        (4, "request credit, low 32 bits"),
        (4, _path(body.path)),
    ]
    for size, meaning in fields:
        yield f"  {data[:size].hex():<26}{meaning}"
        data = data[size:]
    for request_id, offset, extent in body.gaps:
        what = f"{extent} bytes"
        if extent & GAP_TO_REQUEST:
            end = request_id + extent - GAP_TO_REQUEST & LOW32
            what = f"up to request {end:#x}"
        yield f"  {data[:12].hex():<26}gap: request {request_id:#x}, offset {offset}, {what}"
        data = data[12:]
