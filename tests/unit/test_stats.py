"""`srdma stats` at running workers (agent.md 12). review A46"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from srdma.control import Control
from srdma.control.quotas import COUNTS, LOCAL, REMOTE, AccountKind, Quota, set_quota
from tests.daemon import BINARY, Worker, worker
from tests.unit.test_cli import run
from tests.unit.test_offload_quota import connected, program

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

PEER = "spiffe://x/peer"


def told(path: Path, *options: str) -> list[dict[str, Any]]:
    result = run("stats", "--worker", str(path), "--json", *options)
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_accounts_of_programs_and_of_peers(a: Worker, b: Worker) -> None:
    ca, cb = a.client(), b.client()
    one, _ = connected(ca, cb, PEER)
    agent = Control.connect(a.control)
    agent.agent()
    set_quota(agent, (AccountKind.IDENTITY, PEER), Quota({"qps": 2}, {"qps": 7}, 60))
    (process,) = told(a.control, "--qps")  # the agent keeps its role meanwhile
    agent.close()
    assert process["worker"] == str(a.control) and process["process"] == 0
    assert process["counters"]["legs"] == 1
    accounts = {account["name"]: account for account in process["accounts"]}
    peer = accounts[PEER]
    assert peer["kind"] == "identity" and peer["idle"] == 60
    assert peer["resources"]["qps"] == {"used": 1, "guaranteed": 2, "limit": 7, "refused": 0}
    assert tuple(peer["resources"]) == REMOTE and tuple(peer["counters"]) == COUNTS
    own = accounts[f"process {os.getpid()} of user {os.getuid()}"]
    assert own["kind"] == "process" and own["group"] == f"user {os.getuid()}"
    assert own["resources"]["legs"] == {"used": 1, "guaranteed": 4, "limit": None, "refused": 0}
    assert tuple(own["resources"]) == LOCAL
    (qp,) = process["qps"]
    assert (qp["qpn"], qp["identity"], qp["reason"]) == (one.qpn, PEER, "")
    assert qp["state"] in ("RTR", "RTS")
    assert tuple(qp["counters"]) == COUNTS and qp["idle"] < 600
    assert "qps" not in told(a.control)[0]


def test_the_text_names_use_limit_and_refusals(a: Worker) -> None:
    agent = Control.connect(a.control)
    agent.agent()
    set_quota(agent, (AccountKind.PROCESS, ""), Quota({"legs": 1}, {"legs": 1}))
    agent.close()
    (client,) = program(a)
    leg, _ = client.open()
    client.init(leg)
    with pytest.raises(Exception, match="has 1 of at most 1 legs"):
        client.open()
    result = run("stats", "--worker", str(a.control), "--qps")
    assert result.exit_code == 0
    lines = [line.strip() for line in result.output.splitlines()]
    assert lines[0] == f"worker {a.control}, process 0"
    assert "legs               1 used, 1 guaranteed, limit 1, 1 refused" in lines
    assert "qps                1 used, 8 guaranteed, no limit, 0 refused" in lines
    assert any(line.startswith("process ") and "in user" in line for line in lines)
    assert any(
        line.startswith("QP 0x") and "INIT, with no peer yet, idle" in line for line in lines
    )
    assert not any(line.startswith("regions") for line in lines)


def test_a_failed_qp_has_its_reason(a: Worker, b: Worker) -> None:
    ca, cb = a.client(), b.client()
    one, _ = connected(ca, cb, PEER)
    control = Control.connect(a.control)
    control.agent()
    control.expire(one.qpn)
    control.close()
    (process,) = told(a.control, "--qps")
    assert [(qp["state"], qp["reason"]) for qp in process["qps"]] == [("ERR", "KEY_LIMIT")]
    assert "ERR KEY_LIMIT, with" in run("stats", "--worker", str(a.control), "--qps").output


def test_all_processes_of_a_worker(tmp_path: Path) -> None:
    with worker(tmp_path, "a", "--workers", "2") as found:
        assert [one["process"] for one in told(found.control)] == [0, 1]
        assert "process 1\n" in run("stats", "--worker", str(found.control)).output


def test_no_worker(tmp_path: Path) -> None:
    result = run("stats", "--worker", str(tmp_path / "none.ctl"))
    assert result.exit_code == 5
