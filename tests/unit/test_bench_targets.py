"""The table of targets: verdicts, results that are kept or measured again, and the page."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from srdma.errors import LocalError
from srdma_bench.folder import Folder
from srdma_bench.link import End
from srdma_bench.peers.compare import BASE, Row
from srdma_bench.series import Spread
from srdma_bench.stand import ROOT
from srdma_bench.targets import measure as how
from srdma_bench.targets import udp as targets_udp
from srdma_bench.targets.measure import (
    SMOKE,
    Measured,
    NotMeasuredError,
    ahead_of_stores,
    by_peer,
    fastest,
)
from srdma_bench.targets.page import SECTION, WHY, page
from srdma_bench.targets.ratios import Line, Run, Value
from srdma_bench.targets.rows import ROWS, Goal, Target, number

MOST, LEAST = Goal("cost", 2.0, " x"), Goal("rate", 0.5, least=True)
FACTS = {"cpu": "A | B", "cores": 2, "ipsec_mb": "1.3.0"}


def target(measure, goals=(MOST, LEAST), asked: str = "") -> Target:
    return Target("P1", "a thing", "make thing", measure, goals, asked)


def value(goal: Goal, median: float, load: float = 0.5, note: str = "") -> Value:
    when = "2026-11-21T13:00+00:00"
    return Value("P1", goal.name, median, median - 0.25, median + 0.25, 7, load, when, note)


def line(goal: Goal, median: float, **more) -> Line:
    return Line(target(lambda effort: Measured({})), goal, value(goal, median, **more))


@pytest.mark.parametrize(
    ("goal", "median", "verdict"),
    [
        (MOST, 2.0, "met"),
        (MOST, 2.5, "missed by 25 %"),
        (MOST, 2.001, "missed by less than 1 %"),
        (MOST, -1.0, "met"),
        (LEAST, 0.5, "met"),
        (LEAST, 0.4, "missed by 20 %"),
    ],
)
def test_verdicts(goal, median, verdict):
    of = line(goal, median)
    assert (of.verdict, of.held, of.short) == (verdict, verdict == "met", verdict != "met")


def test_unmeasured_goal_is_not_held():
    of = Line(target(lambda effort: Measured({})), MOST, None, "no such machine")
    assert (of.verdict, of.measured) == ("not measured: no such machine", "-")
    assert not of.held and not of.short
    assert of.plain()["verdict"] == of.verdict and "median" not in of.plain()


@pytest.mark.parametrize(
    ("of", "text"), [(1 / 6, "0.167"), (0.5, "0.5"), (60, "60"), (123.4, "123"), (1234.5, "1234")]
)
def test_numbers(of, text):
    assert number(of) == text


def test_rows_are_p1_to_p12_and_p14_to_p16_with_distinct_goals():
    assert [row.name for row in ROWS] == [f"P{n}" for n in (*range(1, 13), 14, 15, 16)]
    for row in ROWS:
        assert row.goals and len({goal.name for goal in row.goals}) == len(row.goals)
        assert all(goal.bound > 0 for goal in row.goals)


def test_run_keeps_its_results(tmp_path):
    asked = []

    def measure(effort) -> Measured:
        asked.append(effort)
        return Measured({"cost": [3.0, 1.0, 2.0], "rate": [1.0]}, "a note")

    for _ in range(2):
        run = Run(Folder(tmp_path, FACTS), SMOKE, [target(measure)])
        run.measure(["P1"])
    assert asked == [SMOKE]
    cost, rate = run.lines()
    assert cost.value is not None and cost.value.spread == Spread(2, 1.5, 2.5, 3)
    assert (cost.measured, cost.verdict) == ("2 [1.5, 2.5] x", "met")
    assert json.loads(json.dumps(dict(rate.plain())))["note"] == "a note"
    text = run.publish()
    assert (tmp_path / "RESULTS.md").read_text() == text


def test_run_reports_why_a_result_is_missing(tmp_path):
    def refuse(effort) -> Measured:
        raise NotMeasuredError("no redis")

    def verdicts(measure, names=("P1",), asked: str = "", given=()) -> list[str]:
        run = Run(Folder(tmp_path, FACTS), SMOKE, [target(measure, asked=asked)])
        run.measure(names, given)
        return [of.verdict for of in run.lines()]

    assert verdicts(refuse) == ["not measured: no redis"] * 2
    assert verdicts(refuse, names=()) == ["not measured: not selected by --only"] * 2
    assert verdicts(refuse, asked="--vm") == ["not measured: needs the flag --vm"] * 2
    assert verdicts(refuse, asked="--vm", given=["--vm"]) == ["not measured: no redis"] * 2
    some = verdicts(lambda effort: Measured({"cost": [1.0]}, lacks="no load"))
    assert some == ["met", "not measured: no load"]


def test_page():
    lines = [line(MOST, 2.5, load=11.0, note="so it is"), line(LEAST, 0.75)]
    missing = Target("P2", "more", "make more", lambda effort: Measured({}), (MOST,))
    text = page([*lines, Line(missing, MOST, None, "no time")], FACTS)
    for row in (
        "| cpu | A \\| B |",
        "| ipsec mb | 1.3.0 |",
        "| measured | 2026-11-21T13:00+00:00 |",
        "| load average of the machine | 0.5 to 11 on 2 cores: a shared machine, so other "
        "work influenced these values |",
        "| rounds | 7 |",
        "1 of 3 goals are met. [docs/performance.md](../docs/performance.md#why-rows-fall-short) "
        "explains the goals that are not met.",
        "| P1 | a thing | cost | ≤ 2 x | 2.5 [2.25, 2.75] x | missed by 25 % | `make thing` |",
        "|  |  | rate | ≥ 0.5 | 0.75 [0.5, 1] | met |  |",
        "| P2 | more | cost | ≤ 2 x | - | not measured: no time | `make more` |",
        "* P1: so it is.",
    ):
        assert row in text.splitlines()


def test_page_of_an_idle_machine_with_all_goals_held():
    text = page([line(LEAST, 0.75, load=3.9)], FACTS)
    assert "| load average of the machine | 3.9 |" in text.splitlines()
    assert "1 of 1 goals are met." in text.splitlines()


def test_page_links_to_an_existing_section():
    """The section of the page exists, and each row that it comments on exists too."""
    text = (ROOT / WHY).read_text().partition(f"## {SECTION.replace('-', ' ').capitalize()}\n")[2]
    found = re.findall(r"^\| (P\d+) \|", text.partition("\n## ")[0], re.MULTILINE)
    assert found and {*found} <= {row.name for row in ROWS}


def test_fastest_provider_is_used():
    rungs = {"raw openssl": 200.0, "raw ipsec-mb": 30.0, "seal": 10.0}
    assert fastest(rungs, "raw") == 30.0


def test_best_other_store_is_used_in_each_round():
    def rows(peer: str, *measured: tuple[float, float]) -> list[Row]:
        return [Row("w", peer, n, rate, p50, 0, 0) for n, (rate, p50) in enumerate(measured)]

    found = by_peer(
        rows(BASE, (80, 10), (90, 20))
        + rows("srdma, none", (1000, 1), (1000, 1))
        + rows("redis, our client", (10, 50), (30, 40))
        + rows("memcached, our client", (20, 60), (10, 80))
    )
    assert ahead_of_stores(8, found) == {"rate, depth 8": [4.0, 3.0]}
    assert ahead_of_stores(1, found) == {
        "rate, depth 1": [4.0, 3.0], "median, depth 1": [0.2, 0.5],
    }  # fmt: skip


class Store:
    """Plays a store: each run appends the first letter of its name to `ran`."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self._name, self._ran = name, ran

    def measure(self, mix, seconds):
        self._ran.append(self._name[0])
        return SimpleNamespace(cpu_workers=100.0 if self._name == "none" else 300.0)


@pytest.fixture
def ran(monkeypatch) -> list[str]:
    """The order of runs, without processes: small letters for runs of the store, capitals for runs
    of the ladder. The simulated ladder measures no bare derivation."""
    ran: list[str] = []

    def ladder(effort, payload, *names):
        ran.append(names[0][0].upper())
        return {"raw openssl": 60.0}

    def connect(shape, store):
        return nullcontext(Store(shape.level, ran))

    links = {name: [SimpleNamespace(gigabytes=2.0)] for name in ("basic", "pd", "mem")}
    monkeypatch.setattr(how, "ladder", ladder)
    monkeypatch.setattr(how, "Stand", lambda settings=None: nullcontext())
    monkeypatch.setattr(
        how, "KvsServer", lambda stand: nullcontext(SimpleNamespace(connect=connect))
    )
    monkeypatch.setattr(how, "_links", lambda *words: links)
    return ran


def test_bare_primitive_is_measured_beside_the_store_in_each_round(ran):
    found = how.store(replace(SMOKE, rounds=3))
    assert "".join(ran) == 2 * "RnaaRnRna" + "D"
    assert found.values == {f"AEAD, {name}": [1.0] * 3 for name in ("bursts", "alone")}


def test_missing_bare_derivation_leaves_the_other_goals(ran):
    for measure, names in (
        (how.store, {"AEAD, bursts", "AEAD, alone"}),
        (how.derivations, {"pd, cached", "mem, cached"}),
    ):
        found = measure(SMOKE)
        assert {*found.values} == names and found.lacks == how.SUITE


@pytest.fixture
def udp_rungs(monkeypatch) -> None:
    """Simulated rungs: those over a link take twice the time, but for datagrams of a train."""

    def ladder(effort, payload, *names, ends=()):
        slower = 2.0 if [end.text for end in ends] == ["a,1,2", "b,3,4"] else 1.0
        rungs = {"datagrams": 100.0, "udp bare aead": payload / 16, "udp6 aead": payload / 8}
        return {name: ns * slower for name, ns in rungs.items()} | {"datagrams train": 4.0}

    monkeypatch.setattr(targets_udp, "ladder", ladder)


def test_udp_is_compared_with_datagrams_of_the_same_link(udp_rungs, monkeypatch):
    ends = End("a", "1", "2", "m"), End("b", "3", "4", "n")
    monkeypatch.setattr(targets_udp, "link", lambda: nullcontext(ends))
    found = targets_udp.udp(replace(SMOKE, rounds=3))
    (row,) = (row for row in ROWS if row.name == "P14")
    assert {*found.values} == {goal.name for goal in row.goals} and not found.lacks
    for place in ("loopback", "link"):
        assert found.values[f"2 KiB, IPv4, {place}"] == [1.28] * 3
        assert found.values[f"32 B, IPv6, {place}"] == [0.04] * 3
    assert found.note.startswith("over a datagram of a train: 2 KiB, IPv4, loopback 32.00 [32.00,")
    assert "32 B, IPv6, link 2.00 [2.00, 2.00]" in found.note


def test_udp_without_a_link_has_the_values_of_loopback(udp_rungs, monkeypatch):
    @contextmanager
    def no_link():
        raise LocalError("network namespaces need root")
        yield

    monkeypatch.setattr(targets_udp, "link", no_link)
    found = targets_udp.udp(SMOKE)
    assert len(found.values) == 4 and all(name.endswith("loopback") for name in found.values)
    assert found.lacks == "network namespaces need root"


def test_many_qps_are_compared_with_one_in_each_round(monkeypatch):
    def crowd(qps: int, *ns: float) -> dict:
        cases = [
            {"payload": payload, "order": order, "ns": [of * scale for of in ns]}
            for payload, scale in ((32, 1), (2048, 9))
            for order in ("in order", "random")
        ]
        cases[1]["ns"] = [2 * of for of in cases[1]["ns"]] if qps > 64 else cases[1]["ns"]
        return {"qps": qps, "resident": 2048, "tables": 1, "set_ups": 5e4, "cases": cases}

    asked = []

    def said(words):
        asked.append(" ".join(words[1:]))
        return json.dumps([crowd(1, 100, 200), crowd(64, 200, 400), crowd(2000, 500, 500)])

    states = [SimpleNamespace(mode="pd", qp_keys=48, qp_numbers=16)]
    monkeypatch.setattr(how, "program", lambda name: name)
    monkeypatch.setattr(how, "said", said)
    monkeypatch.setattr(how, "Stand", lambda settings: nullcontext())
    monkeypatch.setattr(how, "states", lambda stand: states)
    found = how.many_qps(replace(SMOKE, rounds=2))
    assert asked == ["--json --rounds 2 --messages 2000 --qps 64 --qps 2000"]
    assert found.values == {"random order": [0.1, 0.2], "in order": [0.2, 0.4], "state": [64]}
    assert found.note.startswith("2000 QPs: 2.0 KiB each, 50000 set up per second of CPU time")
    assert found.note.endswith("0.50 x")
