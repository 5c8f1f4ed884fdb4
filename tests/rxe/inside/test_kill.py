"""kill -9 of each of the four processes during transfers over rxe, twice each.

As in tests/e2e/test_kill.py, every outstanding request of the survivors ends once and in time,
the next run works, and neither processes nor device objects are left.
"""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from srdma.demo import rxe
from srdma.demo.rxe_stage import worker_options
from srdma.demo.stage import make_identities
from srdma.embedded import Embedded
from tests.e2e.four import Four, judge
from tests.e2e.leftovers import place

ROUNDS = 2
QP_TIMEOUT = 20.0
LATEST_KILL = 0.5  # seconds after data flows
SILENCE = ["--ping", "2", "--silence", "8"]  # seconds; gives up a dead wire
REASONS = {
    "host A": {"B": {"PEER_HOST_GONE", "PEER_CLOSED"}},
    "host B": {"A": {"PEER_HOST_GONE", "PEER_CLOSED"}},
    "NIC A": {"A": {"WORKER_GONE"}, "B": {"WIRE_LOST"}},
    "NIC B": {"B": {"WORKER_GONE"}, "A": {"WIRE_LOST"}},
}


def objects(devices: list[str]) -> Counter[tuple[str, str]]:
    """Returns how many PDs, CQs, QPs, MRs and CM ids of programs the devices have."""
    found: Counter[tuple[str, str]] = Counter()
    for kind in ("pd", "cq", "qp", "mr", "cm_id"):
        words = ["rdma", "-j", "resource", "show", kind]
        listed = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
        found.update((entry["ifname"], kind) for entry in listed if "pid" in entry)
    return Counter({key: n for key, n in found.items() if key[0] in devices})


@pytest.fixture
def four(monkeypatch: pytest.MonkeyPatch) -> Iterator[Four]:
    if why := rxe.unavailable():
        pytest.skip(why)
    with place() as here, rxe.pair("kill", "10.79.0") as ends:
        monkeypatch.setenv("TMPDIR", str(here.folder))
        monkeypatch.setattr(tempfile, "tempdir", str(here.folder))
        with ExitStack() as stack:
            nics = stack.enter_context(Embedded())
            options = {"A": worker_options(ends[0]), "B": worker_options(ends[1])}
            processes = Four(
                here.env,
                make_identities(nics.folder / "identities"),
                lambda end: nics.launch(f"nic{end.lower()}", [*options[end], *SILENCE]),
                QP_TIMEOUT,
            )
            stack.callback(processes.close)
            yield processes
        assert not objects([end.device for end in ends])


def test_kill_during_transfers(four: Four) -> None:
    dice = random.Random(8)
    failed = 0
    # The last kill ends the hosts and objects that earlier kills left.
    for victim in [*REASONS] * ROUNDS + ["host A"]:
        four.start()
        time.sleep(dice.uniform(0, LATEST_KILL))
        for end, said in four.kill(victim).items():
            failed += judge(said, REASONS[victim][end], QP_TIMEOUT)
    assert failed
