"""A short run of `srdma bench paper` on this machine: refusals, an interruption, the page."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import pytest

from srdma_bench.device import EMBEDDED
from srdma_bench.folder import Folder
from srdma_bench.kvs.store import Kvs
from srdma_bench.paper.kvs import KvsEffort, Stores
from srdma_bench.paper.loads import NONE, Effort, Loads, sheets
from srdma_bench.stand import Link

LIMIT = 120.0
EFFORT = Effort(
    protections=[("header", "aes-128-gmac")], modes=(NONE, "pd+mem"), rounds=1, iterations=20,
    seconds=0.01, sizes=(32,), qps=(1,), mixes=(),
)  # fmt: skip


def paper(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "srdma", "bench", "paper", *words]
    return subprocess.run(
        command, env=os.environ | env, capture_output=True, text=True, timeout=LIMIT, check=False
    )


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--only", "fig3"], "--only fig3 is unknown: give one of table2, table3, fig2"),
        (["--smoke"], "build it with `make bench`"),
    ],
)
def test_error_tells_what_to_do(tmp_path, words, why):
    done = paper(*words, "--out", str(tmp_path / "out"), BUILD=str(tmp_path))
    assert done.returncode == 3, done.stdout + done.stderr
    assert why in " ".join(done.stderr.split())
    assert not (tmp_path / "out").exists()


def test_interrupted_loads_resume(tmp_path, monkeypatch):
    """An interrupted measurement leaves complete sheets only. When it is resumed, none of them is
    measured again."""
    folder, told = Folder(tmp_path, {}), []
    figures = ["fig6", "fig8"]
    every = [*sheets(*EFFORT.protections[0], EFFORT)]
    measured: list[str] = []

    def measure(link: Link, plan, real=Link.measure):
        measured.append(plan.test)
        if len(measured) == 6:
            raise KeyboardInterrupt
        return real(link, plan)

    monkeypatch.setattr(Link, "measure", measure)

    def loads() -> Loads:
        return Loads(folder, EFFORT, EMBEDDED, lambda steps, text: told.append(steps))

    with pytest.raises(KeyboardInterrupt):
        loads().run(figures)
    assert len(loads().tables["fig6"]) == 4 and len(loads().tables["fig8"]) == 0
    loads().run(figures)
    assert measured == ["write_lat"] * 2 + ["read_lat"] * 2 + ["write_bw"] * 4
    again = loads()
    again.run(figures)
    assert len(measured) == 8 and again.total == len(every)
    rows = [*again.tables["fig6"], *again.tables["fig8"]]
    assert [row.mode for row in rows] == [NONE, "pd+mem"] * 3
    assert all(row.packets == 0 if row.mode == NONE else row.packets > 0 for row in rows)
    assert all(row.ratio == 1 for row in rows if row.mode == NONE)
    text = (tmp_path / "fig6.csv").read_text()
    assert len([*csv.DictReader(text.splitlines())]) == 4


def test_interrupted_stores_resume(tmp_path, monkeypatch):
    effort = KvsEffort(
        stores=[("aead", "aes-128-gcm")], modes=(NONE, "pd", "mem"), keys=100, rounds=1,
        seconds=0.01,
    )  # fmt: skip
    folder, measured = Folder(tmp_path, {}), []

    def measure(kvs: Kvs, mix, seconds, real=Kvs.measure):
        measured.append(mix.name)
        if len(measured) == 4:
            raise KeyboardInterrupt
        return real(kvs, mix, seconds)

    monkeypatch.setattr(Kvs, "measure", measure)

    def stores() -> Stores:
        return Stores(folder, effort, EMBEDDED, lambda steps, text: None)

    with pytest.raises(KeyboardInterrupt):
        stores().run()
    assert [row.mode for row in stores().table] == [NONE, "pd"]
    stores().run()
    assert measured == ["get"] * 2 + ["put"] * 4 + ["get"] * 2 + ["put"] * 2
    found = {(row.op, row.mode): row for row in stores().table}
    assert {*found} == {(op, mode) for op in ("GET", "PUT") for mode in effort.modes}
    assert all((row.packets > 0) == (row.mode != NONE) for row in found.values())
    stores().run()
    assert len(measured) == 10 and stores().total == 2


def test_tables(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: run .ci/setup test")
    fake = tmp_path / "bench" / "primitives"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    done = paper(
        "--only", "table2", "--only", "table3", "--out", str(tmp_path), BUILD=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "table2.csv").read_text().splitlines()[1:] == [
        f"{code},{tag},{8 + tag},{60 + 8 + tag}"
        for code, tag in enumerate((12, 16, 20, 28, 32, 48, 64), start=1)
    ]
    assert (tmp_path / "table3.csv").read_text().splitlines()[1:] == [
        "basic,owner,64,0,40,24",
        "pd,owner,16,48,16,24",
        "pd,shared,0,48,16,24",
        "mem,owner,64,16,40,48",
        "pd+mem,owner,16,64,16,48",
        "pd+mem,shared,0,64,16,48",
    ]
    assert "Table 3" in (tmp_path / "index.html").read_text()
    provider = json.loads((tmp_path / "run.json").read_text())["provider"]
    assert provider in ("ipsec-mb", "nettle", "openssl")
