"""The vectors of the Python reference through C: every byte equal, every refusal the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from srdma import _native
from tests import fields
from tests.reference import make_vectors
from tests.reference.jsonform import packet_from_json, params_from_json
from tests.reference.kdf import traffic_context
from tests.reference.suites import SUITES

PACKETS = sorted(path.name for path in make_vectors.VECTORS.glob("packets-*.json"))


def load(name: str) -> Any:
    return json.loads((make_vectors.VECTORS / name).read_text())


def test_files_are_those_of_the_generator() -> None:
    wanted = {name: make_vectors.dump(what) for name, what in make_vectors.all_vectors().items()}
    found = {path.name: path.read_text() for path in make_vectors.VECTORS.glob("*.json")}
    assert found == wanted, "run python -m tests.reference.make_vectors"


def sessions(contents: dict[str, Any]) -> list[_native.Session]:
    client = params_from_json(contents["client"])
    return [_native.Session(fields.of_params(end)) for end in (client, client.mirrored())]


@pytest.mark.parametrize("name", PACKETS)
def test_packets(name: str) -> None:
    contents = load(name)
    ends = sessions(contents)
    for step in contents["steps"]:
        packet = packet_from_json(step["fields"], step["payload"])
        sealed = ends[step["from"]].seal(fields.of_packet(packet), packet.payload)
        assert sealed.hex() == step["datagram"], step
        opened = ends[1 - step["from"]].open(sealed)
        wanted = fields.of_opened(step["pn"], packet)
        assert opened == wanted | {"qpn": opened["qpn"], "psn": step["pn"] & 0xFFFFFF}


@pytest.mark.parametrize("name", [name for name in PACKETS if name != "packets-none.json"])
def test_traffic_keys(name: str) -> None:
    contents = load(name)
    client = params_from_json(contents["client"])
    form = (SUITES[client.suite], client.level, client.tag_len)
    for direction, secret in enumerate((client.tx_secret, client.rx_secret)):
        keys = contents["keys"][direction]
        wanted = bytes.fromhex(keys["key"] + keys["iv"])
        context = traffic_context(client.generation, direction, 0, form)
        assert _native.kdf(secret, "traffic", context, len(wanted)) == wanted


def test_every_row_of_the_table() -> None:
    rows = {row["id"]: row for row in _native.suites()}
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
        assert _native.kdf(parent, case["label"], context, case["n"]).hex() == case["out"]


@pytest.mark.parametrize(
    ("size", "label", "context", "n"),
    [(24, "traffic", 8, 16), (16, "l" * 33, 8, 16), (16, "traffic", 65, 16), (16, "traffic", 8, 0)],
)
def test_kdf_refuses(size: int, label: str, context: int, n: int) -> None:
    with pytest.raises(ValueError):
        _native.kdf(bytes(size), label, bytes(context), n)


def test_numbers() -> None:
    for case in load("numbers.json"):
        assert _native.infer(case["expected"], case["low"]) == case["number"], case


def test_parser_refuses() -> None:
    for case in load("refused.json"):
        _native.parse(bytes.fromhex(case["legal"]), case["tag_len"])
        with pytest.raises(_native.RefusedError) as caught:
            _native.parse(bytes.fromhex(case["datagram"]), case["tag_len"])
        assert caught.value.counter == case["refusal"], case


def test_host_formats() -> None:
    contents = load("host.json")
    pairs = (
        ("descriptors", _native.encode_descriptor, _native.decode_descriptor),
        ("records", _native.encode_record, _native.decode_record),
    )
    for name, encode, decode in pairs:
        for case in contents[name]:
            data = bytes.fromhex(case["bytes"])
            found = decode(data)
            assert encode(found) == data
            assert {k: v for k, v in found.items() if v} == {
                k: v for k, v in case["fields"].items() if v
            }


@pytest.mark.parametrize("number", range(4))
def test_worked_example(number: int) -> None:
    contents = load("example.json")["connections"][number]
    ends = sessions(contents)
    for packet in contents["packets"]:
        wanted = packet_from_json(packet["fields"], packet["payload"])
        sealed = ends[packet["from"]].seal(fields.of_packet(wanted), wanted.payload)
        assert sealed.hex() == packet["datagram"], packet["name"]
