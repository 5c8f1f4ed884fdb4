"""docs/worked-examples.md against its generator, and its bytes through the key exchange of srdma,
through C, and through cbor2, OpenSSL, zlib and scapy."""

from __future__ import annotations

import contextlib
import datetime
import json
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import cbor2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL

from srdma import gid
from srdma.agent import rendezvous, resumption
from srdma.identity import server_name
from srdma.keyex.exchange import EXPORTER_LABELS, Exchange, Parameters, Role, Send
from srdma.keyex.exchange_renew import Begin, Feed, Renewal, Say, Take
from srdma.keyex.messages import (
    ClosedMessage,
    ErrorMessage,
    Handover,
    Hello,
    Offer,
    Resume,
    Wake,
    decode,
)
from srdma.keyex.messages import encode as encode_message
from srdma.keyex.offers import End, Suite
from tests import fields
from tests.native import bindings
from tests.reference import cbor, keyexchange, make_examples, worked, worked_exchange
from tests.reference.exporter import export
from tests.reference.icrc import crc32
from tests.reference.jsonform import packet_from_json, params_from_json
from tests.reference.kdf import traffic_context
from tests.reference.protect import Mode
from tests.reference.suites import SUITES
from tests.reference.wire import parse
from tests.renew_players import agreement

FOUND = json.loads(make_examples.JSON.read_text())
EXCHANGE, CONNECTIONS = FOUND["exchange"], FOUND["connections"]
AGAIN = "run make examples"
PAGE_WIDTH = 120


def named(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(kind, FOUND[kind + "s"], ids=lambda c: c["name"])


# --- the page -------------------------------------------------------------------------


def test_page_is_what_the_generator_gives() -> None:
    page, listings = make_examples.PAGE.read_text(), worked.blocks(worked.contents())
    assert sorted(make_examples.names(page)) == sorted(listings), "each listing once"
    assert page.count("```") == 2 * len(listings), "a block that is no listing"
    assert make_examples.in_page(page, listings) == page, AGAIN
    assert max(map(len, page.splitlines())) <= PAGE_WIDTH


def test_generated_files_are_those_of_the_generator() -> None:
    found = worked.contents()
    assert make_examples.JSON.read_text() == make_examples.dump(found), AGAIN
    assert make_examples.HEADER.read_text() == worked.header(found), AGAIN


def test_an_edited_block_is_rewritten() -> None:
    page, listings = make_examples.PAGE.read_text(), worked.blocks(worked.contents())
    edited = page.replace(FOUND["datagrams"][0]["icrc"], "00000000")
    assert edited != page and make_examples.in_page(edited, listings) == page
    with pytest.raises(KeyError, match="no-such"):
        make_examples.in_page("```text no-such\n```", listings)


# --- the key exchange (8) ---------------------------------------------------------------


def parameters(raw: str) -> Parameters:
    """The parameters with which an end of srdma sends this OFFER or CHOICE."""
    found = cbor2.loads(bytes.fromhex(raw))
    return Parameters(
        suites=tuple(Suite(*entry) for entry in found.get("suites", [found.get("suite")])),
        random=found["random"],
        ends=tuple(End(**end) for end in found["ends"]),
        data=found["data"],
        certificates=tuple(map(bytes.fromhex, EXCHANGE["certificates"])),  # type: ignore[arg-type]
        modes=tuple(found.get("modes", [found.get("mode")])),
        group=found["group"],
    )


def handover(raw: str) -> Handover:
    """The secrets of a CONFIRM, as a worker gives them to its end."""
    found = cbor2.loads(bytes.fromhex(raw))
    secrets = tuple(map(bytearray, found.get("secrets", [])))
    return Handover(secrets=secrets, group_key=bytearray(found.get("kpd", b"")))


def sent(events: list[Any]) -> str:
    [data] = [event.data for event in events if isinstance(event, Send)]
    return data.hex()


def exchanged(case: dict[str, Any]) -> tuple[Exchange, Exchange]:
    """Returns both ends after READY. Each message is compared with that of the example."""
    pair: list[Exchange] = []
    roles: tuple[tuple[Role, str], ...] = (("client", "offer"), ("server", "choice"))
    for role, message in roles:
        pair.append(Exchange(role, parameters(case[message])))
    client, server = pair
    confirms = case["confirms"]
    server.start()
    assert sent(client.start()) == case["offer"]
    assert sent(server.receive(bytes.fromhex(case["offer"]))) == case["choice"]
    client.receive(bytes.fromhex(case["choice"]))
    assert sent(client.derived(handover(confirms[0]))) == confirms[0]
    server.receive(bytes.fromhex(confirms[0]))
    server.derived(handover(confirms[1]))
    assert sent(server.keyed()) == confirms[1]
    client.receive(bytes.fromhex(confirms[1]))
    client.keyed()
    ready = EXCHANGE["ready"]
    assert sent(client.running()) == sent(server.running()) == ready
    for end in pair:
        end.receive(bytes.fromhex(ready))
        assert end.done
    return client, server


@pytest.mark.parametrize("name", EXCHANGE["exchanges"])
def test_exchange_of_srdma(name: str) -> None:
    case = EXCHANGE["exchanges"][name]
    for end in exchanged(case):
        assert end.hash.hex() == case["hash"]
        assert [end.generation(qp).hex() for qp in (0, 1)] == case["generations"]
        if name == "basic":
            contexts = [end.exporter_context(qp).hex() for qp in (0, 1)]
            assert contexts == EXCHANGE["exporter"]["contexts"]


def test_renewal_of_srdma() -> None:
    case, who = EXCHANGE["renewal"], "spiffe://example.org/x"
    ends = [Renewal(agreement(end, who)) for end in exchanged(EXCHANGE["exchanges"]["basic"])]
    client, server = ends
    assert sent(server.ask()) == case["wish"]
    client.receive(bytes.fromhex(case["wish"]))
    assert [type(event) for event in client.begin()] == [Begin]
    records = encode_message(decode(cbor.encode({"rekey": b"hello"})))
    assert [type(event) for event in server.receive(records)] == [Begin, Feed]
    for end in ends:
        end.shaken(who)
        [said] = end.derived(Handover())
        assert isinstance(said, Say) and said.data.hex() == case["renew"]
    for end in ends:
        assert end.hear(bytes.fromhex(case["renew"])) == [Take()]
        [said] = [event for event in end.taken() if isinstance(event, Say)]
        assert said.data.hex() == case["taken"]
        assert [end.exporter_context(qp).hex() for qp in (0, 1)] == case["contexts"]
    for end in ends:
        end.hear(bytes.fromhex(case["taken"]))
        assert end.idle


def test_resumption_of_srdma() -> None:
    """Messages, label and keys of the example, by the parts of srdma that make them."""
    case = EXCHANGE["resumption"]
    found = [decode(bytes.fromhex(raw)) for raw in case["messages"]]
    assert resumption.LABEL == keyexchange.RESUME_LABEL
    context, hash_ = (
        bytes.fromhex(case["context"]),
        bytes.fromhex(EXCHANGE["exchanges"]["basic"]["hash"]),
    )
    assert (
        export(bytes.fromhex(case["secret"]), resumption.LABEL, hash_, 32, "sha384").out == context
    )
    keys = list(map(bytes.fromhex, case["keys"]))
    for qp, (to_server, to_client) in enumerate(EXCHANGE["exporter"]["out"]):
        generation = bytes.fromhex(EXCHANGE["exchanges"]["basic"]["generations"][qp])
        other = bindings.kdf(bytes.fromhex(to_client), "renew", generation, 32)
        made = bindings.kdf(bytes.fromhex(to_server), "renew", generation + other, 32)
        assert made == keys[qp]
    for role, message in enumerate(found):
        proofs = tuple(bindings.kdf(key, "proof", bytes([role]) + context, 32) for key in keys)
        assert message == Resume(hash_, 1, (1, 1), proofs)
    assert decode(bytes.fromhex(case["closed"])) == ClosedMessage()


def test_streams_of_srdma() -> None:
    case = EXCHANGE["streams"]
    assert server_name(case["identity"]) == case["sni"]
    hash_ = bytes.fromhex(EXCHANGE["exchanges"]["basic"]["hash"])
    assert [(number, decode(bytes.fromhex(raw))) for number, raw in case["frames"]] == [
        (0, Hello(4793)),
        (0, Hello(0)),
        (1, ClosedMessage()),
        (2, Wake(hash_)),
        (0, ErrorMessage("idle", "it was idle")),
    ]


def test_rendezvous_of_srdma() -> None:
    """The OFFER is that of the call of the end with the lower QPN."""
    offer = decode(bytes.fromhex(EXCHANGE["rendezvous"]))
    assert isinstance(offer, Offer)
    ends = [
        gid.QPName(gid.parse("192.0.2.2"), 0x5E12E2),
        gid.QPName(gid.parse("192.0.2.1"), 0xC11E47),
    ]
    call = rendezvous.Call.of(*ends)
    assert (call.role, call.to) == ("client", offer.to)
    assert rendezvous.Call.of(*reversed(ends)).key == call.key == (offer.to, offer.ends[0].qpn)


def messages() -> Iterator[str]:
    for case in EXCHANGE["exchanges"].values():
        yield from (case["offer"], case["choice"], *case["confirms"])
    yield from (EXCHANGE["ready"], EXCHANGE["error"])
    yield from (EXCHANGE["renewal"][name] for name in ("wish", "renew", "taken"))
    yield from (*EXCHANGE["resumption"]["messages"], EXCHANGE["resumption"]["closed"])
    yield from (raw for _, raw in EXCHANGE["streams"]["frames"])
    yield EXCHANGE["rendezvous"]


def test_cbor2_and_srdma_encode_each_message_alike() -> None:
    for raw in map(bytes.fromhex, messages()):
        value = cbor2.loads(raw)
        assert cbor2.dumps(value, canonical=True) == cbor.encode(value) == raw
        assert encode_message(decode(raw)) == raw


@pytest.mark.parametrize("number", [0, 23, 24, 255, 256, 65535, 65536, (1 << 32) - 1, 1 << 32])
def test_cbor_of_numbers_and_lengths(number: int) -> None:
    assert cbor.encode(number) == cbor2.dumps(number, canonical=True)
    text = "x" * min(number, 70_000)
    for value in (text, text.encode(), {text: [True, False, {}]}):
        assert cbor.encode(value) == cbor2.dumps(value, canonical=True)


def test_secrets_of_pds_by_c() -> None:
    """The secrets of the CONFIRMs in mode pd."""
    case = EXCHANGE["exchanges"]["pd"]
    ends = [cbor2.loads(bytes.fromhex(case[name]))["ends"] for name in ("offer", "choice")]
    for side, confirm in enumerate(case["confirms"]):
        key = bytes.fromhex(EXCHANGE["group_keys"][side])
        for i, secret in enumerate(cbor2.loads(bytes.fromhex(confirm))["secrets"]):
            receiver, sender = ((e[i]["eid"], e[i]["qpn"]) for e in (ends[side], ends[1 - side]))
            generation = bytes.fromhex(case["generations"][i])
            assert bindings.pd_secret(key, receiver, sender, generation, 16) == secret


# --- the exporter (8.4) -----------------------------------------------------------------


def test_labels_are_those_of_srdma() -> None:
    assert EXPORTER_LABELS == keyexchange.LABELS


def certificate() -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(hours=1))
    return key, builder.sign(key, hashes.SHA256())


def connection(suite: bytes) -> tuple[SSL.Connection, bytes]:
    """A client of TLS 1.3 whose handshake is done, and its exporter_secret."""
    lines: list[bytes] = []
    ends = []
    for role in ("client", "server"):
        context = SSL.Context(SSL.TLS_METHOD)
        context.set_tls13_ciphersuites(suite)
        if role == "server":
            key, cert = certificate()
            context.use_privatekey(key)
            context.use_certificate(cert)
        else:
            context.set_keylog_callback(lambda _, line: lines.append(line))
        ends.append(SSL.Connection(context, None))
    client, server = ends
    client.set_connect_state()
    server.set_accept_state()
    for _ in range(3):
        for end, peer in ((client, server), (server, client)):
            with contextlib.suppress(SSL.WantReadError):
                end.do_handshake()
            with contextlib.suppress(SSL.WantReadError):  # nothing to send
                peer.bio_write(end.bio_read(65_536))
    [secret] = [line.split()[2] for line in lines if line.startswith(b"EXPORTER_SECRET")]
    return client, bytes.fromhex(secret.decode())


@pytest.mark.parametrize(
    ("suite", "digest"),
    [(b"TLS_AES_256_GCM_SHA384", "sha384"), (b"TLS_AES_128_GCM_SHA256", "sha256")],
)
def test_exporter_is_that_of_openssl(suite: bytes, digest: str) -> None:
    tls, secret = connection(suite)
    for size in (16, 32, 100):
        for label in (*keyexchange.LABELS, keyexchange.RESUME_LABEL):
            for context in map(bytes.fromhex, EXCHANGE["exporter"]["contexts"]):
                wanted = tls.export_keying_material(label, size, context)
                assert export(secret, label, context, size, digest).out == wanted


def test_secrets_are_those_of_the_exporter() -> None:
    for case, size, name in (
        (EXCHANGE["exporter"], 16, "out"),
        (EXCHANGE["exporter"], 32, "out32"),
        (EXCHANGE["renewal"], 16, "out"),
    ):
        made = partial(export, bytes.fromhex(case["secret"]), n=size, digest="sha384")
        for context, secrets in zip(case["contexts"], case[name], strict=True):
            for label, secret in zip(EXPORTER_LABELS, secrets, strict=True):
                assert made(label=label, context=bytes.fromhex(context)).out.hex() == secret


# --- datagrams (11a) --------------------------------------------------------------------


@named("datagram")
def test_icrc_of_zlib(datagram: dict[str, Any]) -> None:
    covered = bytes.fromhex(datagram["covered"])
    assert zlib.crc32(covered) == crc32(covered)
    assert zlib.crc32(covered).to_bytes(4, "little").hex() == datagram["icrc"]


@named("datagram")
def test_icrc_of_scapy(datagram: dict[str, Any]) -> None:
    layers = pytest.importorskip("scapy.layers.all", reason="scapy is not installed")
    from scapy.contrib.roce import BTH

    raw = bytes.fromhex(datagram["datagram"])
    ip = (layers.IPv6 if raw[0] >> 4 == 6 else layers.IP)(raw)
    udp = ip[layers.UDP]
    bth = BTH(bytes(udp.payload))
    bth.icrc = None
    udp.remove_payload()
    again = ip / bth
    del again[layers.UDP].chksum
    if raw[0] >> 4 == 4:
        del again[layers.IP].chksum
        again[layers.UDP].chksum = 0
    assert bytes(again) == raw


def test_the_icrc_of_a_routed_datagram_is_that_of_the_sent_one() -> None:
    sent_one, routed, other = FOUND["datagrams"]
    assert routed["icrc"] == sent_one["icrc"] != other["icrc"]
    assert routed["datagram"] != sent_one["datagram"]
    server = sessions(CONNECTIONS[0])[1]
    assert server.open(bytes.fromhex(routed["packet"]))["pn"] == CONNECTIONS[0]["steps"][0]["pn"]


# --- packets through C ------------------------------------------------------------------


def sessions(case: dict[str, Any]) -> list[bindings.Session]:
    """The ends of a connection in C. In key mode pd each has the K_PD of its leg."""
    client = params_from_json(case["client"])
    found = []
    for i, end in enumerate((client, client.mirrored())):
        given = fields.of_params(end)
        if end.mode & Mode.PD:
            given |= {"group_key": bytes.fromhex(case["group_keys"][i]), "shared": False}
            given |= {"rx_secret": bytes(len(end.rx_secret)), "key_cache": bindings.KeyCache(4)}
        found.append(bindings.Session(given))
    return found


def renew(ends: list[bindings.Session], step: dict[str, Any]) -> None:
    secret = bytes.fromhex(step["secret"])
    ends[1 - step["renew"]].renew(1, secret)
    ends[step["renew"]].renew(2, secret)


@named("connection")
def test_c_seals_and_opens_the_same_bytes(connection: dict[str, Any]) -> None:
    ends = sessions(connection)
    for step in connection["steps"]:
        if "renew" in step:
            renew(ends, step)
            continue
        packet = packet_from_json(step["fields"], step["payload"])
        sender, receiver = ends[step["from"]], ends[1 - step["from"]]
        if "told" in step:
            assert sender.advance(0, step["told"]) == step["began"]
        sealed = sender.seal(fields.of_packet(packet), packet.payload)
        if not step["name"]:  # lost
            continue
        assert sealed.hex() == step["datagram"], step["name"]
        check_parsed(sealed, connection["client"]["tag_len"])
        opened = receiver.open(sealed)
        full = replace(packet, epoch=step["epoch"] & 3)
        wanted = fields.of_opened(step["pn"], full)
        assert opened == wanted | {"qpn": opened["qpn"], "psn": step["pn"] & 0xFFFFFF}
        with pytest.raises(bindings.RefusedError, match="replay"):
            receiver.open(sealed)
        if "told" in step:
            assert (sender.epochs[0], receiver.epochs[1]) == (step["epoch"], step["epoch"])


def check_parsed(datagram: bytes, tag_len: int) -> None:
    """The parsers of C and of the reference find the same fields."""
    wanted = parse(datagram, tag_len)
    found = bindings.parse(datagram, tag_len)
    assert found == fields.of_parsed(wanted)


@named("connection")
def test_no_bit_of_a_header_may_be_flipped(connection: dict[str, Any]) -> None:
    """C opens the first packet with a flipped bit only if routers may change that bit, or if it
    belongs to the payload at level `header`."""
    server = sessions(connection)[1]
    step = connection["steps"][0]
    data = bytes.fromhex(step["datagram"])
    free = {4}
    if connection["client"]["level"] == 1:
        length = len(step["payload"]) // 2
        end = len(data) - -length % 4
        free |= set(range(end - length, end))
    for bit in range(8 * len(data)):
        if bit // 8 not in free:
            changed = bytearray(data)
            changed[bit // 8] ^= 0x80 >> bit % 8
            with pytest.raises(bindings.RefusedError):
                server.open(bytes(changed))
    server.open(data)


@named("connection")
def test_traffic_keys_by_c(connection: dict[str, Any]) -> None:
    """The nonce of each packet is the IV of its epoch and its packet number."""
    client = params_from_json(connection["client"])
    suite = SUITES[client.suite]
    for step in connection["steps"]:
        if not step.get("name"):
            continue
        way, epoch = step["from"], step["epoch"]
        initial = (client.tx_secret, client.rx_secret)[way]
        secret = bytes.fromhex(step["secret"]) if epoch else initial
        form = (suite, client.level, client.tag_len)
        context = traffic_context(client.generation, way, epoch, form)
        both = bindings.kdf(secret, "traffic", context, suite.key_size + suite.iv_size)
        iv = int.from_bytes(both[suite.key_size :], "big")
        number = (way << 63 | step["pn"]) if suite.iv_size else 0
        assert step["nonce"] == (iv ^ number).to_bytes(suite.iv_size, "big").hex()


def test_chain_of_secrets_by_c() -> None:
    case = next(c for c in CONNECTIONS if c["name"] == "epochs")
    client = params_from_json(case["client"])
    secret = client.tx_secret
    for step in case["steps"][1:5]:
        context = client.generation + bytes([0]) + step["epoch"].to_bytes(4, "big")
        secret = bindings.kdf(secret, "next", context, len(secret))
        assert secret.hex() == step["secret"]
    assert case["steps"][6]["secret"] == EXCHANGE["renewal"]["out"][0][0]


def test_connections_are_those_of_the_exchange() -> None:
    """The packets are sealed with the secrets of the key exchange above them on the page."""
    client = params_from_json(CONNECTIONS[0]["client"])
    basic = EXCHANGE["exchanges"]["basic"]
    assert client.generation.hex() == basic["generations"][0]
    assert [client.tx_secret.hex(), client.rx_secret.hex()] == EXCHANGE["exporter"]["out"][0]
    pd = params_from_json(CONNECTIONS[-1]["client"])
    secrets = [cbor2.loads(bytes.fromhex(raw)) for raw in EXCHANGE["exchanges"]["pd"]["confirms"]]
    assert pd.generation.hex() == EXCHANGE["exchanges"]["pd"]["generations"][0]
    assert [pd.tx_secret, pd.rx_secret] == [secrets[1]["secrets"][0], secrets[0]["secrets"][0]]
    assert EXCHANGE["exporter"]["digest"] == worked_exchange.DIGEST
