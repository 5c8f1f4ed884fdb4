"""The stand itself: machines, cables, services, capture and power."""

from __future__ import annotations

import time

import pytest

from srdma.inspect import roce
from tests.e2e.mitm import Faults
from tests.smartnic import plan
from tests.smartnic.inside.conftest import CONTROL, eventually
from tests.smartnic.outside import switch, tamper, tampered
from tests.smartnic.service import PATIENCE, ScriptError, Service, Shell

RPING = "rping -V -S 4096 -C 4 -p 7174"
A_DAY = 86400


def rping(client: Shell, nic: Service, address: str) -> None:
    """Data goes back and forth between the client and an address of the NIC, over an RC
    connection."""
    server = nic.start("rping", *f"{RPING} -s -a {address}".split())
    eventually("rping listens", lambda: "LISTEN" in nic.run("rdma resource show cm_id"), server)
    client.run(f"{RPING} -c -a {address}")
    eventually("the server ends", lambda: not server.alive())


def test_names_differ_and_the_first_address_of_a_device_is_useless(hosts, nics):
    for number, (host, nic) in enumerate(zip(hosts, nics, strict=True)):
        ours = set(host.run("ls /sys/class/infiniband").split())
        theirs = set(nic.run("ls /sys/class/infiniband").split())
        assert theirs == {plan.NIC_LEG_DEVICE, plan.NIC_WIRE_DEVICE}
        assert not theirs & ours
        gids = nic.run(f"cat /sys/class/infiniband/{plan.NIC_LEG_DEVICE}/ports/1/gids/*")
        first = next(gid for gid in gids.split() if gid.startswith("0000:0000:0000:0000:0000:ffff"))
        assert first.endswith(f"ac11:{number:02x}01")  # 172.17.N.1


def test_one_nic_has_a_wrong_clock(nics):
    times = [int(nic.run("date +%s")) for nic in nics]
    assert abs(times[0] - time.time()) < A_DAY
    assert times[1] < 2 * A_DAY


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
        pid, name, device, address = nic.run(f"hello {CONTROL}").split()
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


def test_a_nic_with_python_can_run_the_agent(options, nics):
    if not options["python"]:
        pytest.skip("needs stand.py --python")
    assert "--config" in nics[0].run("python3 -m srdma agent --help")


def test_a_nic_without_power_is_silent_until_it_boots_again(hosts, nics):
    switch("nic1", "off")
    assert not nics[1].answers()
    nics[0].wait_until_up()
    switch("nic1", "on")
    nics[1].wait_until_up()
    assert float(nics[1].run("cut -d' ' -f1 /proc/uptime")) < PATIENCE
    rping(hosts[1], nics[1], plan.nic_leg_address(1))
