"""Key modes, capabilities and new keys, with workers on other computers."""

from __future__ import annotations

import os
import time
from functools import partial

import pytest

import srdma
from srdma import Capability, CapabilityError, Right
from srdma.errors import RemoteWCError
from tests.rxe.figures import figures
from tests.rxe.inside.conftest import RING, A
from tests.rxe.inside.host_b import BLOCK
from tests.rxe.inside.load import REGION, Load, during

pytestmark = pytest.mark.full
MODES = ["basic", "pd", "mem", "pd+mem"]
SIZE = 16 * BLOCK
HOUR = 3600
REKEYS, ROTATIONS = 4, 2


def region(host_b, connection, remote):
    """The region of host B that a connection in this key mode can use, and the request for its
    data."""
    if "mem" not in connection.mode:
        return remote, "look"
    return Capability.from_bytes(host_b.ask("prove", size=SIZE)["capability"]), "proven"


def check_data(host_b, connection, remote):
    """Checks WRITE, READ and SEND."""
    data = os.urandom(SIZE // 2 + 1)
    where, look = region(host_b, connection, remote)
    connection.qp.write(data, where, 1000)
    assert host_b.ask(look, offset=1000, length=len(data))["data"] == data
    assert connection.qp.read(where, 1000, len(data)) == data
    host_b.request("message", qp=0, size=SIZE)
    connection.qp.send(data[::-1])
    assert host_b.answer()["data"] == data[::-1]


@pytest.mark.parametrize("mode", MODES)
def test_each_key_mode(connected, host_b, pd, mode):
    with connected(pd, size=SIZE, mode=mode) as (connection, remote):
        assert (connection.mode, connection.trust_group) == (mode, "")
        check_data(host_b, connection, remote)


def test_trust_group(stage, connected, host_b, pd):
    worker = str(stage.secure.b)
    host_b.ask("renew", worker=worker, group="rack 7")
    with srdma.PD(pd.ctx, RING, group="rack 7") as own:
        for mode in ("pd", "pd+mem"):
            with connected(own, size=SIZE, mode=mode) as (connection, remote):
                assert (connection.mode, connection.trust_group) == (mode, "rack 7")
                check_data(host_b, connection, remote)
    host_b.ask("renew", worker=worker)


def test_capabilities(connected, host_b, pd):
    """A refusal ends its QP, so that each gets one of its own."""
    with connected(pd, size=BLOCK, mode="mem", qps=6, sq=8, rq=8) as (connection, _):
        qp, *others = connection.qps
        rest = iter(others)

        def refused(reason, where, offset=0):
            with pytest.raises(RemoteWCError, match=reason):
                next(rest).read(where, offset, 1)

        whole, _ = region(host_b, connection, None)
        for given in (
            whole.narrow(BLOCK, 4 * BLOCK),
            whole.narrow(BLOCK, 8 * BLOCK).narrow(0, 4 * BLOCK),
            whole.narrow(BLOCK, 4 * BLOCK).seal(holder=A, expires=int(time.time()) + HOUR),
        ):
            data = os.urandom(BLOCK + 1)
            qp.write(data, given, 100)
            assert host_b.ask("proven", offset=BLOCK + 100, length=len(data))["data"] == data
            assert qp.read(given, 100, len(data)) == data
        with pytest.raises(CapabilityError, match="grants"):
            qp.write(b"x", whole.narrow(rights=Right.READ))
        refused("PROOF_WRONG", whole.seal(holder="spiffe://demo/host-c"))
        refused("PROOF_EXPIRED", whole.seal(expires=int(time.time()) - HOUR))
        refused("PROOF_REQUIRED", srdma.RemoteMR(whole.address, whole.rkey, whole.length))
        host_b.ask("revoke", offset=4 * BLOCK, length=4 * BLOCK)
        refused("PROOF_WRONG|PROOF_RANGE", whole, 4 * BLOCK)
        assert qp.read(whole, 8 * BLOCK, 1)
        host_b.ask("revoke", offset=0, length=SIZE)
        refused("PROOF_WRONG", whole)


@pytest.mark.parametrize("mode", ["basic", "pd"])
def test_new_secrets_under_load(stage, connected, host_b, memory, mode):
    """In mode pd, PDs rotate their keys too: host A's under load, host B's between loads."""
    pd = memory.pd
    steps = [lambda: connection.rekey(timeout=stage.patience)] * REKEYS
    if mode == "pd":
        steps += [partial(pd.rotate, stage.patience)] * ROTATIONS
    with connected(pd, size=REGION, mode=mode, qp_timeout=120) as (connection, remote):
        load = Load(connection.qp, remote, memory, host_b)
        before, start = pd.ctx.stats(), time.monotonic()
        requests = during(load, steps)
        seconds = time.monotonic() - start
        if mode == "pd":
            assert host_b.ask("rotate")["serial"]
            load.run()
        now = pd.ctx.stats()
    for direction in ("rekeys_sent", "rekeys_received"):
        assert now[direction] - before[direction] >= len(steps)
    assert now["refused_tag"] == before["refused_tag"]
    figures.append(f"{len(steps)} new secrets in {seconds:.0f} s, {requests} requests")
