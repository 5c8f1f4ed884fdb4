"""The stand itself: machines, cables, services and capture."""

from __future__ import annotations

import time

import pytest

from srdma.inspect import roce
from tests.e2e.mitm import Faults
from tests.smartnic import control, plan
from tests.smartnic.inside.conftest import rping
from tests.smartnic.outside import tamper, tampered
from tests.smartnic.service import ScriptError

A_DAY = 86400


def test_names_differ_and_the_first_address_of_a_device_is_useless(hosts, nics):
    for number, (host, nic) in enumerate(zip(hosts, nics, strict=True)):
        ours = set(host.run("ls /sys/class/infiniband").split())
        theirs = set(nic.run("ls /sys/class/infiniband").split())
        assert theirs == {plan.NIC_LEG_DEVICE, plan.NIC_WIRE_DEVICE}
        assert not theirs & ours
        gids = nic.run(f"cat /sys/class/infiniband/{plan.NIC_LEG_DEVICE}/ports/1/gids/*")
        first = next(gid for gid in gids.split() if gid.startswith("0000:0000:0000:0000:0000:ffff"))
        assert first.endswith(f"ac11:{number:02x}01")  # 172.17.N.1


def test_one_nic_has_a_wrong_clock(clocks):
    assert abs(clocks[0] - time.time()) < A_DAY
    assert clocks[1] < 2 * A_DAY


def test_hosts_have_no_route_to_the_wire(hosts):
    for host in hosts:
        for number in range(plan.NICS):
            with pytest.raises(ScriptError, match="unreachable"):
                host.run(f"ip route get {plan.wire_address(number)}")


@pytest.mark.parametrize("number", range(plan.NICS))
def test_rdma_between_a_host_and_its_nic(hosts, nics, wire, number):
    rping(hosts[number], nics[number], plan.nic_leg_address(number))
    assert not roce.frames(wire.take())


def test_rdma_between_the_nics_is_captured(nics, wire):
    rping(nics[0], nics[1], plan.wire_address(1))
    kinds = roce.kinds(roce.frames(wire.take()))
    assert kinds["CM"] and kinds["READ"] and kinds["WRITE"], kinds


def test_workers_answer_hello(nics, workers):
    for number, (nic, worker) in enumerate(zip(nics, workers, strict=True)):
        pid, name, device, address = nic.run(f"hello {control.WORKER}").split()
        assert (int(pid), name) == (worker.pid, f"nic{number}"), worker.log()
        assert device == plan.NIC_LEG_DEVICE
        assert address.startswith(f"{plan.wire_address(number)}:")


def test_the_man_in_the_middle_tampers_with_the_wire(options, nics):
    if not options["middle"]:
        pytest.skip("needs stand.py --middle")
    tamper(Faults(twice=5000))
    rping(nics[0], nics[1], plan.wire_address(1))
    tamper(Faults())
    assert tampered().twice
