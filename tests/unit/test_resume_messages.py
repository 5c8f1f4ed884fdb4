"""RESUME and CLOSED: bytes to checked values and back (protocol.md 8, 8.6)."""

from __future__ import annotations

import cbor2
import pytest

from srdma.keyex.exchange_renew import Goodbye, Renewal
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import (
    ClosedMessage,
    Confirm,
    ErrorMessage,
    Ready,
    Rekey,
    Renew,
    Resume,
    Taken,
    decode,
    encode,
)
from tests.renew_players import agreement, done

HASH, PROOF = bytes(range(32)), bytes(range(32, 64))
MOST = 2**32 - 1
RIGHT = {"hash": HASH, "count": 3, "given": [0, 7], "proofs": [PROOF, b""]}


def code_of(fields: object) -> str:
    with pytest.raises(ExchangeError) as caught:
        decode(cbor2.dumps(fields, canonical=True))
    return caught.value.code


@pytest.mark.parametrize(
    "message",
    [
        Resume(HASH, 3, (0, 7), (PROOF, b"")),
        Resume(HASH, 0, (0,), (b"",)),
        Resume(HASH, MOST, (MOST,), (PROOF,)),
        Resume(HASH, 24, (MOST,) * 256, (PROOF,) * 256),
        ClosedMessage(),
    ],
)
def test_round_trip(message: Resume | ClosedMessage) -> None:
    raw = encode(message)
    assert decode(raw) == message and encode(decode(raw)) == raw


def test_bytes() -> None:
    """The forms of protocol.md 8.6, with the keys in the order of RFC 8949 4.2.1."""
    assert encode(ClosedMessage()) == b"\xa1\x66closed\xf5"
    assert encode(Resume(HASH, 3, (0, 7), (PROOF, b""))) == (
        b"\xa4\x64hash\x58\x20"
        + HASH
        + b"\x65count\x03\x65given\x82\x00\x07\x66proofs\x82\x58\x20"
        + PROOF
        + b"\x40"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hash", b""),
        ("hash", HASH[:-1]),
        ("hash", HASH + b"\0"),
        ("hash", "x" * 32),
        ("hash", 1),
        ("hash", [HASH]),
        ("count", -1),
        ("count", MOST + 1),
        ("count", 2**63),
        ("count", True),
        ("count", "3"),
        ("count", b"\x03"),
        ("count", [3]),
        ("given", []),
        ("given", 0),
        ("given", b"\0\0"),
        ("given", {"0": 0}),
        ("given", [0]),
        ("given", [0, 0, 0]),
        ("given", [0, -1]),
        ("given", [MOST + 1, 0]),
        ("given", [0, True]),
        ("given", [0, b""]),
        ("given", [[0], 0]),
        ("proofs", []),
        ("proofs", True),
        ("proofs", PROOF),
        ("proofs", [PROOF]),
        ("proofs", [PROOF, b"", b""]),
        ("proofs", [PROOF, PROOF[:-1]]),
        ("proofs", [PROOF, PROOF + b"\0"]),
        ("proofs", [b"\0", PROOF]),
        ("proofs", [PROOF, ""]),
        ("proofs", [PROOF, "x" * 32]),
        ("proofs", [PROOF, 0]),
        ("proofs", [PROOF, [PROOF]]),
    ],
)
def test_values_of_resume(field: str, value: object) -> None:
    assert field in RIGHT and code_of(RIGHT | {field: value}) == "value"


def test_one_entry_too_many() -> None:
    assert code_of(RIGHT | {"given": [0] * 257, "proofs": [PROOF] * 257}) == "value"


@pytest.mark.parametrize("field", ["hash", "count", "given"])
def test_field_that_is_missing(field: str) -> None:
    assert code_of({k: v for k, v in RIGHT.items() if k != field}) == "format"


@pytest.mark.parametrize(
    "more", ["v", "more", "secrets", "kpd", "ready", "rekey", "taken", "closed"]
)
def test_unknown_field_of_resume(more: str) -> None:
    assert code_of(RIGHT | {more: True}) == "format"


@pytest.mark.parametrize("value", [False, 1, 0, "true", b"", [], {}, [True]])
def test_values_of_closed(value: object) -> None:
    assert code_of({"closed": value}) == "value"


@pytest.mark.parametrize("more", ["hash", "more", "v"])
def test_unknown_field_of_closed(more: str) -> None:
    assert code_of({"closed": True, more: HASH}) == "format"


@pytest.mark.parametrize("raw", [encode(ClosedMessage()), encode(Resume(HASH, 3, (0,), (PROOF,)))])
def test_other_encodings(raw: bytes) -> None:
    """Each prefix, a byte behind the end, and a map of indefinite length are refused."""
    others = [raw[:n] for n in range(len(raw))] + [raw + b"\0", b"\xbf" + raw[1:] + b"\xff"]
    for other in others:
        with pytest.raises(ExchangeError) as caught:
            decode(other)
        assert caught.value.code == "format"


def test_integer_that_is_not_the_shortest() -> None:
    raw = encode(Resume(HASH, 3, (0,), (PROOF,)))
    longer = raw.replace(b"\x65count\x03", b"\x65count\x18\x03")
    assert longer != raw
    with pytest.raises(ExchangeError, match="deterministic"):
        decode(longer)


# The kind -------------------------------------------------------------------------

ORDER = ["error", "suites", "suite", "proofs", "count", "hash", "ready", "rekey", "taken", "closed"]
NAMES = {"error": "ERROR", "suites": "OFFER", "suite": "CHOICE", "proofs": "RESUME"} | {
    "count": "RENEW",
    "hash": "CONFIRM",
}


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_kind_is_that_of_the_first_key(first: int) -> None:
    """A message with all keys from one on is refused as a message of that kind."""
    name = NAMES.get(ORDER[first], ORDER[first].upper())
    fields = dict.fromkeys(ORDER[first:], True) | {"more": True}
    with pytest.raises(ExchangeError) as caught:
        decode(cbor2.dumps(fields, canonical=True))
    assert caught.value.code == "format"
    assert caught.value.text.startswith(f"{name} "), caught.value.text


def test_kinds_that_share_keys() -> None:
    """RESUME has those of RENEW, which has those of CONFIRM."""
    fields: dict[str, object] = {"hash": HASH}
    assert decode(cbor2.dumps(fields)) == Confirm(HASH)
    fields["count"] = 3
    assert decode(cbor2.dumps(fields, canonical=True)) == Renew(HASH, 3)
    fields |= {"given": [0], "proofs": [PROOF]}
    assert decode(cbor2.dumps(fields, canonical=True)) == Resume(HASH, 3, (0,), (PROOF,))


# After READY ----------------------------------------------------------------------


@pytest.fixture(params=["client", "server"])
def renewal(request: pytest.FixtureRequest) -> Renewal:
    client, server = done()
    return Renewal(agreement((client if request.param == "client" else server).exchange))


def test_closed_of_the_second_version(renewal: Renewal) -> None:
    with pytest.raises(Goodbye):
        renewal.receive(encode(ClosedMessage()), 2)


def test_closed_of_the_first_version(renewal: Renewal) -> None:
    with pytest.raises(ExchangeError) as caught:
        renewal.receive(encode(ClosedMessage()), 1)
    assert caught.value.code == "state" and renewal.state == "failed"


@pytest.mark.parametrize("version", [1, 2])
def test_resume_after_ready(renewal: Renewal, version: int) -> None:
    with pytest.raises(ExchangeError) as caught:
        renewal.receive(encode(Resume(HASH, 0, (0,), (PROOF,))), version)
    assert caught.value.code == "state" and renewal.state == "failed"


@pytest.mark.parametrize("message", [ClosedMessage(), Resume(HASH, 0, (0,), (PROOF,))])
def test_in_the_inner_connection(renewal: Renewal, message: ClosedMessage | Resume) -> None:
    with pytest.raises(ExchangeError) as caught:
        renewal.hear(encode(message))
    assert caught.value.code == "state" and renewal.state == "failed"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("message", [Ready(), Taken(1), Renew(HASH, 1)])
def test_other_messages_are_of_no_version(
    renewal: Renewal, version: int, message: Ready | Taken | Renew
) -> None:
    with pytest.raises(ExchangeError) as caught:
        renewal.receive(encode(message), version)
    assert caught.value.code == "state"


def test_error_of_the_second_version(renewal: Renewal) -> None:
    with pytest.raises(ExchangeError) as caught:
        renewal.receive(encode(ErrorMessage("worker", "not today")), 2)
    assert caught.value.from_peer and caught.value.code == "worker"


def test_first_exchange_takes_neither() -> None:
    """In no state of either end."""
    for message in (ClosedMessage(), Resume(HASH, 0, (0,), (PROOF,)), Rekey(b"x")):
        for one in done():
            with pytest.raises(ExchangeError) as caught:
                one.exchange.receive(encode(message))
            assert caught.value.code == "state"


# The loss, without I/O --------------------------------------------------------------


def test_loss_ends_the_exchange_under_way() -> None:
    client, _ = (Renewal(agreement(one.exchange)) for one in done())
    client.begin()
    assert (client.state, client.count) == ("shaking", 1)
    client.lost()
    assert (client.state, client.count) == ("idle", 1)


@pytest.mark.parametrize(("mine", "theirs", "next_"), [(0, 0, 1), (4, 2, 5), (2, 4, 5), (3, 3, 4)])
def test_higher_count_goes_on(mine: int, theirs: int, next_: int) -> None:
    client, _ = (Renewal(agreement(one.exchange), mine) for one in done())
    client.lost()
    client.resumed(theirs)
    client.begin()
    assert client.count == next_
