"""The virtual machine of vm.py: initramfs, kernel command line, QEMU.

Under emulation it must do little, so there is no udev and no service. Its root is that of this
machine over 9p with a cache, without which every file access would be a round trip. Addresses
are not randomized, so that QEMU's translations of a library serve all processes.
"""

from __future__ import annotations

import ctypes
import mmap
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.rxe import cpio

MEMORY = "4G"
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
OVER_9P = "trans=virtio,version=9p2000.L,access=any,msize=512000"
CALIBRATION_S = 0.05
OUTPUT = "/dev/ttyS1"

# Script of process 1. Mounts under /tmp keep /tmp's files visible: the source tree may be there.
INIT = """\
#!/bin/busybox sh
export PATH=/bin
busybox mkdir -p /dev /root
for module in /modules/*; do busybox insmod $module || exit 1; done
busybox mount -t 9p -o ro,cache=loose,{over_9p} root /root || exit 1
cd /root
busybox mount -t devtmpfs dev dev
busybox mkdir -p dev/shm dev/pts
busybox mount -t devpts devpts dev/pts
busybox mount -t proc proc proc
busybox mount -t sysfs sys sys
for place in dev/shm run var/tmp; do busybox mount -t tmpfs -o mode=1777 tmpfs $place; done
busybox mkdir -p run/tmp/upper run/tmp/work
busybox chmod 1777 run/tmp/upper
over=lowerdir=tmp,upperdir=run/tmp/upper,workdir=run/tmp/work
busybox mount -t overlay -o $over tmp tmp || exit 1
busybox mount -t 9p -o rw,{over_9p} scratch /root{scratch} || exit 1
exec busybox switch_root /root /bin/sh {scratch}/guest.sh
"""


class VmError(Exception):
    """The machine cannot be started here. The text names what is missing."""


def newest_kernel(arch: str = "amd64", root: Path = Path("/")) -> Path:
    """Returns the newest stock kernel below `root`. The cloud flavour has no RDMA."""
    boot = root / "boot"
    kernels = [k for k in boot.glob(f"vmlinuz-*-{arch}") if "cloud" not in k.name]
    if not kernels:
        raise VmError(f"no {boot}/vmlinuz-*-{arch}: install the package linux-image-{arch}")
    return max(kernels, key=lambda k: [int(n) if n.isdigit() else 0 for n in _fields(k)])


def _fields(kernel: Path) -> list[str]:
    return kernel.name.removeprefix("vmlinuz-").replace("-", ".").split(".")


def qemu_command(kernel: Path, scratch: Path, *, kvm: bool, more: list[str]) -> list[str]:
    """The QEMU command line. The guest writes to QEMU's standard output.
    more: options, each a line of words."""
    qemu = program("qemu-system-x86_64", "qemu-system-x86")
    initramfs = scratch / "initramfs"
    initramfs.write_bytes(_initramfs(kernel, scratch))
    words = ["quiet", "panic=-1", "console=ttyS0", "mitigations=off", "norandmaps"]
    # Without a reliable TSC the guest's clock is the HPET, which costs a system call and a device
    # access per read. An emulated guest would calibrate the TSC against the HPET and, on a loaded
    # machine, find it several times too fast: it gets the rate by tsc_early_khz.
    words += ["tsc=reliable"] if kvm else ["tsc=reliable", f"tsc_early_khz={_tsc_khz()}"]
    return [
        *[qemu, "-machine", "q35", "-nodefaults", "-no-reboot", "-display", "none"],
        *(["-accel", "kvm", "-cpu", "host"] if kvm else ["-accel", "tcg", "-cpu", "max"]),
        *["-m", MEMORY, "-smp", "1"],
        *["-kernel", str(kernel), "-initrd", str(initramfs), "-append", " ".join(words)],
        *["-serial", f"file:{scratch}/console", "-serial", "stdio"],
        *_folder("root", Path("/"), ",readonly=on"),
        *_folder("scratch", scratch),
        *[word for option in more for word in shlex.split(option)],
    ]


def _folder(tag: str, path: Path, options: str = "") -> list[str]:
    """Options for a folder of this machine that the guest mounts by 9p."""
    source = f"local,id={tag},path={path},security_model=none,multidevs=remap{options}"
    return ["-fsdev", source, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def program(name: str, package: str) -> str:
    """Returns the path of a program. Raises VmError with the package that has it."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    if found is None:
        raise VmError(f"no program {name}: install the package {package}")
    return found


def _initramfs(kernel: Path, scratch: Path) -> bytes:
    """busybox, the modules needed for the root file system, and the script of process 1."""
    files = {
        "init": INIT.format(over_9p=OVER_9P, scratch=scratch).encode(),
        "bin/busybox": Path(program("busybox", "busybox-static")).read_bytes(),
        **packed_modules(MODULES, kernel),
    }
    return cpio.archive(files, ["dev", "root"])


def packed_modules(names: Iterable[str], kernel: Path, root: Path = Path("/")) -> dict[str, bytes]:
    """Files of an initramfs: the modules and those that they need, in the order of loading."""
    found = enumerate(_modules(names, kernel, root))
    return {f"modules/{number:02}-{path.name}": path.read_bytes() for number, path in found}


def _modules(names: Iterable[str], kernel: Path, root: Path) -> list[Path]:
    """Returns each module below `root` once, after those that it needs."""
    release = kernel.name.removeprefix("vmlinuz-")
    words = [program("modprobe", "kmod"), "--show-depends", "-a", "-d", str(root), "-S", release]
    words += names
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise VmError(f"kernel {release} lacks a module: {done.stderr.strip()}")
    lines = [line.split() for line in done.stdout.splitlines()]
    return list(dict.fromkeys(Path(words[1]) for words in lines if words[0] == "insmod"))


def _tsc_khz() -> int:
    """Measures the rate of this machine's time stamp counter, which an emulated CPU shows to its
    guest."""
    access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
    with mmap.mmap(-1, mmap.PAGESIZE, prot=access) as page:
        page.write(bytes.fromhex("0f31 48c1e220 4809d0 c3"))  # rdtsc; rax |= rdx << 32; ret
        code = ctypes.c_char.from_buffer(page)
        counter = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(code))
        start, first = _look(counter)
        time.sleep(CALIBRATION_S)
        end, last = _look(counter)
        del counter, code  # lets the page be unmapped
    return round((last - first) * 1_000_000 / (end - start))


def _look(counter: Callable[[], int]) -> tuple[int, int]:
    """Reads clock and counter repeatedly. Returns the pair whose reading took the shortest time."""
    looks = []
    for _ in range(20):
        start = time.monotonic_ns()
        ticks = counter()
        looks.append((time.monotonic_ns() - start, start, ticks))
    return min(looks)[1:]
