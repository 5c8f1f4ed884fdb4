"""Machines lose their power. These tests come last, and each needs the one before it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

import srdma
from tests.rxe.figures import figures
from tests.smartnic import control, plan
from tests.smartnic.inside.conftest import eventually, rping, start_worker
from tests.smartnic.outside import switch
from tests.smartnic.service import PATIENCE

SIZE = 4096
AGAIN = Path("/run/again.ctl")
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
        figures.append(f"host A noticed the loss of NIC 1 after {time.monotonic() - start:.1f} s")
        with pytest.raises(srdma.DeviceError, match=NAMED) as own:
            host_b.answer()
        figures.append(f"host B: {own.value}")


def test_a_nic_without_power_is_silent_until_it_boots_again(hosts, nics):
    switch("nic1", "off")
    assert not nics[1].answers()
    nics[0].wait_until_up()
    switch("nic1", "on")
    nics[1].wait_until_up()
    assert float(nics[1].run("cut -d' ' -f1 /proc/uptime")) < PATIENCE
    rping(hosts[1], nics[1], plan.nic_leg_address(1))


def test_a_nic_that_booted_again_is_used_again(hosts, nics, stage, connected, host_b, pd):
    """Programs open a new context: host B by another name of the control socket. The NIC does not
    know the time at first, and refuses its host until it does."""
    start_worker(nics[1], 1)
    link = control.start(nics[1], 1, stage.agent)
    eventually("the clock is refused", lambda: "clock" in link.log(), link)
    assert '"linked"' not in link.log()
    control.set_clock(nics[1])
    eventually("the host is linked", lambda: '"linked"' in link.log(), link)
    machines = {"host": hosts, "nic": nics}[stage.agent]  # where the path of the socket counts
    machines[1].run(f"ln -s {stage.secure.b} {AGAIN}")
    data = os.urandom(SIZE)
    with connected(pd, stage.secure._replace(b=AGAIN), size=SIZE) as (connection, remote):
        connection.qp.write(data, remote)
        assert host_b.ask("look", offset=0, length=SIZE)["data"] == data


def test_the_peer_notices_that_a_host_lost_its_power(options, stage, connected, pd):
    if options["hosts"] == 1:
        pytest.skip("needs stand.py --hosts 2")
    with (
        contextlib.suppress(srdma.Error),
        connected(pd, stage.secure._replace(b=AGAIN), size=SIZE) as (connection, remote),
    ):
        connection.qp.write(bytes(SIZE), remote)
        switch("host1", "off")
        start = time.monotonic()
        with pytest.raises(srdma.RemoteError, match="PEER_HOST_GONE"):
            connection.qp.recv(2 * PATIENCE)
        figures.append(f"host A noticed the loss of host 1 after {time.monotonic() - start:.1f} s")
