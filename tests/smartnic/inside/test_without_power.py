"""Machines lose their power: each NIC, which then boots again, and host 1. Host 0, which has the
tests, is only away for a while. These tests come last, and each needs the one before it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

import srdma
from tests.rxe.figures import figures
from tests.rxe.inside.conftest import RING
from tests.smartnic import control, plan
from tests.smartnic.inside.conftest import eventually, rping, start_worker
from tests.smartnic.outside import pause, switch
from tests.smartnic.service import PATIENCE

SIZE = 4096
OWN = "WORKER_GONE|not acknowledge|not answer REG_MR"  # the last one on a busy machine
ERRORS = {0: (OWN, "host B: .*WIRE_LOST"), 1: ("WIRE_LOST", f"host B: .*({OWN})")}


@pytest.fixture(scope="module", params=[1, 0])
def number(request, options) -> int:
    """The NIC that loses its power."""
    if request.param == 0 and not options["middle"]:
        pytest.skip("NIC 0 cannot be switched on again: needs stand.py --middle")
    return request.param


class OpenPDs:
    """The PDs of host A. The last one works."""

    def __init__(self, first: srdma.PD) -> None:
        self._stack = contextlib.ExitStack()
        self.last = first

    def open(self, worker) -> None:
        """The control link may still be down."""

        def attempt() -> bool:
            ctx = self._stack.enter_context(srdma.Context(worker))
            self.last = self._stack.enter_context(srdma.PD(ctx, RING))
            return True

        eventually("host A opens a PD", attempt)

    def close(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def pds(pd) -> Iterator[OpenPDs]:
    with contextlib.closing(OpenPDs(pd)) as pds:
        yield pds


def test_the_peer_notices_that_a_host_is_away(options, stage, connected, host_b, pds):
    """Its programs find their QPs ended, and open a new context."""
    if options["hosts"] == 1:
        pytest.skip("needs stand.py --hosts 2")
    with contextlib.suppress(srdma.Error), connected(pds.last, size=SIZE) as (connection, remote):
        connection.qp.write(bytes(SIZE), remote)
        host_b.request("message", qp=0, size=SIZE)
        pause("host0")
        with pytest.raises(srdma.DeviceError, match=r"host B: .*PEER_HOST_GONE"):
            host_b.answer()
        with pytest.raises(srdma.Error) as own:
            connection.qp.write(bytes(SIZE), remote)
        figures.append(f"host A, after a pause: {own.value}")
    pds.open(stage.secure.a)
    with connected(pds.last, size=SIZE) as (connection, remote):
        connection.qp.write(bytes(SIZE), remote)


def test_both_hosts_notice_that_a_nic_lost_its_power(number, connected, host_b, pds):
    """Host A has a request under way, and host B waits for a message."""
    with contextlib.suppress(srdma.Error), connected(pds.last, size=SIZE) as (connection, remote):
        connection.qp.write(bytes(SIZE), remote)
        host_b.request("message", qp=0, size=SIZE)
        time.sleep(1)
        switch(f"nic{number}", "off")
        start = time.monotonic()
        with pytest.raises(srdma.Error, match=ERRORS[number][0]) as own:
            connection.qp.write(bytes(SIZE), remote)
        seconds = time.monotonic() - start
        figures.append(f"host A noticed the loss of NIC {number} after {seconds:.1f} s")
        with pytest.raises(srdma.DeviceError, match=ERRORS[number][1]) as theirs:
            host_b.answer()
        figures.append(f"NIC {number}: host A: {own.value}; {theirs.value}")


def test_a_nic_without_power_is_silent_until_it_boots_again(number, hosts, nics):
    switch(f"nic{number}", "off")
    assert not nics[number].answers()
    nics[1 - number].wait_until_up()
    switch(f"nic{number}", "on")
    nics[number].wait_until_up()
    assert float(nics[number].run("cut -d' ' -f1 /proc/uptime")) < PATIENCE
    rping(hosts[number], nics[number], plan.nic_leg_address(number))


def test_a_nic_that_booted_again_is_used_again(number, nics, stage, connected, host_b, pds):
    """Programs open a new context. A NIC that does not know the time refuses its host."""
    nic = nics[number]
    start_worker(nic, number)
    link = control.start(nic, number, stage.agent)
    if plan.CLOCKS[number] is not None:
        eventually("the clock is refused", lambda: "clock" in link.log(), link)
        assert '"linked"' not in link.log()
        control.set_clock(nic)
    eventually("the host is linked", lambda: '"linked"' in link.log(), link)
    if number:
        host_b.ask("renew", worker=str(stage.secure.b))
    else:
        pds.open(stage.secure.a)
    data = os.urandom(SIZE)
    with connected(pds.last, size=SIZE) as (connection, remote):
        connection.qp.write(data, remote)
        assert host_b.ask("look", offset=0, length=SIZE)["data"] == data


def test_the_peer_notices_that_a_host_lost_its_power(options, connected, pds):
    if options["hosts"] == 1:
        pytest.skip("needs stand.py --hosts 2")
    with (
        pytest.raises(srdma.RemoteError, match="PEER_HOST_GONE"),
        connected(pds.last, size=SIZE) as (connection, remote),
    ):
        connection.qp.write(bytes(SIZE), remote)
        switch("host1", "off")
        start = time.monotonic()
        try:
            connection.qp.recv(2 * PATIENCE)
        finally:
            seconds = time.monotonic() - start
            figures.append(f"host A noticed the loss of host 1 after {seconds:.1f} s")
