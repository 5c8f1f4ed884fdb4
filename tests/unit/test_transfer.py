"""The receiver of a file, with a simulated peer."""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from srdma.cli import files as transfer
from srdma.errors import LocalError, RemoteError
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


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "empty, or begins with a dot"),
        (".bashrc", "begins with a dot"),
        ("..", "begins with a dot"),
        ("../x", "begins with a dot"),
        ("a/b", "has a slash"),
        ("/etc/passwd", "has a slash"),
        ("a\nb", "cannot be printed"),
        ("x\0", "cannot be printed"),
        ("\x1b[2J", "cannot be printed"),
        ("a\u202eb", "cannot be printed"),
        ("x" * 256, "more than 255 bytes"),
        ("x" * 300, "more than 255 bytes"),
        ("\u00e4" * 128, "more than 255 bytes"),
        (7, "is no text"),
        (None, "is no text"),
        (b"x", "is no text"),
    ],
)
def test_names_that_are_refused(name: object, fault: str, tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=f"is not a valid file name: .*{fault}") as e:
        transfer.target(tmp_path, name, force=False)
    assert str(e.value).isprintable() and len(str(e.value)) < 250


@pytest.mark.parametrize("name", ["x" * 255, "\u00e4" * 127, "\U00010348" * 63, "a b", "-rf"])
def test_names_that_are_accepted(name: str, tmp_path: Path) -> None:
    """Also the longest ones get a partial file and their name."""
    path = transfer.target(tmp_path, name, force=False)
    with transfer._partial(path) as (file, partial):
        transfer._write(file, memoryview(b"content"), path)
        assert [each.suffix for each in tmp_path.iterdir()] == [".part"]
        transfer._finish(file, partial, path)
    assert path.read_bytes() == b"content" and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("out", ["x" * 300, "y" * 300 + "/x", "missing/x", "file/x"])
def test_out_that_cannot_be_written(out: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalError, match=r"cannot write|does not exist"):
        transfer.target(tmp_path / out, "name", force=False)


def receiver_of(begin: dict[str, object]) -> tuple[transfer.Receiver, list[dict[str, object]]]:
    """A receiver whose peer sends this BEGIN, and the messages that it sends."""
    sent: list[dict[str, object]] = []
    receiver = transfer.Receiver.__new__(transfer.Receiver)
    receiver.__dict__ |= {"_next": lambda: None, "_message": lambda _: begin, "_send": sent.append}
    return receiver, sent


@pytest.mark.parametrize("size", [None, -1, 1.5, True, "1", 1 << 63, 1 << 100])
def test_illegal_sizes(size: object, tmp_path: Path) -> None:
    receiver, _ = receiver_of({"name": "f", "size": size})
    with pytest.raises(RemoteError, match="no valid file size"):
        receiver.receive(tmp_path, force=False, most=None, progress=lambda done, size: None)
    assert [*tmp_path.iterdir()] == []


def test_a_file_above_the_limit_is_refused_before_it_is_written(tmp_path: Path) -> None:
    """The peer is told; no partial file is made. A file of exactly the limit is accepted."""
    receiver, sent = receiver_of({"name": "f", "size": 101})
    with pytest.raises(LocalError, match="101 bytes, above --max-size 100"):
        receiver.receive(tmp_path, force=False, most=100, progress=lambda done, size: None)
    assert "above --max-size 100" in str(sent[0]["error"]) and [*tmp_path.iterdir()] == []
    receiver.__dict__["_fill"] = lambda *_: "digest"
    receiver.__dict__["_message"] = lambda _: {"name": "f", "size": 100}
    found = receiver.receive(tmp_path, force=False, most=100, progress=lambda done, size: None)
    assert found == (tmp_path / "f", "digest")


def test_sender_names_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="is no UTF-8 text: send a copy"):
        transfer._sent_name(Path(os.fsdecode(b"/tmp/x\xff")))
