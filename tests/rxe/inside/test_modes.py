"""Each suite and level over rxe, with alternating key modes, from one pair of host processes.

The keys come from tests/keying.py: a key exchange takes seconds here.
"""

from __future__ import annotations

from contextlib import closing

import pytest

import srdma
from srdma.control import Control, QPInfo
from srdma.keyex.offers import Suite
from srdma.native.suites import suites
from srdma.qp import SecureQP
from tests.keying import End, Protection, attach, key, until_running
from tests.rxe.inside.conftest import A, B

ROWS = [
    (row["name"], Suite(row["id"], level, row["tag_len"]))
    for row in suites()
    for level in row["levels"]
]
MEM_BIT = 2
SIZE = 16_384
LENGTH = 9_001


class Both:
    """Host A in this process and host B in its own, each at its worker."""

    def __init__(self, pd, control_a, control_b, host_b, opened) -> None:
        self.pd, self.host_b = pd, host_b
        self._controls = control_a, control_b
        self.remote = srdma.RemoteMR.from_bytes(opened["remote"])
        self.capability = srdma.Capability.from_bytes(opened["capability"])

    def connect(self, how: Protection, patience: float) -> SecureQP:
        qp = SecureQP(self.pd, 8, 8, timeout=patience)
        theirs = QPInfo(**self.host_b.ask("modes_qp"))
        client, server = End(self._controls[0], qp.info, A), End(self._controls[1], theirs, B)
        key(client, server, how)
        until_running(client, server, patience)
        qp.connected = True
        return qp


@pytest.fixture(scope="module")
def both(stage, host_b, pd):
    opened = host_b.ask("modes_open", worker=str(stage.secure.b), size=SIZE)
    with closing(attach(pd)) as own, closing(Control.connect(stage.secure.b)) as theirs:
        theirs.attach(opened["token"])
        yield Both(pd, own, theirs, host_b, opened)


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[f"{n}-{s.level}" for n, s in ROWS])
def test_suite_and_level(stage, both, number):
    mode = number % 4
    with closing(both.connect(Protection(ROWS[number][1], mode), stage.patience)) as qp:
        data = bytes((n * n + number) % 251 for n in range(LENGTH))
        where = both.capability if mode & MEM_BIT else both.remote
        qp.write(data, where, 1000)
        seen = both.host_b.ask("modes_look", offset=1000, length=LENGTH)
        assert seen["proven" if mode & MEM_BIT else "plain"] == data
        assert qp.read(where, 1000, LENGTH) == data
        both.host_b.request("modes_message", size=LENGTH)
        qp.send(data[::-1])
        assert both.host_b.answer()["data"] == data[::-1]
    both.host_b.ask("modes_drop")
