"""The key exchange without I/O: good flow, table, every edit of every message (protocol.md 8)."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import cbor2
import pytest

from srdma.keyex.exchange import (
    TABLE,
    Agreed,
    Derive,
    Done,
    Exchange,
    Install,
    Parameters,
    Send,
    transcript,
)
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import ErrorMessage, Handover, Ready, decode, encode
from srdma.keyex.offers import Suite, To
from tests.exchange_players import HASHES, end

GCM, CHACHA, CMAC = Suite(1, 3, 16), Suite(7, 3, 16), Suite(0x20, 2, 16)
NONE = Suite(0, 0, 0)


def parameters(role: str, suites: tuple[Suite, ...] = (GCM, CHACHA), qps: int = 2) -> Parameters:
    letter = role[0].upper().encode()
    ends = tuple(end(100 + i, letter * 16, wire=role) for i in range(qps))
    return Parameters(suites, letter * 32, ends, b"data of " + role.encode(), HASHES)


def pair(**server: object) -> tuple[Exchange, Exchange]:
    mine = replace(parameters("server"), **server)
    return Exchange("client", parameters("client")), Exchange("server", mine)


def sent(events: list) -> list[bytes]:
    return [event.data for event in events if isinstance(event, Send)]


def kinds(events: list) -> list[type]:
    return [type(event) for event in events]


def until_choice(client: Exchange, server: Exchange) -> tuple[bytes, bytes]:
    server.start()
    [offer] = sent(client.start())
    choice, agreed = server.receive(offer)
    assert isinstance(choice, Send) and isinstance(agreed, Agreed)
    return offer, choice.data


def test_whole_exchange() -> None:
    client, server = pair()
    _, choice = until_choice(client, server)
    agreed, derive = client.receive(choice)
    assert agreed == Agreed(GCM, parameters("server").ends, b"data of server")
    assert derive == Derive("")
    [confirm] = sent(client.derived(Handover()))
    assert server.receive(confirm) == [Derive("")]
    assert server.derived(Handover()) == [Install(Handover())]
    [armed] = sent(server.keyed())
    assert client.receive(armed) == [Install(Handover())]
    assert client.keyed() == []
    [ready] = sent(client.running())
    assert server.receive(ready) == []
    *last, done = server.running()
    assert kinds([done]) == [Done] and server.done
    assert kinds(client.receive(sent(last)[0])) == [Done] and client.done
    assert client.hash == server.hash and len(client.hash) == 32


def test_transcript_hash_matches_the_protocol_text() -> None:
    client, server = pair()
    offer, choice = until_choice(client, server)
    text = b"srdma-1 transcript\0" + len(offer).to_bytes(4, "big") + offer
    text += len(choice).to_bytes(4, "big") + choice + HASHES[0] + HASHES[1]
    want = hashlib.sha256(text).digest()
    assert server.hash == transcript(offer, choice, HASHES) == want
    assert server.generation(3) == hashlib.sha256(want + b"\0\0\0\3").digest()[:8]
    assert server.exporter_context(3) == want + b"\0\0\0\3"


def test_server_takes_the_first_permitted_suite_of_the_client() -> None:
    client = Exchange("client", parameters("client", (CHACHA, GCM, CMAC)))
    server = Exchange("server", parameters("server", (CMAC, GCM)))
    until_choice(client, server)
    assert server.agreed is not None and server.agreed.suite == GCM


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
# RFC 5042 R5.4.4-1, A5.0; review A22
def test_every_edited_byte_of_offer_and_choice_aborts(mask: int) -> None:
    """Even a man in the middle that could edit inside TLS is detected by the transcript hash."""
    offer, choice = until_choice(*pair())
    for which, message in (("offer", offer), ("choice", choice)):
        for at in range(len(message)):
            edited = bytearray(message)
            edited[at] ^= mask
            with pytest.raises(ExchangeError):
                _exchange_with(which, bytes(edited))


def _exchange_with(which: str, edited: bytes) -> None:
    """Runs both ends until the workers would get keys, with `edited` in place of the OFFER or
    CHOICE."""
    client, server = pair()
    server.start()
    [offer] = sent(client.start())
    [choice] = sent(server.receive(edited if which == "offer" else offer))
    client.receive(edited if which == "choice" else choice)
    [confirm] = sent(client.derived(Handover()))
    server.receive(confirm)


@pytest.mark.parametrize("length", range(0, 600, 7))
def test_truncated_offer_aborts(length: int) -> None:
    offer, _ = until_choice(*pair())
    _, server = pair()
    server.start()
    with pytest.raises(ExchangeError):
        server.receive(offer[: length % len(offer)])


FIELDS = {
    "v": (0, 2, True, "1"),
    "qps": (0, 1, 3, -1, 2.0),
    "suites": ([], [[1, 3]], [[1, 4, 16]], [[256, 3, 16]], [[1, 3, 65]], [[1, 3, 16]] * 2, 7,
               [[0, 0, 0], [1, 3, 16]], [[0, 3, 16]], [[1, 0, 0]], [[1, 3, 16]] * 100),
    "modes": ([], [4, 0], [-1], ["pd"], [True], 0, [0, 1, 2, 3, 3], [1, 1]),
    "group": ("x" * 65, "\u00e9" * 33, b"x", None, 0),
    "random": (b"", b"x" * 31, b"x" * 33, "x" * 32, 5),
    "ends": ([], {}, [1, 2]),
    "data": (b"x" * 257, "text", None),
}  # fmt: skip
END_FIELDS = {
    "eid": (b"x" * 15, b"x" * 17, "x" * 16),
    "qpn": (0, 1 << 24, -1, "1"),
    "pn": ((1 << 23) - 1, 1 << 24, 0),
    "mtu": (255, 4097, 0, 1 << 40),
    "window": (0, 1025),
    "reads": (0, 129),
    "wire": ("", "x" * 64, "a\0b", b"nica", "a\x1b[2Jb", "a\nb", "n\u0430me"),
}


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in FIELDS.items() for v in values]
)
def test_field_out_of_range(field: str, value: object) -> None:
    names = {"suites": ("suite", "level", "tag length"), "ends": ("end",), "v": ("version",)}
    names["modes"] = ("modes", "mode")
    _refused_offer({field: value}, names.get(field, (field, "deterministic CBOR")))


@pytest.mark.parametrize(
    ("field", "value"), [(f, v) for f, values in END_FIELDS.items() for v in values]
)
def test_end_out_of_range(field: str, value: object) -> None:
    offer = cbor2.loads(until_choice(*pair())[0])
    offer["ends"][1][field] = value
    _refused_offer({"ends": offer["ends"]}, (field,))


def _refused_offer(changes: dict, named: tuple[str, ...]) -> None:
    _, server = pair()
    server.start()
    offer = cbor2.loads(until_choice(*pair())[0]) | changes
    with pytest.raises(ExchangeError) as raised:
        server.receive(cbor2.dumps(offer, canonical=True))
    assert any(name in raised.value.text for name in named)
    assert server.state == "failed"


@pytest.mark.parametrize("key", ["v", "qps", "suites", "modes", "group", "random", "ends", "data"])
def test_missing_and_unknown_fields(key: str) -> None:
    offer = cbor2.loads(until_choice(*pair())[0])
    for changed in ({k: v for k, v in offer.items() if k != key}, offer | {"x" + key: 1}):
        with pytest.raises(ExchangeError):
            decode(cbor2.dumps(changed, canonical=True))


def test_error_texts_have_no_control_characters() -> None:
    offer = cbor2.loads(until_choice(*pair())[0])
    bad = ({"\x1b[2J": 1}, {"wire": "\x1b[2J"}, {"v": "\x1b[2J"})
    for changed in (*({**offer, **b} for b in bad), {"\x1b[2J": 1}):
        with pytest.raises(ExchangeError) as raised:
            decode(cbor2.dumps(changed, canonical=True))
        assert raised.value.text.isprintable()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"\xa0",
        b"\x80",
        b"\xf7",
        b"\x9f" * 70_000,
        b"\x81" * 5_000,
        b"\xbf\x65ready\xf5\xff",  # indefinite length
        b"\xa2\x65ready\xf5\x65ready\xf5",  # the same key twice
        b"\xa1\x78\x05ready\xf5",  # a length longer than needed
        b"\xa1\x65ready\xf5\x00",  # an extra byte at the end
        b"\xa1\x65ready\xf4",
        b"\xa1\x65ready\x01",
        b"\xa1\x65error\x61x",  # ERROR without code
        b"\xc1\x1a\x00\x00\x00\x00",  # a tag
        b"\xa1\x65ready\xc1\x00",
        cbor2.dumps({"ready": 1 << 64}, canonical=True),  # a bignum
        cbor2.dumps({"hash": 1 << 100_000}, canonical=True),  # too long to be printed
    ],
)
def test_malformed_messages_are_refused(raw: bytes) -> None:
    with pytest.raises(ExchangeError) as raised:
        decode(raw)
    assert raised.value.code in ("format", "value")


def test_no_common_suite_names_both_lists() -> None:
    _, server = pair(suites=(GCM._replace(id=3),))
    server.start()
    with pytest.raises(ExchangeError, match=r"no common suite.*\[1, 3, 16\].*\[3, 3, 16\]") as e:
        server.receive(sent(pair()[0].start())[0])
    assert e.value.code == "suite"


@pytest.mark.parametrize(
    ("client", "server", "text"),
    [
        ((GCM,), (CMAC,), "client offers level aead and the server permits level packet"),
        ((CMAC,), (GCM,), "client offers level packet and the server permits level aead"),
        ((NONE,), (CMAC, GCM), "offers level none and the server permits level packet or aead"),
    ],
)
def test_no_common_level(client: tuple[Suite, ...], server: tuple[Suite, ...], text: str) -> None:
    """Before any key: the server answers the OFFER by an ERROR."""
    strict = Exchange("server", parameters("server", server))
    strict.start()
    with pytest.raises(ExchangeError, match=f"no common suite, because the .*{text}") as e:
        strict.receive(sent(Exchange("client", parameters("client", client)).start())[0])
    assert e.value.code == "level" and strict.state == "failed"


def test_level_none_is_never_negotiated() -> None:
    _, server = pair(suites=(GCM,))
    server.start()
    client = Exchange("client", parameters("client", (NONE,)))
    with pytest.raises(ExchangeError, match="no common suite"):
        server.receive(sent(client.start())[0])


def test_choice_that_was_not_offered() -> None:
    client = Exchange("client", parameters("client", (GCM,)))
    offer = sent(client.start())[0]
    server = Exchange("server", parameters("server", (GCM, CMAC)))
    server.start()
    choice = cbor2.loads(sent(server.receive(offer))[0]) | {"suite": list(CMAC)}
    with pytest.raises(ExchangeError, match="did not offer"):
        client.receive(cbor2.dumps(choice, canonical=True))


def test_unequal_numbers_of_qps() -> None:
    server = Exchange("server", parameters("server", qps=3))
    server.start()
    with pytest.raises(ExchangeError, match="the peer has 2 QPs, this end has 3"):
        server.receive(sent(pair()[0].start())[0])


def test_reflection() -> None:
    client, _ = pair()
    offer = sent(client.start())[0]
    for changes in ({"random": parameters("client").random}, {"ends": parameters("client").ends}):
        _, server = pair(**changes)
        server.start()
        with pytest.raises(ExchangeError, match="reflection"):
            server.receive(offer)


@pytest.mark.parametrize("role", ["client", "server"])
def test_illegal_messages_fail_in_every_state(role: str) -> None:
    """In each state, a message that the table does not list for it raises an error, and the
    exchange has failed for good."""
    client, server = pair()
    offer, choice = until_choice(client, server)
    messages = {"OFFER": offer, "CHOICE": choice, "READY": encode(Ready())}
    client.receive(choice)
    messages["CONFIRM"] = sent(client.derived(Handover()))[0]
    for state, legal in TABLE[role].items():
        for name, raw in messages.items():
            if name in legal:
                continue
            exchange = pair()[0 if role == "client" else 1]
            exchange.state = state
            with pytest.raises(ExchangeError, match=f"{name} is not legal in state {state}"):
                exchange.receive(raw)
            assert exchange.state == "failed"


@pytest.mark.parametrize("event", ["start", "derived", "keyed", "running"])
def test_illegal_local_event_raises_and_changes_nothing(event: str) -> None:
    client, _ = pair()
    client.start()
    with pytest.raises(ExchangeError, match=f"{event} is not legal in state offered"):
        getattr(client, event)(*([Handover()] if event == "derived" else []))
    assert client.state == "offered"


def test_error_of_the_peer() -> None:
    client, _ = pair()
    client.start()
    with pytest.raises(ExchangeError) as raised:
        client.receive(encode(ErrorMessage("suite", "no \x1b[31mcommon suite")))
    assert raised.value.from_peer and raised.value.code == "suite"
    assert raised.value.text == "no ?[31mcommon suite"
    assert client.state == "failed"


# Rendezvous ---------------------------------------------------------------------------

LOWER, HIGHER = bytes(15) + b"\x01", bytes(15) + b"\x02"  # GIDs
TO = To(LOWER, HIGHER, 200)


def meeting(**server: object) -> tuple[Exchange, Exchange]:
    """Both ends of a rendezvous; the QPs are 100 and 200."""
    mine = replace(parameters("client", qps=1), to=TO)
    ends = (replace(parameters("server", qps=1).ends[0], qpn=200),)
    theirs = replace(parameters("server", qps=1), to=TO, ends=ends)
    return Exchange("client", mine), Exchange("server", replace(theirs, **server))


def test_rendezvous() -> None:
    client, server = meeting()
    offer, choice = until_choice(client, server)
    assert decode(offer).to == TO
    client.receive(choice)
    assert client.hash == server.hash


@pytest.mark.parametrize("to", [None, To(LOWER, HIGHER, 201), To(HIGHER, LOWER, 200)])
def test_offer_of_another_rendezvous(to: To | None) -> None:
    """Also one at a listener."""
    client, server = meeting(to=to)
    server.start()
    with pytest.raises(ExchangeError, match="OFFER has `to` without a rendezvous") as error:
        server.receive(sent(client.start())[0])
    assert error.value.code == "format"


def test_offer_without_to() -> None:
    client, server = Exchange("client", parameters("client", qps=1)), meeting()[1]
    server.start()
    with pytest.raises(ExchangeError, match="OFFER has `to`") as error:
        server.receive(sent(client.start())[0])
    assert error.value.code == "format"


def test_choice_of_another_qp() -> None:
    client, server = meeting(ends=(replace(parameters("server").ends[0], qpn=201),))
    _, choice = until_choice(client, server)
    with pytest.raises(ExchangeError, match="qpn is 201: it must be that of the rendezvous, 200"):
        client.receive(choice)


@pytest.mark.parametrize(
    ("changes", "code", "text"),
    [
        ({"to": 7}, "value", "to is 7: it must be a map"),
        ({"to": {}}, "format", "TO lacks from, gid, qpn"),
        ({"to": {"from": LOWER, "gid": HIGHER, "qpn": 200, "x": 1}}, "format", "unknown fields"),
        ({"to": {"from": b"", "gid": HIGHER, "qpn": 200}}, "value", "from is 0 bytes"),
        ({"to": {"from": LOWER, "gid": bytes(17), "qpn": 200}}, "value", "gid is 17 bytes"),
        ({"to": {"from": LOWER, "gid": HIGHER, "qpn": 0}}, "value", "qpn is 0"),
        ({"to": {"from": LOWER, "gid": HIGHER, "qpn": 1 << 24}}, "value", "qpn is 16777216"),
        ({"to": {"from": LOWER, "gid": HIGHER, "qpn": 99}}, "value", "above that of the client"),
        ({"to": {"from": HIGHER, "gid": LOWER, "qpn": 100}}, "value", "above that of the client"),
        ({"to": {"from": LOWER, "gid": LOWER, "qpn": 100}}, "value", "above that of the client"),
    ],
)
def test_malformed_rendezvous(changes: dict[str, object], code: str, text: str) -> None:
    [offer] = sent(meeting()[0].start())
    raw = cbor2.dumps(cbor2.loads(offer) | changes, canonical=True)
    with pytest.raises(ExchangeError, match=text) as error:
        decode(raw)
    assert error.value.code == code


def test_rendezvous_has_one_qp() -> None:
    two = replace(parameters("client", qps=2), to=TO)
    [offer] = sent(Exchange("client", two).start())
    with pytest.raises(ExchangeError, match="qps is 2: it must be 1"):
        decode(offer)


def test_equal_qpns() -> None:
    """The lower GID is the client's."""
    to = To(LOWER, HIGHER, 100)
    [offer] = sent(Exchange("client", replace(parameters("client", qps=1), to=to)).start())
    assert decode(offer).to == to
