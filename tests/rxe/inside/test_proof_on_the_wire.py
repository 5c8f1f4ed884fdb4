"""`srdma verify-wire` on a wire over RDMA: packets are RC SENDs there, which it reassembles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import srdma
from srdma.inspect import datagram
from srdma.inspect.capture_file import Captured
from srdma.inspect.proof import Proof
from tests import captures
from tests.e2e.logged import SIZE, logged_connection, work


def judged(frames: Iterable[bytes]) -> Proof:
    proof = Proof()
    for frame in frames:
        proof.frame(Captured(datagram.ETHERNET, frame, len(frame)))
    proof.finish()
    return proof


def test_every_tag_of_an_rxe_wire_is_verified(stage, pki, tmp_path):
    """The same frames are refused with a plain WRITE of RDMA among them."""
    stage.wire.forget()
    workers = stage.secure.workers
    with logged_connection(pki, tmp_path, workers, timeout=stage.patience) as (client, remote):
        work(client, remote)
    stage.wire.take()
    capture: Path = tmp_path / "wire.pcap"
    capture.write_bytes(captures.pcap(stage.wire.raw))
    command = [sys.executable, "-m", "srdma", "verify-wire", "--json", "--pcap", str(capture)]
    command += [f"--key-log={tmp_path}/{name}.log" for name in "ab"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["tags"]["verified"] == report["sth"] > 2 * SIZE // 4096
    assert report["transport"]["ACK"] > 0 and report["transport"]["CM"] > 0
    plain = judged([*stage.wire.raw, captures.rc(0x0A, bytes(16) + b"plain")])
    assert plain.plain == {"WRITE": 1} and plain.faults()


def test_level_none_on_an_rxe_wire_is_plain(stage, connected):
    stage.wire.forget()
    with (
        srdma.Context(stage.open.a) as ctx,
        srdma.PD(ctx, 512) as pd,
        connected(pd, stage.open, size=SIZE, level="none") as (connection, remote),
    ):
        work(connection, remote)
    stage.wire.take()
    proof = judged(stage.wire.raw)
    assert proof.sth == 0 and proof.plain.total() > 2 * SIZE // 4096 and proof.faults()
