"""The capture of the cable between the NICs, which QEMU writes (-object filter-dump)."""

from __future__ import annotations

import struct
from pathlib import Path

FILE_HEADER, FRAME_HEADER = 24, 16


class Capture:
    """The frames that passed in either direction since this object was made."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = FILE_HEADER
        self.take()

    def take(self) -> list[bytes]:
        """The frames since the last call. A frame that is not wholly written is left for later."""
        with open(self._path, "rb") as file:
            file.seek(self._at)
            data = file.read()
        frames, at = [], 0
        while len(data) - at >= FRAME_HEADER:
            (size,) = struct.unpack_from("=I", data, at + 8)
            end = at + FRAME_HEADER + size
            if end > len(data):
                break
            frames.append(data[at + FRAME_HEADER : end])
            at = end
        self._at += at
        return frames
