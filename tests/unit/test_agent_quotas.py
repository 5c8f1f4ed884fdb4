"""Quotas of a policy, and how a worker gets them (agent.md 12). RFC 5042 R3-4, R6.4.1-1."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from srdma.agent import takeover
from srdma.agent.policy import Policy, PolicyError
from srdma.agent.quotas import Quotas, quotas_of
from srdma.agent.steward import Steward
from srdma.agent.takeover import Keeper
from srdma.control import Control, Kind, Limits
from srdma.control.quotas import NAMES_MAX, NO_LIMIT, AccountKind, Quota, Usage, accounts
from srdma.errors import DeviceError
from srdma.identity import create_ca, issue
from tests.daemon import BINARY, Worker, worker
from tests.keyex_players import FakeWorker

needs_worker = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

A, B = "spiffe://test/host-a", "spiffe://test/host-b"
PROGRAM, PROCESS = AccountKind.PROGRAM, AccountKind.PROCESS
GROUP, IDENTITY = AccountKind.GROUP, AccountKind.IDENTITY
POLICY = """
worker = "/run/w.ctl"
socket = "agent.sock"
[control]
listen = "127.0.0.1:4794"
path = "a"
[[identity]]
name = "host-a"
path = "a"
[[container]]
name = "web"
path = "web.sock"
identities = ["host-a"]
quota = { legs = 3, minimum = { legs = 2 } }
[[host]]
name = "left"
identity = "spiffe://test/left"
identities = ["host-a"]
quota = { qps = 8 }
total = { qps = 40, records = 4096 }
[quota]
qps = 100
records = 65536
minimum = { qps = 10 }
idle = 60
[quota.user.root]
qps = 5
[quota.user.1001]
minimum = { qps = 20 }
idle = 0
[quota.processes]
legs = 6
[quota.peers]
qps = 7
idle = 9
[quota.peer."spiffe://test/host-b"]
minimum = { qps = 3, ops = 4 }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_ca(tmp_path, "test")
    issue(tmp_path, A, tmp_path / "a")
    return tmp_path


def policy(folder: Path, text: str = POLICY) -> Policy:
    (folder / "agent.toml").write_text(text)
    return Policy(folder / "agent.toml")


# --- the policy -------------------------------------------------------------------------


def test_quotas_of_all_kinds(folder: Path) -> None:
    made = policy(folder)
    quotas = dict(made.quotas.all())
    users = {"connections": 64, "legs": 16, "qps": 100, "regions": 1024, "bytes": 1 << 30}
    users["records"] = 65536
    assert quotas == {
        (PROGRAM, ""): Quota({"qps": 10}, users, 60),
        (PROGRAM, "uid 0"): Quota({}, {**users, "qps": 5}, 60),
        (PROGRAM, "uid 1001"): Quota({"qps": 20}, users, 0),
        (PROGRAM, "container web"): Quota({"legs": 2}, {**users, "legs": 3}, 60),
        (GROUP, ""): Quota(),
        (GROUP, "host left"): Quota(limits={"qps": 40, "records": 4096}),
        (PROCESS, ""): Quota(limits={"legs": 6}),
        (IDENTITY, ""): Quota(limits={"qps": 7}, idle=9),
        (IDENTITY, B): Quota({"qps": 3, "ops": 4}, {"qps": 7}, 9),
    }
    assert made.limits(0) == Limits(qps=5)
    assert made.limits(1001) == made.limits(7) == Limits(qps=100)
    assert made.limits("web") == Limits(legs=3, qps=100)
    assert made.limits("left:0") == made.limits("left/web") == Limits(qps=8)
    found = made.summary()
    assert "100 qps, 1024 regions" in found["[quota users]"]
    assert "at least 10 qps; idle QPs end after 60 s" in found["[quota users]"]
    assert found["[quota processes]"] == "6 legs"
    assert found[f"[quota {B}]"] == "7 qps; at least 3 qps, 4 ops; idle QPs end after 9 s"
    assert "8 qps, 1024 regions" in found["[left]"]
    assert found["[left]"].endswith("; together 40 qps, 4096 records")


def test_a_policy_without_quotas_has_the_default_ones(folder: Path) -> None:
    text = 'worker = "w"\nsocket = "s"\n[[identity]]\nname = "host-a"\npath = "a"\n'
    made = policy(folder, text)
    assert made.quotas.named == {}
    assert made.quotas.users.limits == {
        "connections": 64, "legs": 16, "qps": 1024, "regions": 1024, "bytes": 1 << 30,
    }  # fmt: skip
    assert [*made.summary()] == ["host-a"]


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("records = 65536", "addresses = 7", "quota has the unknown key 'addresses'"),
        ("legs = 6", "addresses = 7", "quota.processes has the unknown key 'addresses'"),
        ("qps = 7", "legs = 7", "quota.peers has the unknown key 'legs': known are qps, ops"),
        ("ops = 4", "bytes = 4", f"quota.peer.'{B}': minimum has the unknown key 'bytes'"),
        ("{ qps = 10 }", "7", "quota: minimum is not a table"),
        ("{ qps = 10 }", "{ qps = -1 }", "quota: minimum: qps must be 0 to 4294967295"),
        ("{ qps = 10 }", "{ bytes = true }", "quota: minimum: bytes must be 0 to 92233"),
        ("{ qps = 10 }", "{ qps = 101 }", "quota: the minimum of qps is 101, above its limit"),
        ("{ qps = 20 }", "{ qps = 101 }", "quota.user.1001: the minimum of qps is 101, above"),
        ("{ legs = 2 }", "{ legs = 4 }", "'web': quota: the minimum of legs is 4, above .* 3"),
        ("idle = 60", "idle = -1", "quota: idle must be 0 to 4294967295"),
        ("idle = 60", "idle = 1.5", "quota: idle must be"),
        ("idle = 60", "idle = 4294967296", "quota: idle must be"),
        ("user.root", "user.no-such-user", "no user 'no-such-user'"),
        ("user.1001", "user.0", "quota.user.0 is one of two tables of uid 0"),
        ("[quota.user.root]\nqps = 5", "[quota.user]\nroot = 5", "quota.user.root is not a table"),
        ("test/host-b", "test/*", "must be one identity .URI., not a pattern"),
        ("spiffe://test/host-b", "host-b", "a name of .quota.peer. 'host-b' is no identity"),
        ("quota = { qps = 8 }", "quota = { records = 8 }", "'left'.*unknown key 'records'"),
        ("quota = { qps = 8 }", "quota = { minimum = { qps = 1 } }", "unknown key 'minimum'"),
        ("quota = { qps = 8 }", "quota = 8", "'left': quota is not a table"),
        ("total = { qps = 40", "total = { idle = 40", "'left': total has the unknown key 'idle'"),
        ("total = { qps = 40", "total = { ops = 40", "'left': total has the unknown key 'ops'"),
    ],
)
def test_quotas_that_are_refused(folder: Path, old: str, new: str, error: str) -> None:
    assert POLICY.count(old) == 1
    with pytest.raises(PolicyError, match=error):
        policy(folder, POLICY.replace(old, new))


def test_quotas_with_more_names_than_a_worker_has() -> None:
    peers = {f"spiffe://test/{n}": {"qps": n} for n in range(NAMES_MAX)}
    assert len(quotas_of({"peer": peers}).with_entries((), ()).named) == NAMES_MAX
    with pytest.raises(ValueError, match=r"quotas of 1025 users, .*: a worker has at most 1024"):
        quotas_of({"peer": peers, "user": {"0": {}}}).with_entries((), ())
    with pytest.raises(ValueError, match=r"quota.user has no tables .quota.user.NAME."):
        quotas_of({"user": 7})


# --- the worker -------------------------------------------------------------------------


class House:
    """A policy and its steward. told: audit lines."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas, self.told = quotas, list[dict[str, Any]]()
        self.steward = Steward(lambda: self.quotas, self._tell)

    def _tell(self, event: str, **fields: Any) -> None:
        self.told.append({"event": event, **fields})

    def changed(self, control: Control, quotas: Quotas) -> None:
        self.quotas = quotas
        self.steward.renew()
        self.steward.give(control)


@pytest.fixture
def agent(a: Worker) -> Iterator[Control]:
    control = Control.connect(a.control)
    control.agent()
    yield control
    control.close()


def uses(agent: Control) -> dict[str, Usage]:
    return {one.name: one for one in accounts(agent)}


@needs_worker
def test_the_worker_gets_the_quotas_and_the_next_policy_replaces_them(
    folder: Path, agent: Control
) -> None:
    house = House(policy(folder).quotas)
    house.steward.give(agent)
    found = uses(agent)
    assert (found["uid 1001"].uses["qps"].minimum, found["uid 1001"].idle) == (20, 0)
    assert found["uid 0"].uses["qps"].limit == 5 and found["uid 0"].idle == 60
    assert found["container web"].uses["legs"].limit == 3
    assert found["host left"].kind is GROUP and found["host left"].uses["records"].limit == 4096
    assert found[B].uses["ops"].minimum == 4 and found[B].uses["qps"].limit == 7
    own = found[f"process {os.getpid()} of user {os.getuid()}"]
    assert own.uses["legs"].limit == 6 and own.uses["qps"].limit == NO_LIMIT
    house.changed(agent, quotas_of({"peer": {A: {"qps": 2}}}))
    found = uses(agent)
    assert {"uid 1001", "uid 0", "container web", "host left", B}.isdisjoint(found)
    assert found[A].uses["qps"].limit == 2
    assert found[own.name].uses["legs"].limit == NO_LIMIT
    assert house.told == []


@needs_worker
def test_a_minimum_moves_from_one_account_to_another(tmp_path: Path) -> None:
    """In whatever order: what one loses is there for the other."""
    with worker(tmp_path, "a", "--max-qps", "256") as found:
        agent = Control.connect(found.control)
        agent.agent()
        house = House(quotas_of({}))
        for first, second in ((0, 1), (1, 0)):
            names = {f"spiffe://test/{n}": {"minimum": {"qps": 180}} for n in (first,)}
            names[f"spiffe://test/{second}"] = {"minimum": {"qps": 10}}
            for tables in (names, dict(reversed(names.items()))):
                house.changed(agent, quotas_of({"peer": tables}))
                minima = {
                    name: one.uses["qps"].minimum
                    for name, one in uses(agent).items()
                    if one.kind is IDENTITY
                }
                assert minima == {name: table["minimum"]["qps"] for name, table in tables.items()}
        agent.close()


def test_a_worker_that_refuses_quotas_has_an_audit_line() -> None:
    fake = FakeWorker()
    try:
        fake.refuses, fake.refuse = Kind.QUOTA, "not this version"
        control = Control.connect(fake.path)
        house = House(quotas_of({}))
        house.steward.give(control)
        control.close()
        (line,) = house.told
        assert line["event"] == "failed" and line["code"] == "quota"
        assert line["text"].startswith("4 of 4 quotas, first PROGRAM '': the worker refused QUOTA")
    finally:
        fake.close()


def test_a_worker_that_ends_meanwhile_has_an_audit_line() -> None:
    fake = FakeWorker()
    control = Control.connect(fake.path)
    fake.close()
    house = House(quotas_of({}))
    house.steward.give(control)
    control.close()
    assert [line["code"] for line in house.told] == ["quota"]


# --- the keeper -------------------------------------------------------------------------


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.02)


@needs_worker
def test_a_worker_that_starts_again_gets_the_quotas_without_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each process of it, once."""
    monkeypatch.setattr(takeover, "ATTEND_EVERY", 0.05)
    greeted: list[str] = []

    def limit_of(path: Path) -> int:
        control = Control.connect(path)
        try:
            control.agent()
            (found,) = (one for one in accounts(control) if one.name == B)
            return found.uses["qps"].limit
        finally:
            control.close()

    async def run() -> None:
        house = House(quotas_of({"peer": {B: {"qps": 7}}}))

        def welcome(control: Control) -> None:
            greeted.append(control.where)
            house.steward.give(control)

        keeper = Keeper(welcome=welcome)
        task = asyncio.ensure_future(keeper.attend(tmp_path / "a.ctl"))
        for round in (1, 2):
            with worker(tmp_path, "a", "--workers", "2") as found:
                assert found.control == tmp_path / "a.ctl"
                await reached(lambda: len(greeted) == 2 * round)  # noqa: B023
                await asyncio.sleep(0.2)
                for path in (found.control, Path(f"{found.control}.1")):
                    assert limit_of(path) == 7
        assert len(greeted) == 4 and sum(where.endswith(".1") for where in greeted) == 2
        task.cancel()
        keeper.close()
        assert house.told == []

    asyncio.run(run())


def test_the_keeper_goes_on_while_another_agent_has_the_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(takeover, "ATTEND_EVERY", 0.01)
    monkeypatch.setattr(takeover, "ROLE_TIMEOUT", 0.02)
    monkeypatch.setattr(takeover, "ROLE_RETRY", 0.01)
    fake = FakeWorker()
    fake.others = 10
    greeted: list[Control] = []

    async def run() -> None:
        keeper = Keeper(welcome=greeted.append)
        task = asyncio.ensure_future(keeper.attend(fake.path))
        await reached(lambda: bool(greeted))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        seen: list[Control] = []
        keeper.each(seen.append)
        assert seen == greeted
        fake.close()
        await reached(lambda: not greeted[0].alive())
        keeper.each(seen.append)  # one that ended is passed over
        assert seen == greeted
        with pytest.raises(DeviceError):
            await keeper.worker(fake.path)
        keeper.close()

    asyncio.run(run())
