"""Messages of SENDs frame by frame (srdma/inspect/reassembly.py)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srdma.inspect import reassembly
from srdma.inspect.reassembly import MESSAGE_MAX, WAITING_MAX, Reassembly
from srdma.inspect.roce import Frame

FIRST, MIDDLE, LAST, ONLY = 0, 1, 2, 4
FLOW = (b"a", b"b", 1)


def frame(opcode: int, psn: int, payload: bytes = b"", flow=FLOW) -> Frame:
    return Frame(flow, opcode, psn & 0xFFFFFF, payload)


def fed(*frames: tuple[int, int, bytes]) -> tuple[list[bytes], int]:
    """The messages, and how many were incomplete."""
    it, found = Reassembly(), []
    for opcode, psn, payload in frames:
        found += it.add(frame(opcode, psn, payload))
    found += it.finish()
    return found, it.incomplete


A, B, C, D = (FIRST, 5, b"a"), (MIDDLE, 6, b"b"), (LAST, 7, b"c"), (ONLY, 8, b"d")
CASES = {
    "in order": ([A, B, C, D], [b"abc", b"d"], 0),
    "a frame came late": ([A, C, D, B], [b"abc", b"d"], 0),
    "sent again from the lost frame on": ([A, C, D, B, C, D], [b"abc", b"d", b"d"], 0),
    "sent again wholly": ([A, B, C, D, A, B, C, D], [b"abc", b"d", b"abc", b"d"], 0),
    "seen twice": ([A, A, B, B, C, C, D, D], [b"abc", b"abc", b"d", b"d"], 0),
    "a part was sent again": ([A, B, C, B, C, D], [b"abc", b"d"], 0),
    "the capture began inside a message": ([B, C, D], [b"d"], 0),
    "the capture ended inside a message": ([D, (FIRST, 9, b"e")], [b"d"], 0),
    "a frame is missing": ([A, C, D], [b"d"], 1),
    "the end of a message is missing": ([A, (ONLY, 6, b"x"), D], [b"x", b"d"], 2),
    "a message has no beginning": ([(ONLY, 4, b"x"), B], [b"x"], 1),
    "a continuation follows an end": ([(ONLY, 5, b"x"), B, C, D], [b"x", b"d"], 2),
    "another connection of the same number": ([D, (ONLY, 8000, b"x")], [b"d", b"x"], 0),
    "another connection, with a lower PSN": (
        [(ONLY, 9000, b"d"), A, B, C], [b"d", b"abc"], 0,
    ),
    "PSNs wrap": ([(FIRST, -1, b"a"), (LAST, 0, b"b")], [b"ab"], 0),
    "nothing": ([], [], 0),
}  # fmt: skip


@pytest.mark.parametrize(("frames", "messages", "incomplete"), CASES.values(), ids=CASES)
def test_messages(frames, messages, incomplete) -> None:
    assert fed(*frames) == (messages, incomplete)


def test_flows_do_not_mix() -> None:
    it = Reassembly()
    other = (b"b", b"a", 1)
    assert list(it.add(frame(FIRST, 1, b"a"))) == []
    assert list(it.add(frame(FIRST, 1, b"x", other))) == []
    assert list(it.add(frame(LAST, 2, b"y", other))) == [b"xy"]
    assert list(it.add(frame(LAST, 2, b"b"))) == [b"ab"]


def test_a_long_message_is_cut() -> None:
    frames = [(FIRST, 0, b"x" * 4096), *((MIDDLE, n, b"x" * 4096) for n in range(1, 9))]
    assert fed(*frames, (LAST, 9, b"")) == ([b"x" * MESSAGE_MAX], 0)
    assert fed((ONLY, 0, b"x" * 9000)) == ([b"x" * MESSAGE_MAX], 0)


def test_waiting_frames_are_bounded() -> None:
    it, found = Reassembly(), []
    list(it.add(frame(ONLY, 0)))
    for psn in range(2, WAITING_MAX + 3):
        found += it.add(frame(ONLY, psn, b"x"))
    assert len(found) == WAITING_MAX + 1 and it.incomplete == 1


def test_flows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reassembly, "FLOWS_MAX", 2)
    it = Reassembly()
    list(it.add(frame(ONLY, 0)))
    assert list(it.add(frame(ONLY, 2, b"late"))) == []
    for n in (2, 3):
        found = list(it.add(frame(ONLY, 0, b"x", (b"a", b"b", n))))
    assert found == [b"late", b"x"] and it.incomplete == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12), st.binary(max_size=3))))
def test_every_only_frame_is_seen(frames) -> None:
    found, _ = fed(*frames)
    assert {payload for opcode, _, payload in frames if opcode in (ONLY, 5)} <= set(found)
