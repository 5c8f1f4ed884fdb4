"""Archives for an initramfs, in the format newc (the kernel's
driver-api/early-userspace/buffer-format). The kernel unpacks several archives in one file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath


def archive(files: Mapping[str, bytes], folders: Iterable[str] = ()) -> bytes:
    """An archive of files, all executable, with the folders above them and further folders.

    Names have no leading slash.
    """
    above = {str(p) for name in [*files, *folders] for p in PurePosixPath(name).parents}
    found = sorted({*above, *folders} - {"."})
    entries = [_entry(folder, 0o40755, b"") for folder in found]
    entries += [_entry(name, 0o100755, data) for name, data in files.items()]
    return b"".join(entries) + _entry("TRAILER!!!", 0, b"")


def _entry(name: str, mode: int, data: bytes) -> bytes:
    fields = (0, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + bytes(-len(head) % 4) + data + bytes(-len(data) % 4)
