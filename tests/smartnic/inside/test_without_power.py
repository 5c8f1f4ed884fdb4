"""A NIC loses its power. These tests come last: the worker of NIC 1 does not start again."""

from __future__ import annotations

import contextlib
import time

import pytest

import srdma
from tests.rxe.figures import figures
from tests.smartnic import plan
from tests.smartnic.inside.conftest import rping
from tests.smartnic.outside import switch
from tests.smartnic.service import PATIENCE

SIZE = 4096
NAMED = (
    "host B: .*(WORKER_GONE|not acknowledge|not answer REG_MR)"  # the last one on a busy machine
)


def test_both_hosts_notice_that_a_nic_lost_its_power(connected, host_b, pd):
    """One host has a request under way to the lost NIC, the other waits for a message."""
    with contextlib.suppress(srdma.Error), connected(pd, size=SIZE) as (connection, remote):
        connection.qp.write(bytes(SIZE), remote)
        host_b.request("message", qp=0, size=SIZE)
        time.sleep(1)
        switch("nic1", "off")
        start = time.monotonic()
        with pytest.raises(srdma.RemoteError, match="WIRE_LOST"):
            connection.qp.write(bytes(SIZE), remote)
        figures.append(f"host A noticed it after {time.monotonic() - start:.1f} s")
        with pytest.raises(srdma.DeviceError, match=NAMED) as own:
            host_b.answer()
        figures.append(f"host B: {own.value}")


def test_a_nic_without_power_is_silent_until_it_boots_again(hosts, nics):
    assert not nics[1].answers()
    nics[0].wait_until_up()
    switch("nic1", "on")
    nics[1].wait_until_up()
    assert float(nics[1].run("cut -d' ' -f1 /proc/uptime")) < PATIENCE
    rping(hosts[1], nics[1], plan.nic_leg_address(1))
