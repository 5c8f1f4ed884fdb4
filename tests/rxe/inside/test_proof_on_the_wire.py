"""`srdma verify-wire` judges captures of a wire over RDMA: RC SENDs, whose messages are packets."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import srdma
from tests import captures
from tests.e2e.logged import SIZE, logged_connection, work


def verify(capture: Path, *words: str) -> tuple[int, dict[str, Any]]:
    command = [sys.executable, "-m", "srdma", "verify-wire", "--json", "--pcap", str(capture)]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def test_every_tag_of_an_rxe_wire_is_verified(stage, pki, tmp_path):
    """The same capture is refused with a plain WRITE of RDMA in it."""
    stage.wire.forget()
    workers = stage.secure.workers
    with logged_connection(pki, tmp_path, workers, timeout=stage.patience) as (client, remote):
        work(client, remote)
    stage.wire.take()
    frames, capture = list(stage.wire.raw), tmp_path / "wire.pcap"
    capture.write_bytes(captures.pcap(frames))
    code, report = verify(capture, *(f"--key-log={tmp_path}/{name}.log" for name in "ab"))
    assert code == 0, report
    assert report["tags"]["verified"] == report["sth"] > 2 * SIZE // 4096
    assert report["transport"]["ACK"] > 0 and report["transport"]["CM"] > 0
    capture.write_bytes(captures.pcap([*frames, captures.rc(0x0A, bytes(16) + b"plain")]))
    code, report = verify(capture)
    assert code == 1 and report["plain"] == {"WRITE": 1}


def test_level_none_on_an_rxe_wire_is_plain(stage, connected, tmp_path):
    stage.wire.forget()
    with (
        srdma.Context(stage.open.a) as ctx,
        srdma.PD(ctx, 512) as pd,
        connected(pd, stage.open, size=SIZE, level="none") as (connection, remote),
    ):
        work(connection, remote)
    stage.wire.take()
    capture = tmp_path / "wire.pcap"
    capture.write_bytes(captures.pcap(stage.wire.raw))
    code, report = verify(capture)
    assert code == 1 and report["sth"] == 0 and report["plain"].keys() != {"WRITE"}
