"""`srdma perf` over verbs and hosts in C (libsrdma), alternating with and without protection, and
plain ib_write_bw for comparison."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from operator import truediv
from statistics import median

import pytest

import srdma
from srdma.embedded import spawn, stop
from srdma.wr import SendFlag, SendWR, WROpcode
from srdma_bench import gid
from srdma_bench.device import verbs
from srdma_bench.perf.counts import check_counts, gained
from srdma_bench.perf.measure import TESTS, Plan, Result, offered
from srdma_bench.series import in_turn, ratios
from srdma_bench.stand import DEPTH, Link, Settings, Shape, Stand
from srdma_bench.targets.measure import RXE_ROUNDS, RXE_VALUES
from tests.e2e.test_c_library import BUILD, run_library
from tests.fake_agent import FakeAgent
from tests.rxe.figures import figures

REGION = 1 << 18
PLAIN, SECURE = Shape("none", region=REGION), Shape("aead", "aes-128-gcm", region=REGION)
ROUNDS = int(os.environ.get(RXE_ROUNDS, "2"))
LATENCY = Plan("write_lat", 32, 10, host="Python")
BULK = Plan("write_bw", 2048, 100, host="Python")
SIGNALED = 20
# OpenSSL, because in an emulated machine ipsec-mb takes 223 us to seal 2 KiB and OpenSSL 46 us.
SETTINGS = Settings(unprotected=True, provider="openssl")
START = 20.0
IN_C = 2000  # messages of 2 KiB of `verbs speed`
LIBRARY = BUILD / "tests/e2e/library/verbs"


def test_protected_unprotected_and_perftest(stage, tmp_path):
    with (
        Stand(verbs("rxe", stage.ends), SETTINGS) as stand,
        stand.connect(PLAIN) as plain, stand.connect(SECURE) as secure,
    ):  # fmt: skip
        beside(LATENCY, plain, secure)
        over = beside(BULK, plain, secure)
        beside(replace(BULK, host="C"), plain, secure)
        for name in TESTS:
            assert secure.measure(Plan(name, 2048, 50)).host == "C"
        if shutil.which("ib_write_bw") is None:
            pytest.skip("no program ib_write_bw: install the package perftest")
        if not LIBRARY.exists():
            pytest.skip(f"no program {LIBRARY}: make host-tests, which needs libcbor")
        runs = {
            "ib_write_bw": partial(plain_perftest, stage), "bulk": partial(rate, secure),
            "small": partial(signaled, stand, secure),
        }  # fmt: skip
        with closing(FakeAgent(tmp_path / "agent")) as agent:
            runs |= {level: partial(in_c, stand, agent, level) for level in ("none", "aead")}
            done = in_turn(runs, ROUNDS)
    plain = done["ib_write_bw"]
    c_small, c_bulk = zip(*done["aead"], strict=True)
    _, c_none = zip(*done["none"], strict=True)
    values = {
        "AEAD over none": [1 / x for x in over],
        "median, 32 B": done["small"],
        "over ib_write_bw": list(map(truediv, done["bulk"], plain)),
        "in C: AEAD over none": list(map(truediv, c_bulk, c_none)),
        "in C: median, 32 B": c_small,
        "in C: over ib_write_bw": list(map(truediv, c_bulk, plain)),
    }
    figures.append(f"ib_write_bw 2048 B over rxe: {1 / median(plain):.0f} us each")
    figures.append(f"hosts in C, AEAD: {1 / median(c_bulk):.0f} us each")
    figures.append(f"{RXE_VALUES} {json.dumps(values)}")


def in_c(stand: Stand, agent: FakeAgent, level: str) -> tuple[float, float]:
    """Hosts in C: the median time in us of a signaled WRITE of 32 B, and WRITEs of 2 KiB per us."""
    ends = {"SRDMA_A": stand.a.control, "SRDMA_B": stand.b.control, "SRDMA_AGENT": agent.path}
    environment = {name: str(path) for name, path in ends.items()}
    before, _ = stand.stats()
    if level == "none":
        environment["SRDMA_UNPROTECTED"] = "1"
    said = run_library(environment, "speed")
    moved = gained(before, stand.stats()[0])
    sent = moved["packets_unprotected_sent"], moved["packets_sealed"]
    # The other connections of the stand send some packets meanwhile.
    used, other = sent if level == "none" else reversed(sent)
    assert used >= IN_C and other < IN_C // 10, sent
    found = dict(re.findall(r"^(small|bulk) (\d+)$", said, re.MULTILINE))
    return float(found["small"]), 1 / float(found["bulk"])


def beside(plan: Plan, plain: Link, secure: Link) -> list[float]:
    """Returns the time per message with AEAD over that with level none, for each round."""
    runs = {"none": partial(plain.measure, plan), "aead": partial(secure.measure, plan)}
    done = in_turn(runs, ROUNDS)
    assert {r.host for results in done.values() for r in results} == {plan.host}
    assert all(r.packets >= 2 * r.messages for r in done["aead"])
    each = {level: [r.each for r in done[level]] for level in done}
    over = ratios(each["aead"], each["none"])
    usual = median(each["aead"]) / 1000
    figures.append(
        f"{plan.test} {plan.size} B over rxe, hosts in {plan.host}: {usual:.0f} us each with "
        f"AEAD, {over.median:.2f} times without protection"
    )
    return [a / b for a, b in zip(each["aead"], each["none"], strict=True)]


def rate(secure: Link) -> float:
    """Returns messages per us."""
    return 1000 / secure.measure(BULK).each


def signaled(stand: Stand, secure: Link) -> float:
    """Returns the median time in us of a WRITE, from its post to its completion."""
    there, before = secure.client.there, stand.stats()
    qp, times = there.qps[1], []
    with qp.pd.alloc(32) as source:
        wr = SendWR(0, WROpcode.RDMA_WRITE, [source.sge()], send_flags=SendFlag.SIGNALED)
        wr.set_remote(offered(there.data), 0)
        batch = qp.batch([wr])
        for _ in range(SIGNALED):
            start = time.perf_counter_ns()
            batch.post()
            qp.poll(1, timeout=START)[0].raise_for_status()
            times.append(time.perf_counter_ns() - start)
    moved = (gained(*pair) for pair in zip(before, stand.stats(), strict=True))
    check_counts(
        secure.client, Result(Plan("write_lat", 32, SIGNALED), SIGNALED, sum(times)), *moved
    )
    return median(times) / 1000


def plain_perftest(stage) -> float:
    """Returns messages per us of plain ib_write_bw between the same devices."""
    a, b = stage.ends
    words = ["ib_write_bw", "-F", "-s", "2048", "-n", "100", "-t", str(DEPTH)]

    def index(end) -> str:
        """Returns the index of the GID with the end's address."""
        return next(str(n) for n in range(8) if has(end, n))

    def has(end, number: int) -> bool:
        try:
            return gid.gid_address(end.device, number) == end.address
        except srdma.DeviceError:
            return False

    server = spawn([*words, "-d", b.device, "-x", index(b)], stdout=subprocess.PIPE)
    try:
        deadline = time.monotonic() + START
        while True:
            mine = [*words, "-d", a.device, "-x", index(a), b.address]
            done = subprocess.run(mine, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        stop(server)
        server.stdout.close()
    row = next(line for line in reversed(done.stdout.splitlines()) if line.split()[:1] == ["2048"])
    return float(row.split()[-1])
