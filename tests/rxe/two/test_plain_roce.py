"""Plain RC QPs between two machines, with a man in the middle on their cable who reads and changes
WRITEs. The attacks succeed, as the literature says. test_tampered_wire.py, which runs later, has
the same cable with srdma.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from srdma.embedded import Worker
from srdma_attack.against_plain.on_path import write_all
from srdma_attack.against_plain.rc import Host, Name
from srdma_attack.against_plain.rules import CASES, CONTROL, SIZE, Case
from tests.rxe.tcp_host import TcpHost
from tests.rxe.two import end


@pytest.fixture(scope="module")
def plain(worker: Worker) -> Iterator[Host]:
    with ExitStack() as undo:
        yield Host(end.rdma(0), undo)


@pytest.mark.parametrize("case", [*CASES.values(), CONTROL], ids=[*CASES, "control"])
# RFC 5042 A5.2
def test_attack_on_plain_roce_succeeds(plain: Host, far: tuple[TcpHost, Any], case: Case) -> None:
    """The man in the middle obeys another rule for each QP, in this order (rules.InTurn). The
    control shows that WRITEs pass otherwise; its last one, whose frame begins the faults of the
    other test, may fail."""
    host_b, client = far[0], plain.endpoint()
    name = client.name
    peer = host_b.ask("plain_open", gid=name.gid, qpn=name.qpn, psn=name.psn)
    client.connect(Name(peer["gid"], peer["qpn"], peer["psn"]))
    done = write_all(case, client, peer["rkey"], peer["address"])
    assert done or case is CONTROL
    assert host_b.ask("plain_look", length=SIZE)["data"] == case.wanted
