"""Makes the firmware of the stand's NICs: an aarch64 kernel, and an initramfs with all files.

    python -m tests.smartnic.image PROGRAMS FOLDER

PROGRAMS is the build folder of the cross compiler. Kernel, modules, busybox and libraries are those
of Debian's arm64 packages. FOLDER gets vmlinuz, firmware.cpio and the unpacked packages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.rxe import cpio, machine
from tests.smartnic.packages import ARCH, unpack

OWN = Path(__file__).parent / "firmware"
PORTS = Path(__file__).parents[1] / "rxe/ports.sh"
PACKAGES = (
    *["linux-image-arm64", "busybox-static", "iproute2", "libssl3", "libnettle8", "libcbor0.8"],
    *["libdeflate0", "ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "python3.11"],
)
# rdma_rxe asks for the algorithm crc32, which insmod does not load on demand.
MODULES = ("virtio_pci", "virtio_net", "crc32_generic", "ib_uverbs", "rdma_ucm", "rdma_rxe")
PROGRAMS = ("bin/busybox", "bin/ip", "usr/bin/rdma", "usr/bin/ibv_devinfo", "usr/bin/rping")
BUILT = ("srdma-offload", "srdma-control", "tests/smartnic/c/hello")
LIBRARIES = "lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"
LOADER = "lib/ld-linux-aarch64.so.1"
PROVIDER = "usr/lib/aarch64-linux-gnu/libibverbs/librxe-rdmav34.so"
CONFIGURATION = "etc/libibverbs.d/rxe.driver"
UNWINDER = "libgcc_s.so.1"  # glibc loads it when a thread ends early


def unpacked(folder: Path) -> Path:
    """The root of the unpacked packages; `folder` is absolute."""
    return unpack(PACKAGES, folder / "packages")


def make(programs: Path, folder: Path) -> None:
    root = unpacked(folder)
    kernel = machine.newest_kernel(ARCH, root)
    release = kernel.name.removeprefix("vmlinuz-")
    subprocess.run([machine.program("depmod", "kmod"), "-b", str(root), release], check=True)
    executables = [*(root / name for name in PROGRAMS), *(programs / name for name in BUILT)]
    files = {
        "init": (OWN / "init").read_bytes(),
        "srv/cgi-bin/run": (OWN / "run").read_bytes(),
        "etc/ports.sh": PORTS.read_bytes(),
        **{f"bin/{path.name}": path.read_bytes() for path in executables},
        **{name: (root / name).read_bytes() for name in (LOADER, PROVIDER, CONFIGURATION)},
        **{
            str(path.relative_to(root)): path.read_bytes()
            for path in libraries(root, [*executables, root / PROVIDER])
        },
        **machine.packed_modules(MODULES, kernel, root),
    }
    (folder / "firmware.cpio").write_bytes(cpio.archive(files))
    shutil.copy(kernel, folder / "vmlinuz")


def libraries(root: Path, executables: Iterable[Path]) -> set[Path]:
    """The shared libraries that these files need, and those that the libraries need."""
    found = {_library(root, UNWINDER)}
    rest = [*executables, *found]
    while rest:
        for name in _needed(rest.pop()):
            path = _library(root, name)
            if path not in found:
                found.add(path)
                rest.append(path)
    return found


def _needed(path: Path) -> list[str]:
    command = ["aarch64-linux-gnu-readelf", "-d", str(path)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output)


def _library(root: Path, name: str) -> Path:
    for folder in LIBRARIES:
        if (root / folder / name).exists():
            return root / folder / name
    if (root / "lib" / name).exists():  # the loader
        return root / "lib" / name
    raise machine.VmError(f"no library {name} in {root}: add its package to image.py")


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]).resolve())
