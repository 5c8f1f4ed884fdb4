"""The vectors of the Python reference through C: equal bytes and equal refusals."""

from __future__ import annotations

import errno
import json
from typing import Any

import pytest

from tests import fields
from tests.native import bindings
from tests.reference import make_vectors
from tests.reference.jsonform import packet_from_json, params_from_json
from tests.reference.kdf import traffic_context
from tests.reference.protect import Mode
from tests.reference.suites import SUITES, Level

PACKETS = sorted(path.name for path in make_vectors.VECTORS.glob("packets-*.json"))


def load(name: str) -> Any:
    return json.loads((make_vectors.VECTORS / name).read_text())


def test_files_are_up_to_date() -> None:
    wanted = {name: make_vectors.dump(what) for name, what in make_vectors.all_vectors().items()}
    found = {path.name: path.read_text() for path in make_vectors.VECTORS.glob("*.json")}
    assert found == wanted, "run python -m tests.reference.make_vectors"


def sessions(contents: dict[str, Any]) -> list[bindings.Session]:
    client = params_from_json(contents["client"])
    return [bindings.Session(fields.of_params(end)) for end in (client, client.mirrored())]


def arguments(step: dict[str, Any]) -> tuple[Any, bytes]:
    """Returns the arguments of Session.seal()."""
    packet = packet_from_json(step["fields"], step["payload"])
    return fields.of_packet(packet), packet.payload


@pytest.mark.parametrize("name", PACKETS)
def test_packets(name: str) -> None:
    contents = load(name)
    ends = sessions(contents)
    for step in contents["steps"]:
        sealed = ends[step["from"]].seal(*arguments(step))
        assert sealed.hex() == step["datagram"], step
        opened = ends[1 - step["from"]].open(sealed)
        wanted = fields.of_opened(step["pn"], packet_from_json(step["fields"], step["payload"]))
        assert opened == wanted | {"qpn": opened["qpn"], "psn": step["pn"] & 0xFFFFFF}


PROTECTED = [name for name in PACKETS if name != "packets-none.json"]


def refused(end: bindings.Session, data: bytes) -> bool:
    try:
        end.open(data)
    except bindings.RefusedError:
        return True
    return False


def unprotected(contents: dict[str, Any], step: dict[str, Any]) -> range:
    """Returns the range of bytes that the level `header` does not protect: the payload."""
    level, length = contents["client"]["level"], len(step["payload"]) // 2
    end = len(step["datagram"]) // 2 - -length % 4
    return range(end - length, end) if level == Level.HEADER else range(0)


@pytest.mark.parametrize("name", PROTECTED)
def test_flipped_bits_are_refused(name: str) -> None:
    """A packet of any type with one flipped bit is refused. Exceptions are the bits that routers
    may change and, at level `header`, those of the payload: one of these is flipped in each packet,
    which must be opened with that change."""
    contents = load(name)
    ends = sessions(contents)
    for number, step in enumerate(contents["steps"]):
        end, data = ends[1 - step["from"]], bytes.fromhex(step["datagram"])
        ends[step["from"]].seal(*arguments(step))
        free = [4, *unprotected(contents, step)]
        for bit in range(8 * len(data)):
            if bit // 8 not in free:
                assert refused(end, flip(data, bit)), (number, bit)
        at = free[number % len(free)]
        found = end.open(flip(data, 8 * at + number % 8))
        plain = bytes.fromhex(step["payload"])
        start = len(data) - len(plain) - -len(plain) % 4
        wanted = plain if at == 4 else flip(plain, 8 * (at - start) + number % 8)
        assert found["payload"] == wanted
        assert refused(end, data), "a replay was not refused"


def flip(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 0x80 >> bit % 8
    return bytes(changed)


@pytest.mark.parametrize("name", PROTECTED)
def test_other_lengths_and_other_ends_are_refused(name: str) -> None:
    """A packet is refused if it is truncated or extended by up to 64 bytes, has another opcode, is
    reflected, or is opened by a session of another generation."""
    contents = load(name)
    ends = sessions(contents)
    others = sessions(contents | {"client": contents["client"] | {"generation": "00" * 8}})
    for step in contents["steps"]:
        end, data = ends[1 - step["from"]], bytes.fromhex(step["datagram"])
        ends[step["from"]].seal(*arguments(step))
        for n in range(1, 65):
            assert refused(end, data[:-n]) and refused(end, data + bytes(n))
        for opcode in range(256):
            assert opcode == data[0] or refused(end, bytes([opcode]) + data[1:])
        assert refused(ends[step["from"]], data)
        assert refused(others[1 - step["from"]], data)
        end.open(data)


@pytest.mark.parametrize("name", PROTECTED)
def test_traffic_keys(name: str) -> None:
    contents = load(name)
    client = params_from_json(contents["client"])
    form = (SUITES[client.suite], client.level, client.tag_len)
    for direction, secret in enumerate((client.tx_secret, client.rx_secret)):
        keys = contents["keys"][direction]
        wanted = bytes.fromhex(keys["key"] + keys["iv"])
        context = traffic_context(client.generation, direction, 0, form)
        assert bindings.kdf(secret, "traffic", context, len(wanted)) == wanted


def test_every_suite_of_the_table() -> None:
    rows = {row["id"]: row for row in bindings.suites()}
    assert rows.keys() == SUITES.keys()
    for suite in SUITES.values():
        row = rows[suite.id]
        wanted = (suite.name, suite.key_size, suite.iv_size, suite.tag_size, suite.tag_min)
        names = ("name", "key_len", "iv_len", "tag_len", "tag_min")
        assert tuple(row[name] for name in names) == wanted  # type: ignore[literal-required]
        assert (row["packets"], row["forgeries"]) == (suite.packets, 2**36)
        assert row["levels"] == suite.levels


def test_kdf() -> None:
    for case in load("kdf.json"):
        parent, context = bytes.fromhex(case["parent"]), bytes.fromhex(case["context"])
        assert bindings.kdf(parent, case["label"], context, case["n"]).hex() == case["out"]


@pytest.mark.parametrize(
    ("size", "label", "context", "n"),
    [(24, "traffic", 8, 16), (16, "l" * 33, 8, 16), (16, "traffic", 65, 16), (16, "traffic", 8, 0)],
)
def test_kdf_refuses(size: int, label: str, context: int, n: int) -> None:
    with pytest.raises(ValueError):
        bindings.kdf(bytes(size), label, bytes(context), n)


def test_numbers() -> None:
    for case in load("numbers.json"):
        assert bindings.infer(case["expected"], case["low"]) == case["number"], case


def test_parser_refuses() -> None:
    for case in load("refused.json"):
        bindings.parse(bytes.fromhex(case["legal"]), case["tag_len"])
        with pytest.raises(bindings.RefusedError) as caught:
            bindings.parse(bytes.fromhex(case["datagram"]), case["tag_len"])
        assert caught.value.counter == case["refusal"], case


def test_host_formats() -> None:
    contents = load("host.json")
    pairs = (
        ("descriptors", bindings.encode_descriptor, bindings.decode_descriptor),
        ("records", bindings.encode_record, bindings.decode_record),
    )
    for name, encode, decode in pairs:
        for case in contents[name]:
            data = bytes.fromhex(case["bytes"])
            found = decode(data)
            assert encode(found) == data
            assert {k: v for k, v in found.items() if v} == {
                k: v for k, v in case["fields"].items() if v
            }


@pytest.mark.parametrize("number", range(5))
def test_worked_example(number: int) -> None:
    contents = load("example.json")["connections"][number]
    in_pd = "group_keys" in contents
    ends = pd_sessions(contents, bindings.KeyCache(1)) if in_pd else sessions(contents)
    for packet in contents["packets"]:
        sealed = ends[packet["from"]].seal(*arguments(packet))
        assert sealed.hex() == packet["datagram"], packet["name"]


# --- key modes --------------------------------------------------------------------


def test_secrets_of_key_mode_pd() -> None:
    cases = load("pd.json")["secrets"]
    for case in cases:
        receiver, sender = (
            (bytes.fromhex(case[end]["eid"]), case[end]["qpn"]) for end in ("receiver", "sender")
        )
        key, generation = bytes.fromhex(case["group_key"]), bytes.fromhex(case["generation"])
        wanted = bytes.fromhex(case["secret"])
        assert bindings.pd_secret(key, receiver, sender, generation, len(wanted)) == wanted
    assert len({case["secret"] for case in cases}) == len(cases)


@pytest.mark.parametrize("case", load("pd.json")["connections"], ids=lambda c: c["policy"])
@pytest.mark.parametrize("contexts", [0, 1024])
def test_packets_in_key_mode_pd(case: dict[str, Any], contexts: int) -> None:
    """Each end uses its own K_PD and, in policy `owner`, the secret that the other end gave it."""
    ends = pd_sessions(case, bindings.KeyCache(contexts))
    for packet in case["packets"]:
        sealed = ends[packet["from"]].seal(*arguments(packet))
        assert sealed.hex() == packet["datagram"]
        assert ends[1 - packet["from"]].open(sealed)["payload"].hex() == packet["payload"]
    other = ends[0].seal({"opcode": 4, "request_id": 9}, b"")
    for stranger in (case | {"group_keys": ["00" * 48] * 2}, of_mode(case, 2)):
        with pytest.raises(bindings.RefusedError, match="tag"):
            pd_sessions(stranger, bindings.KeyCache(contexts))[1].open(other)


# --- epochs (3.5) ---------------------------------------------------------------


@pytest.mark.parametrize("case", load("epochs.json")["secrets"])
def test_chain_of_secrets(case: dict[str, Any]) -> None:
    suite, direction = SUITES[case["suite"]], case["direction"]
    secret, generation = bytes.fromhex(case["secret"]), bytes.fromhex(case["generation"])
    for row in case["rows"]:
        epoch = row["epoch"]
        context = generation + bytes([direction]) + epoch.to_bytes(4, "big")
        secret = bindings.kdf(secret, "next", context, len(secret))
        assert secret.hex() == row["secret"]
        context += bytes([suite.id, case["level"], case["tag_len"]])
        both = bindings.kdf(secret, "traffic", context, suite.key_size + suite.iv_size)
        assert both.hex() == row["key"] + row["iv"]


@pytest.mark.parametrize("contexts", [0, 1024])
@pytest.mark.parametrize("case", load("epochs.json")["connections"], ids=lambda c: c["policy"])
def test_connections_with_several_epochs(case: dict[str, Any], contexts: int) -> None:
    ends, began = pd_sessions(case, bindings.KeyCache(contexts)), 0
    first: tuple[int, bytes] | None = None
    for step in case["steps"]:
        if "renew" in step:
            renew(ends, step)
            continue
        sender, receiver = ends[step["from"]], ends[1 - step["from"]]
        assert sender.advance(0, step["told"]) == step["began"]
        sealed = sender.seal(*arguments(step))
        assert sealed.hex() == step["datagram"]
        assert receiver.open(sealed)["payload"].hex() == step["payload"]
        assert [sender.epochs[0], receiver.epochs[1]] == step["epochs"]
        began += step["began"] == 1
        first = first or (1 - step["from"], sealed)
    assert began > 6
    assert first
    with pytest.raises(bindings.RefusedError, match="replay"):
        ends[first[0]].open(first[1])


def renew(ends: list[bindings.Session], step: dict[str, Any]) -> None:
    """Installs a new secret, at the receiver first. In modes with pd the receiver derives it from a
    new K_PD."""
    sender, receiver = ends[step["renew"]], ends[1 - step["renew"]]
    secret = bytes.fromhex(step["secret"])
    if "group_key" in step:
        receiver.rotate(bytes.fromhex(step["group_key"]))
        receiver.renew(1, bytes(len(secret)))
    else:
        receiver.renew(1, secret)
    sender.renew(2, secret)
    for end, direction in ((sender, 2), (receiver, 1)):
        with pytest.raises(OSError, match="secret") as refused:  # a new secret is already waiting
            end.renew(direction, secret)
        assert refused.value.errno == errno.EBUSY


def of_mode(case: dict[str, Any], flip: int) -> dict[str, Any]:
    mode = case["client"]["mode"] ^ flip
    return case | {"client": case["client"] | {"mode": mode}}


def pd_sessions(case: dict[str, Any], cache: bindings.KeyCache) -> list[bindings.Session]:
    client = params_from_json(case["client"])
    shared = case.get("policy") == "shared"
    found = []
    for end, key in zip((client, client.mirrored()), case["group_keys"], strict=True):
        none = bytes(len(end.tx_secret))
        tx_secret = none if shared else end.tx_secret
        worker = {"group_key": bytes.fromhex(key), "shared": shared, "key_cache": cache}
        secrets = {"tx_secret": tx_secret}
        if end.mode & Mode.PD:
            secrets["rx_secret"] = none
        found.append(bindings.Session(fields.of_params(end) | secrets | worker))
    return found
