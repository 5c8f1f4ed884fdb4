"""Every attack of the kit fails on srdma, and its counter rises.

The attacks from the network succeed on sessions of level `none`: this shows that they reach the
checks that stop them.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import srdma
from srdma.cli import app as cli
from srdma_attack import cli as kit_cli
from srdma_attack import goodput, table
from srdma_attack.against_plain import cable, frames, machine, rules
from srdma_attack.against_srdma import local
from srdma_attack.attack import Attack, Finding, Outcome, Settings, Target
from srdma_attack.datagrams import parse_address
from srdma_attack.sweep import NUMBERS, program
from tests.e2e.conftest import WAIT
from tests.reference.icrc import Datagram

ON_SRDMA = [attack for attack in table.ATTACKS if attack.srdma]
# Attacks that only the keys stop. Packet numbers stop the others at level `none` too.
EFFECTIVE = (
    "inject-write", "kill-qp", "forge-ack", "forge-nak", "forge-read-response", "forge-disconnect",
    "flip", "truncate", "reflect", "downgrade-packet",
)  # fmt: skip
NEED_ROOT = ("inject-as-other-user",)
ROOT = Path(__file__).parents[2]


def run(*words: str) -> Any:
    return CliRunner().invoke(cli.build(), ["attack", *words])


def name(attack: Attack) -> str:
    return attack.name


@pytest.mark.parametrize("attack", ON_SRDMA, ids=name)
def test_attack_is_stopped_and_counted(attack: Attack) -> None:
    assert attack.srdma
    if attack.name in NEED_ROOT and os.geteuid():
        pytest.skip("a program of another user is started by root only")
    found = attack.srdma(Settings())
    assert attack.as_expected(Target.SRDMA, found), found


@pytest.mark.parametrize("which", EFFECTIVE)
def test_attack_succeeds_without_protection(which: str) -> None:
    attack = table.BY_NAME[which]
    assert attack.srdma
    assert attack.srdma(Settings(protected=False)).outcome is Outcome.SUCCEEDS


def test_program_of_the_same_user_is_not_stopped() -> None:
    """The same attack by a program of the victim's user (docs/security.md, *Not covered*)."""
    assert local.intrude(Settings(), os.geteuid()).outcome is Outcome.SUCCEEDS


def test_stale_read_finds_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same attack on memory that is not zero."""
    alloc = srdma.PD.alloc

    def used(*args: Any, **options: Any) -> srdma.MR:
        region = alloc(*args, **options)
        region.buf[-1:] = b"x"
        return region

    monkeypatch.setattr(srdma.PD, "alloc", used)
    attack = table.BY_NAME["stale-read"]
    assert attack.srdma
    assert attack.srdma(Settings()).outcome is Outcome.SUCCEEDS


@pytest.mark.soak
@pytest.mark.parametrize("which", ["inject-write", "kill-qp"])
def test_sweep_of_all_packet_numbers(which: str) -> None:
    attack = table.BY_NAME[which]
    assert attack.srdma
    found = attack.srdma(Settings(full=True))
    assert attack.as_expected(Target.SRDMA, found), found
    refused = found.counters["refused_tag"] + found.counters["refused_replay"]
    assert refused >= NUMBERS


def test_table_of_the_document() -> None:
    """`srdma attack --list --markdown` prints it."""
    assert table.markdown() in (ROOT / "docs/attacks.md").read_text()
    assert run("--list", "--markdown").stdout == table.markdown()


def test_table_has_each_name_once() -> None:
    assert len(table.BY_NAME) == len(table.ATTACKS)


def test_command_prints_a_line_of_json_per_attack() -> None:
    done = run("flip", "replay", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 0 and [line["attack"] for line in lines] == ["flip", "replay"]
    assert all(
        line["srdma"] == "stopped" and line["rose"] and line["plain"] == "-" for line in lines
    )


def test_command_prints_a_table() -> None:
    lines = run("replay").stdout.splitlines()
    assert lines[0].split() == ["attack", "attacker", "plain", "srdma", "counter", "rose"]
    assert lines[1].split()[:1] == ["replay"] and "stopped" in lines[1] and len(lines) == 2


@pytest.mark.parametrize(
    "found",
    [Finding(Outcome.SUCCEEDS, {"refused_replay": 1}), Finding(Outcome.STOPPED, {})],
    ids=["succeeds", "counter does not rise"],
)
def test_outcome_that_is_not_expected(found: Finding, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {**vars(table.BY_NAME["replay"]), "srdma": lambda _: found}
    monkeypatch.setitem(table.BY_NAME, "replay", Attack(**changed))
    done = run("replay")
    assert done.exit_code == 1 and "not as expected: replay" in done.stderr


def test_list_runs_nothing() -> None:
    done = run("--list")
    assert done.exit_code == 0 and len(done.stdout.splitlines()) == 1 + len(table.ATTACKS)
    rows = [json.loads(line) for line in run("--list", "--json").stdout.splitlines()]
    assert [row["attack"] for row in rows] == [attack.name for attack in table.ATTACKS]


def test_plain_roce_is_attacked_in_a_virtual_machine_only() -> None:
    """Outside of one, the command starts one; the attack itself refuses."""
    attack = table.BY_NAME["kill-qp"]
    assert attack.plain
    pytest.importorskip("pyverbs.qp", reason="pyverbs is not installed")
    with pytest.raises(table.KitError, match="in a virtual machine"):
        attack.plain(Settings())


def test_results_of_the_virtual_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    line = {"attack": "kill-qp", "plain": "succeeds", "note_plain": "7 packets"}
    script = f"print('booting'); print({json.dumps(line)!r})"
    monkeypatch.setattr(machine, "command", lambda words: [sys.executable, "-c", script])
    found = machine.findings(["kill-qp"], Settings())
    assert found == {"kill-qp": Finding(Outcome.SUCCEEDS, note="7 packets")}
    done = run("kill-qp", "reflect", "--target", "plain", "--json")
    assert done.exit_code == 0 and json.loads(done.stdout)["plain"] == "succeeds"
    with pytest.raises(table.KitError, match="the virtual machine failed with code 0"):
        machine.findings(["inject-write"], Settings())


def test_words_for_the_virtual_machine() -> None:
    words = machine.command(["kill-qp", "--full"])
    assert words[1] == "tests/rxe/vm.py" and words[-2:] == ["kill-qp", "--full"]


REFUSED = {  # of the ways to misbehave that a worker counts
    "requests far ahead": "refused_gap",
    "replays": "refused_replay",
    "forged tags": "refused_tag",
}


@pytest.mark.parametrize("way", goodput.WAYS, ids=lambda way: way.name)
def test_goodput_beside_a_tenant_that_misbehaves(
    way: goodput.Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant, value in (("QPS", 3), ("PACKETS", 8), ("SECONDS", 0.05)):
        monkeypatch.setattr(goodput, constant, value)
    found = goodput.beside(way, 1)
    assert found.goodput > 0 and found.control > 0 and found.sent == 24
    if name := REFUSED.get(way.name):
        assert found.refused.get(name), found


def test_command_prints_the_goodput(monkeypatch: pytest.MonkeyPatch) -> None:
    made = goodput.Goodput("a way", 30.0, 100.0, 8000, {"refused_tag": 7})
    monkeypatch.setattr(kit_cli, "beside", lambda way: made)
    monkeypatch.setattr(kit_cli, "WAYS", goodput.WAYS[:1])
    assert "of its fair share 0.60, of all 0.30" in " ".join(run("goodput").stdout.split())
    assert json.loads(run("goodput", "--json").stdout)["control"] == 100.0


def plain_write(number: int, payload: bytes, qpn: int = 17) -> bytes:
    """A frame of plain RoCE: BTH, RETH, payload."""
    packet = struct.pack(">BBHII", 0x0A, 0, 0xFFFF, qpn, number) + struct.pack(
        ">QII", 1 << 40, 99, len(payload)
    )
    datagram = Datagram(("10.0.0.1", 49152), ("10.0.0.2", 4791), packet + payload)
    return frames.Frame(bytes(12) + frames.ETHERTYPE, datagram).build()


def test_frame_of_plain_roce_is_read_and_built() -> None:
    data = plain_write(5, b"payload!")
    frame = frames.Frame.parse(data)
    assert frame and frame.build() == data and frame.payload == b"payload!"
    assert frame.with_payload(b"pay!").build() == plain_write(5, b"pay!")
    assert frames.Frame.parse(data + bytes(4)) == frame  # a frame may be padded


@pytest.mark.parametrize(
    "data",
    [
        plain_write(5, b"payload!")[:-12],
        plain_write(5, b"")[:-24],
        plain_write(5, b"payload!").replace(bytes([0x45, 0, 0, 68]), bytes([0x45, 0, 0, 30])),
        plain_write(5, b"payload!").replace(b"\x08\x00\x45", b"\x86\xdd\x45"),
        plain_write(5, b"payload!").replace((4791).to_bytes(2, "big"), b"\0\7"),
    ],
    ids=["cut", "short", "short in IP", "IPv6", "another port"],
)
def test_frame_that_is_not_roce_passes(data: bytes) -> None:
    assert frames.Frame.parse(data) is None
    assert list(rules.Flip()(cable.LEFT, data)) == [data]


WRITES = [(1, b"old "), (2, b"new "), (3, b"last")]  # PSN and payload


@pytest.mark.parametrize(
    ("rule", "arrive"),
    [
        (rules.Writes, [[one] for one in WRITES]),
        (rules.Flip, [[(1, b"old\xdf")], [(2, b"new\xdf")], [(3, b"las\x8b")]]),
        (rules.Truncate, [[(1, b"ol")], [(2, b"ne")], [(3, b"la")]]),
        (rules.Replay, [[(1, b"old ")], [(2, b"new ")], [(3, b"old ")]]),
        (rules.Reorder, [[], [(1, b"new "), (2, b"old ")], [(3, b"last")]]),
    ],
)
def test_rule_of_a_man_in_the_middle_of_plain_roce(
    rule: type[rules.Writes], arrive: list[list[tuple[int, bytes]]]
) -> None:
    made = rule()
    for one, wanted in zip(WRITES, arrive, strict=True):
        data = plain_write(*one)
        assert list(made(cable.RIGHT, data)) == [data]
        assert list(made(cable.LEFT, data)) == [plain_write(*each) for each in wanted]


def test_rules_in_turn() -> None:
    made = rules.InTurn()
    for qpn, case in enumerate([*rules.CASES.values(), rules.CONTROL]):
        alone = case.rule()
        for number, (payload, _) in enumerate(case.writes):
            assert not made.done
            data = plain_write(number, payload, qpn)
            assert list(made(cable.LEFT, data)) == list(alone(cable.LEFT, data))
    assert made.done
    damaged = plain_write(9, b"of another QP", qpn=99)[:-1] + b"?"
    assert list(made(cable.LEFT, damaged)) == [damaged]


def test_unknown_attack() -> None:
    done = run("teleport")
    assert done.exit_code == 3 and "no attack teleport" in done.stderr


def test_program_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD", "/nonexistent")
    done = run("kill-qp")
    assert done.exit_code == 3 and "make attack" in done.stderr


def test_address_outside_of_this_machine() -> None:
    with pytest.raises(table.KitError, match="the kit attacks no other"):
        parse_address("192.0.2.1:4791")


@pytest.mark.parametrize(
    ("words", "template", "text"),
    [
        ([], "", "give udp SOURCE_PORT TARGET_PORT, or veth DEVICE"),
        (["tcp", "1", "2"], "", "give udp"),
        (["veth", "lo"], "", "no device of a veth pair"),
        (["veth", "absent0"], "", "no device of a veth pair"),
        (["udp", "0", "9"], "", "give a template"),
        (["udp", "0", "9"], "00ff\n", "no packet has 2 bytes"),
    ],
)
def test_sweep_refuses(words: list[str], template: str, text: str) -> None:
    done = subprocess.run(
        [program(), *words], input=template, capture_output=True, text=True, timeout=WAIT
    )
    refused = text in done.stderr or "run as root" in done.stderr
    assert done.returncode == 2 and refused, done


def test_kit_outside_of_a_source_tree(tmp_path: Path) -> None:
    """The package imports nothing without the reference."""
    package = tmp_path / "x" / "srdma_attack"
    package.mkdir(parents=True)
    source = ROOT / "attack/srdma_attack/__init__.py"
    (package / "__init__.py").write_bytes(source.read_bytes())
    done = subprocess.run(
        [sys.executable, "-c", "import srdma_attack"],
        env={"PYTHONPATH": str(package.parent)}, capture_output=True, text=True, timeout=WAIT,
    )  # fmt: skip
    assert done.returncode == 1 and "is no source tree" in done.stderr
