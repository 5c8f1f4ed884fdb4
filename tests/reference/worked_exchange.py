"""Worked examples of the key exchange (protocol.md 8), for tests/vectors/worked-examples.json and
docs/worked-examples.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from . import keyexchange, pd, renewal
from .cbor import encode, listing
from .example_modes import CLIENT_PD, SERVER_PD
from .exporter import Exported, export
from .kdf import kdf
from .keyexchange import Message, Transcript
from .protect import End

CLIENT_EID, SERVER_EID = bytes(range(0x10, 0x20)), bytes(range(0x20, 0x30))
CLIENT_QPNS, SERVER_QPNS = (0xC11E47, 0xC11E48), (0x5E12E2, 0x5E12E3)
CLIENT_PNS, SERVER_PNS = (0xC0FFEE, 0xFFFFF0), (0x800000, 0x900000)
WIRES = CLIENT_WIRE, SERVER_WIRE = "192.0.2.1", "192.0.2.2"
PORT = 4791
CERTIFICATES = (bytes(range(0xC0, 0xE0)), bytes(range(0xE0, 0x100)))  # their SHA-256
DIGEST = "sha384"  # of TLS_AES_256_GCM_SHA384
OUTER, INNER = bytes(range(0x30)), bytes(range(0x30, 0x60))  # exporter secrets
ANOTHER = bytes(range(0x60, 0x90))  # that of the connection that resumes
SIZE = 16  # of S with aes-128-gcm
CHACHA, GCM = [7, 3, 16], [1, 3, 16]
MODE_PD, GROUP = 1, "rack 7"
COUNT = 1  # the first renewal
IDENTITY, AGENT = "spiffe://example.org/host-b", 4793
WRONG = {"code": "suite", "error": "no common suite"}
ENDS = {
    "client": (CLIENT_EID, CLIENT_QPNS, CLIENT_PNS, CLIENT_WIRE),
    "server": (SERVER_EID, SERVER_QPNS, SERVER_PNS, SERVER_WIRE),
}
# name -> mode, group
EXCHANGES = {"basic": (0, ""), "pd": (MODE_PD, ""), "group": (MODE_PD, GROUP)}


def _ends(role: str) -> list[Message]:
    eid, qpns, pns, wire = ENDS[role]
    return [
        {"eid": eid, "qpn": qpn, "pn": pn, "mtu": 1024, "window": 512, "reads": 16}
        | {"wire": f"{wire}:{PORT}"}
        for qpn, pn in zip(qpns, pns, strict=True)
    ]


def transcript(mode: int = 0, group: str = "") -> Transcript:
    both = {"v": 1, "group": group, "data": b""}
    offer = {"qps": 2, "suites": [CHACHA, GCM], "modes": [mode]}
    offer |= {"random": bytes([0xA5] * 32), "ends": _ends("client")}
    choice = {"suite": GCM, "mode": mode}
    choice |= {"random": bytes([0x5A] * 32), "ends": _ends("server")}
    return Transcript(both | offer, both | choice, CERTIFICATES)


def exported(direction: int, qp: int, count: int = 0, n: int = SIZE) -> Exported:
    """S of a direction of a QP. count: number of the renewal, or 0."""
    context = transcript().context(qp, count)
    secret = INNER if count else OUTER
    return export(secret, keyexchange.LABELS[direction], context, n, DIGEST)


def _handed_over(mode: int, group: str, t: Transcript) -> tuple[Message, Message]:
    """The fields beside the hash in the CONFIRMs of the client and of the server."""
    if not mode:
        return {}, {}
    if group:
        return {}, {"kpd": SERVER_PD.group_key}
    ends = [[End(eid, qpn) for qpn in qpns] for eid, qpns, _, _ in (ENDS["client"], ENDS["server"])]

    def secrets(keys: pd.PdKeys, receiver: int) -> Message:
        pairs = zip(ends[receiver], ends[1 - receiver], strict=True)
        made = [
            keys.secret(here, there, t.generation(i), SIZE) for i, (here, there) in enumerate(pairs)
        ]
        return {"secrets": made}

    return secrets(CLIENT_PD, 0), secrets(SERVER_PD, 1)


def _exchange(mode: int, group: str) -> dict[str, Any]:
    t = transcript(mode, group)
    confirms = [{"hash": t.hash} | more for more in _handed_over(mode, group, t)]
    return {
        "offer": encode(t.offer).hex(),
        "choice": encode(t.choice).hex(),
        "hash": t.hash.hex(),
        "generations": [t.generation(qp).hex() for qp in (0, 1)],
        "confirms": [encode(confirm).hex() for confirm in confirms],
    }


def _secrets(count: int, n: int = SIZE) -> list[list[str]]:
    """The secrets by QP, then by direction."""
    return [[exported(way, qp, count, n).out.hex() for way in (0, 1)] for qp in (0, 1)]


def renewal_key(qp: int) -> bytes:
    return renewal.renewal_key(
        exported(0, qp).out, exported(1, qp).out, transcript().generation(qp)
    )


def proof_context() -> bytes:
    """C of 8.6."""
    t = transcript()
    return export(ANOTHER, keyexchange.RESUME_LABEL, t.hash, 32, DIGEST).out


def resume(role: int) -> Message:
    """The RESUME of an end after one exchange of 8.5."""
    proofs = [renewal.proof(renewal_key(qp), role, proof_context()) for qp in (0, 1)]
    return {"hash": transcript().hash, "count": COUNT, "given": [1, 1], "proofs": proofs}


def server_name(identity: str) -> str:
    """The SNI of section 8."""
    return hashlib.sha256(identity.encode()).digest()[:20].hex() + ".srdma.alt"


def frames() -> list[tuple[str, int, Message]]:
    """Messages of 8.7: name, stream, content. The OFFER is that of 1.1."""
    return [
        ("HELLO, client ->", 0, {"agent": AGENT}),
        ("HELLO, server ->", 0, {"agent": 0}),
        ("CLOSED of the first session that the client began", 1, {"closed": True}),
        ("WAKE, by the end that did not connect", 2, {"wake": transcript().hash}),
        ("ERROR of the connection", 0, {"code": "idle", "error": "it was idle"}),
    ]


def rendezvous() -> Message:
    """An OFFER of 8.8. The end that is the server of 1.2 has the lower QPN, and is the client."""
    offer = transcript().offer | {"qps": 1, "ends": _ends("server")[:1]}
    gids = [bytes(10) + b"\xff\xff" + bytes(map(int, wire.split("."))) for wire in WIRES]
    return offer | {"to": {"from": gids[1], "gid": gids[0], "qpn": CLIENT_QPNS[0]}}


def contents() -> dict[str, Any]:
    renew = {"hash": transcript().hash, "count": COUNT}
    return {
        "certificates": [certificate.hex() for certificate in CERTIFICATES],
        "group_keys": [CLIENT_PD.group_key.hex(), SERVER_PD.group_key.hex()],
        "exchanges": {name: _exchange(*form) for name, form in EXCHANGES.items()},
        "exporter": {
            "digest": DIGEST,
            "secret": OUTER.hex(),
            "contexts": [transcript().context(qp).hex() for qp in (0, 1)],
            "out": _secrets(0),
            "out32": _secrets(0, 32),
        },
        "ready": encode({"ready": True}).hex(),
        "error": encode(WRONG).hex(),
        "renewal": {
            "wish": encode({"rekey": b""}).hex(),
            "renew": encode(renew).hex(),
            "taken": encode({"taken": COUNT}).hex(),
            "secret": INNER.hex(),
            "contexts": [transcript().context(qp, COUNT).hex() for qp in (0, 1)],
            "out": _secrets(COUNT),
        },
        "resumption": {
            "secret": ANOTHER.hex(),
            "context": proof_context().hex(),
            "keys": [renewal_key(qp).hex() for qp in (0, 1)],
            "messages": [encode(resume(role)).hex() for role in (0, 1)],
            "closed": encode({"closed": True}).hex(),
        },
        "rendezvous": encode(rendezvous()).hex(),
        "streams": {
            "identity": IDENTITY,
            "sni": server_name(IDENTITY),
            "frames": [[stream, encode(fields).hex()] for _, stream, fields in frames()],
        },
    }


# --- the page -----------------------------------------------------------------------


def hexes(name: str, data: bytes) -> Iterator[str]:
    """Lines of `data` in hex after its name, 48 bytes per line."""
    for at in range(0, max(1, len(data)), 48):
        yield f"{name if not at else '':<13}{data[at : at + 48].hex() or '(empty)'}"


def _message(fields: Message) -> Iterator[str]:
    yield from listing(fields)
    yield ""
    message = encode(fields)
    yield from hexes("length", len(message).to_bytes(4, "big"))
    yield from hexes("message", message)


def _transcript() -> Iterator[str]:
    t = transcript()
    offer, choice = encode(t.offer), encode(t.choice)
    yield from hexes("text, 0x00", b"srdma-1 transcript\0")
    yield from hexes("len4(OFFER)", len(offer).to_bytes(4, "big"))
    yield f"{'OFFER':<13}{len(offer)} bytes, as above"
    yield from hexes("len4(CHOICE)", len(choice).to_bytes(4, "big"))
    yield f"{'CHOICE':<13}{len(choice)} bytes, as above"
    yield from hexes("client cert.", CERTIFICATES[0])
    yield from hexes("server cert.", CERTIFICATES[1])
    yield from hexes("H", t.hash)
    for qp in (0, 1):
        yield from hexes(f"gen. QP {qp}", t.generation(qp))


def _exporter() -> Iterator[str]:
    first, context = exported(0, 0), transcript().context(0)
    yield from hexes("secret", OUTER)
    yield from hexes("label", keyexchange.LABELS[0])
    yield from hexes("context", context)
    yield from hexes("label secret", first.label_secret)
    yield from hexes("HkdfLabel", first.hkdf_label)
    yield from hexes("S", first.out)
    yield ""
    for qp in (0, 1):
        for way, sender in enumerate(("client", "server")):
            yield f"QP {qp}, {sender} ->  {exported(way, qp).out.hex()}"
    yield f"QP 0, client ->  {exported(0, 0, n=32).out.hex()}  if S has 32 bytes"


def _confirms(name: str) -> Iterator[str]:
    form = EXCHANGES[name]
    t = transcript(*form)
    sides = [{"hash": t.hash} | more for more in _handed_over(*form, t)]
    if sides[0] == sides[1]:
        yield from _message(sides[0])
        return
    for sender, fields in zip(("client", "server"), sides, strict=True):
        yield f"{sender} ->"
        yield from _message(fields)
        yield ""


def _short() -> Iterator[str]:
    for name, fields in (("READY", {"ready": True}), ("ERROR", WRONG)):
        yield f"{name}"
        yield from _message(fields)
        yield ""


def _renewal() -> Iterator[str]:
    t = transcript()
    messages = {
        "the server's wish": {"rekey": b""},
        "RENEW, both ends": {"hash": t.hash, "count": COUNT},
        "TAKEN, both ends": {"taken": COUNT},
    }
    for name, fields in messages.items():
        yield name
        yield from _message(fields)
        yield ""
    yield from hexes("secret", INNER)
    for qp in (0, 1):
        yield from hexes(f"context QP {qp}", t.context(qp, COUNT))
    for qp in (0, 1):
        for way, sender in enumerate(("client", "server")):
            yield f"QP {qp}, {sender} ->  {exported(way, qp, COUNT).out.hex()}"


def _resumption() -> Iterator[str]:
    yield from hexes("secret", ANOTHER)
    yield from hexes("label", keyexchange.RESUME_LABEL)
    yield from hexes("H", transcript().hash)
    yield from hexes("C", proof_context())
    for qp in (0, 1):
        other = kdf(exported(1, qp).out, "renew", transcript().generation(qp), 32)
        yield ""
        yield from hexes(f"X QP {qp}", other)
        yield from hexes(f"K_renew QP {qp}", renewal_key(qp))
        for role, sender in enumerate(("client", "server")):
            yield from hexes(f"proof {sender}", resume(role)["proofs"][qp])
    for role, sender in enumerate(("client", "server")):
        yield ""
        yield f"RESUME, {sender} ->"
        yield from _message(resume(role))
    yield ""
    yield "CLOSED"
    yield from _message({"closed": True})


def _streams() -> Iterator[str]:
    yield f"{'identity':<13}{IDENTITY}"
    yield f"{'SNI':<13}{server_name(IDENTITY)}"
    for name, stream, fields in frames():
        message = encode(fields)
        yield ""
        yield name
        yield from listing(fields)
        yield ""
        yield from hexes("length", (4 + len(message)).to_bytes(4, "big"))
        yield from hexes("stream", stream.to_bytes(4, "big"))
        yield from hexes("message", message)


def blocks() -> dict[str, list[str]]:
    t = transcript()
    return {
        "offer": list(_message(t.offer)),
        "choice": list(_message(t.choice)),
        "transcript": list(_transcript()),
        "exporter": list(_exporter()),
        "confirm": list(_confirms("basic")),
        "confirm-pd": list(_confirms("pd")),
        "confirm-group": list(_confirms("group")),
        "ready-error": list(_short()),
        "renewal": list(_renewal()),
        "resumption": list(_resumption()),
        "streams": list(_streams()),
        "rendezvous": list(_message(rendezvous())),
    }
