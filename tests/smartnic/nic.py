"""A NIC of the stand: an aarch64 machine with the firmware that image.py makes."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from srdma.embedded import spawn
from tests.rxe import cpio, machine
from tests.rxe.ports import table
from tests.smartnic import plan

MEMORY = "1G"
UP = "firmware: up"  # on the console, from firmware/init


class Firmware(NamedTuple):
    """The files of image.py, and of python_image.py."""

    kernel: Path
    archives: list[Path]

    @classmethod
    def of(cls, folder: Path, python: bool) -> Self:
        """Raises VmError if the folder has no firmware."""
        archives = [folder / "firmware.cpio", *([folder / "python.cpio"] if python else [])]
        found = cls(folder / "vmlinuz", archives)
        if not all(path.exists() for path in (found.kernel, *archives)):
            target = "firmware-python" if python else "firmware"
            raise machine.VmError(f"no firmware in {folder}: run make {target}")
        return found


class Nic:
    """A NIC. It can be switched on again after it was switched off."""

    def __init__(
        self,
        number: int,
        firmware: Firmware,
        folder: Path,
        ports: list[str],
        files: Mapping[str, bytes],
    ) -> None:
        """folder: for its files here; ports: QEMU's options for its ports; files: further files of
        its firmware."""
        self._process: subprocess.Popen[bytes] | None = None
        self._console = folder / f"nic{number}.console"
        initramfs = folder / f"nic{number}.initramfs"
        parts = [archive.read_bytes() for archive in firmware.archives]
        initramfs.write_bytes(b"".join(parts) + _settings(number) + cpio.archive(files))
        words = ["quiet", "panic=-1", "console=ttyAMA0", "mitigations=off", "norandmaps"]
        # cortex-a72 is the core of a BlueField-2.
        self._command = [
            machine.program("qemu-system-aarch64", "qemu-system-arm"),
            *["-machine", "virt,gic-version=3", "-cpu", "cortex-a72"],
            *["-accel", "tcg,thread=multi", "-nodefaults", "-no-reboot", "-display", "none"],
            *["-m", MEMORY, "-smp", "1"],
            *["-kernel", str(firmware.kernel), "-initrd", str(initramfs)],
            *["-append", " ".join(words), "-serial", f"file:{self._console}"],
            *ports,
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.off()

    def on(self) -> None:
        self._console.unlink(missing_ok=True)
        self._process = spawn(self._command)

    def off(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        assert self._process
        return self._process.pid

    def signal(self, number: int) -> None:
        if self._process:
            self._process.send_signal(number)

    def wait_until_up(self, deadline: float) -> bool:
        """False if the deadline passed or the machine ended."""
        while UP not in self.console():
            if not self._process or self._process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def console(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""


def _settings(number: int) -> bytes:
    """An archive behind that of the firmware: the settings of this NIC."""
    clock = plan.CLOCKS[number]
    service = f"{plan.service_address(number)}:{plan.SERVICE_PORT}"
    settings = f"clock={'' if clock is None else clock}\nservice={service}\n"
    ports = table(plan.nic(number).values())
    return cpio.archive({"etc/nic.conf": settings.encode(), "etc/ports": ports.encode()})
