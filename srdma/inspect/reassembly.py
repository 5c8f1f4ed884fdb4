"""Messages of SENDs over reliable connections, frame by frame, with bounded memory.

RC sends again from the first lost frame on, and a capture may miss frames or have them twice.
Frames that came too early wait for the missing ones. A repeated message is handed out again, so
that no message remains unseen.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from srdma.inspect.roce import Frame

MESSAGE_MAX = 8192  # bytes of a message that are kept: more than any packet of srdma has
FLOWS_MAX = 65_536
WAITING_MAX = 1024  # frames of one flow that wait for earlier ones
_ALL_WAITING_MAX = 16_384
_FIRST, _MIDDLE, _LAST, _LAST_IMM, _ONLY, _ONLY_IMM = range(6)
_BEGINS, _CONTINUES = (_FIRST, _ONLY, _ONLY_IMM), (_MIDDLE, _LAST, _LAST_IMM)
_HALF, _MASK = 1 << 23, 0xFFFFFF


@dataclass
class _Message:
    """A message whose last frame is missing; next: PSN of its next frame."""

    data: bytearray
    next: int

    def add(self, payload: bytes) -> None:
        self.data += payload[: MESSAGE_MAX - len(self.data)]
        self.next = (self.next + 1) & _MASK


@dataclass
class _Flow:
    """One direction of a connection. expected: PSN of the next frame in order; begun: a message
    began since the start of the capture, or since frames were missed."""

    expected: int
    begun: bool = False
    open: _Message | None = None
    again: _Message | None = None  # the message that is being repeated
    waiting: dict[int, Frame] = field(default_factory=dict)

    def ahead(self, psn: int) -> int:
        return ((psn - self.expected + _HALF) & _MASK) - _HALF


class Reassembly:
    """incomplete: messages of which the capture misses frames, although it has earlier and later
    ones. The message under way when the capture began, or ended, does not count."""

    def __init__(self) -> None:
        self.incomplete = 0
        self._flows: OrderedDict[tuple[bytes, bytes, int], _Flow] = OrderedDict()
        self._waiting = 0

    def add(self, frame: Frame) -> Iterator[bytes]:
        """frame: a SEND. Yields the messages that it completes; of a message that is longer than
        MESSAGE_MAX the first bytes."""
        flow = self._flows.get(frame.flow)
        if flow is None:
            if len(self._flows) == FLOWS_MAX:
                _, oldest = self._flows.popitem(last=False)
                yield from self._missed(oldest)
            flow = self._flows[frame.flow] = _Flow(frame.psn)
        ahead = flow.ahead(frame.psn)
        if ahead < 0:
            yield from self._repeated(flow, frame)
            return
        if ahead > WAITING_MAX and frame.opcode in _BEGINS:  # another connection of that number
            yield from self._missed(flow)
            flow.expected = frame.psn
        elif ahead:
            yield from self._wait(flow, frame)
            return
        yield from self._take(flow, frame)
        yield from self._drain(flow)

    def finish(self) -> Iterator[bytes]:
        """The messages behind frames that the capture missed."""
        for flow in self._flows.values():
            yield from self._missed(flow)
        self._flows.clear()

    def _take(self, flow: _Flow, frame: Frame) -> Iterator[bytes]:
        """The frame whose PSN is the expected one."""
        flow.expected = (flow.expected + 1) & _MASK
        message = flow.open
        if frame.opcode in _BEGINS:
            self.incomplete += message is not None
            flow.begun, flow.open = True, None
            if frame.opcode == _FIRST:
                flow.open = _begin(frame)
            else:
                yield frame.payload[:MESSAGE_MAX]
        elif message is None:
            self.incomplete += flow.begun
        else:
            message.add(frame.payload)
            if frame.opcode != _MIDDLE:
                flow.open = None
                yield bytes(message.data)

    def _drain(self, flow: _Flow) -> Iterator[bytes]:
        while (frame := flow.waiting.pop(flow.expected, None)) is not None:
            self._waiting -= 1
            yield from self._take(flow, frame)

    def _wait(self, flow: _Flow, frame: Frame) -> Iterator[bytes]:
        if frame.psn in flow.waiting:
            yield from self._repeated(flow, frame)
            return
        flow.waiting[frame.psn] = frame
        self._waiting += 1
        if len(flow.waiting) > WAITING_MAX or self._waiting > _ALL_WAITING_MAX:
            yield from self._missed(flow)

    def _missed(self, flow: _Flow) -> Iterator[bytes]:
        """Goes on without the missing frames."""
        while flow.waiting:
            self.incomplete += 1
            flow.begun, flow.open = False, None
            flow.expected = min(flow.waiting, key=flow.ahead)
            yield from self._drain(flow)

    def _repeated(self, flow: _Flow, frame: Frame) -> Iterator[bytes]:
        if frame.opcode in _CONTINUES:
            again = flow.again
            if again is None or again.next != frame.psn:
                return
            again.add(frame.payload)
            if frame.opcode != _MIDDLE:
                flow.again = None
                yield bytes(again.data)
        elif frame.opcode == _FIRST:
            flow.again = _begin(frame)
        else:
            yield frame.payload[:MESSAGE_MAX]


def _begin(frame: Frame) -> _Message:
    return _Message(bytearray(frame.payload[:MESSAGE_MAX]), (frame.psn + 1) & _MASK)
