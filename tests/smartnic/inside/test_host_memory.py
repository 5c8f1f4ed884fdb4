"""The hosts of NICs with agents hold no keys but those of their control links."""

from __future__ import annotations

import pytest

from tests.rxe.figures import figures
from tests.smartnic import identities, keys, plan
from tests.smartnic.outside import keys_in

MARK = "end-of-key-log"
SIZE = 4096


def test_hosts_hold_no_keys(options, nics, stage, connected, host_b, pd):
    """While QPs are up, and after a renewal."""
    if stage.agent != "nic":
        pytest.skip("needs stand.py --agent nic")
    with connected(pd, size=SIZE) as (connection, remote):
        connection.qp.write(bytes(SIZE), remote)
        connection.rekey(stage.patience)
        for nic in nics:
            keys.tell(nic, MARK)
        machines = options["hosts"]
        hosts = [keys_in(f"host{number}", MARK) for number in range(machines)]
        found = [keys_in(f"nic{number}", MARK) for number in range(plan.NICS)]
        connection.qp.write(bytes(SIZE), remote)
    logged = hosts[0].logged
    figures.append(f"secrets: {logged}; in the memory of NICs: {[nic.secrets for nic in found]}")
    assert logged["S"] >= 2 * 2  # two directions, two generations
    links = [f"control/host{number}" for number in range(plan.NICS)]
    own = [links] if machines == 1 else [[link] for link in links]
    assert [host.identities for host in hosts] == own
    assert not any(any(host.secrets.values()) for host in hosts)
    for number, nic in enumerate(found):
        assert nic.identities == identities.names("nic", number, "nic")
    assert all(any(nic.secrets[kind] for nic in found) for kind in logged)
