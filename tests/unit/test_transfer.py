"""The receiver of a file, with a simulated peer."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from types import SimpleNamespace

from srdma.cli import files as transfer
from srdma.wc import WCOpcode


def test_digest_is_that_of_the_written_bytes(monkeypatch) -> None:
    """A peer that overwrites a chunk while it is written to the file changes
    neither file nor digest."""
    region = bytearray(transfer.REGION)
    region[:4] = b"good"
    file = io.BytesIO()

    def write(to, data, path) -> None:
        to.write(data)
        region[:4] = b"evil"

    monkeypatch.setattr(transfer, "_write", write)
    receiver = transfer.Receiver.__new__(transfer.Receiver)
    chunk = SimpleNamespace(opcode=WCOpcode.RECV_RDMA_WITH_IMM, imm_data=0, byte_len=4, wr_id=0)
    coming = iter([chunk, SimpleNamespace(opcode=WCOpcode.RECV)])
    digest = hashlib.sha256(b"good").hexdigest()
    receiver.__dict__ |= {
        "region": SimpleNamespace(buf=memoryview(region)),
        "_chunks": 0,
        "_next": lambda: next(coming),
        "_post_receive": lambda index: None,
        "_message": lambda wc: {"sha256": digest},
    }
    assert receiver._fill(file, Path("out"), 4, lambda done, size: None) == digest
    assert file.getvalue() == b"good"
