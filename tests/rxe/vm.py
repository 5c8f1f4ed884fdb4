"""Runs a command in a virtual machine whose kernel has rdma_rxe.

    python tests/rxe/vm.py [--timeout SECONDS] -- COMMAND...

The machine has the root file system of this one, read-only, under a stock Debian kernel (package
linux-image-amd64) in QEMU (machine.py). COMMAND runs in it as root and in the same folder. It may
write to /tmp, /run, /dev/shm and /var/tmp, which vanish with the machine, and to $SRDMA_VM_SCRATCH,
a folder that `run` can pass in. Output is streamed. The exit code is that of COMMAND, 124 if time
ran out, and 125 if the machine did not boot twice in a row.

SRDMA_VM_ACCEL=kvm or tcg overrides the choice between hardware virtualization and emulation. The
default is KVM if it is available and this machine is not itself virtual (under some nested KVMs the
kernel hangs in the BIOS).
"""

import argparse
import compileall
import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.rxe import machine  # noqa: E402

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BOOT_SECONDS = 120
SOURCES = ("srdma", "attack", "tests")
EXIT_TIMEOUT = 124
EXIT_NO_BOOT = 125

GUEST_SCRIPT = """\
exec >{output} 2>&1
stty raw <{output}
export HOME=/tmp PYTHONDONTWRITEBYTECODE=1 SRDMA_VM_SCRATCH={scratch} PATH={path}
export XDG_RUNTIME_DIR=/run XDG_CACHE_HOME=/tmp/.cache TERM=dumb
ulimit -Hn 1048576
ip link set lo up
cd {cwd}
touch {scratch}/up
timeout -k 5 {timeout} {command} </dev/null
echo $? >{scratch}/code.part
mv {scratch}/code.part {scratch}/code
echo b >/proc/sysrq-trigger
"""


def use_kvm() -> bool:
    choice = os.environ.get("SRDMA_VM_ACCEL")
    if choice is not None:
        return choice == "kvm"
    nested = " hypervisor" in Path("/proc/cpuinfo").read_text()
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and not nested


class Boot:
    """One start of the machine: the process, and its results in the scratch folder. A context
    manager, which stops the machine."""

    def __init__(
        self, command: list[str], timeout: float, scratch: Path, kvm: bool, qemu: list[str]
    ) -> None:
        self.scratch = scratch
        for name in ("up", "code"):
            (scratch / name).unlink(missing_ok=True)
        script = GUEST_SCRIPT.format(
            scratch=scratch,
            output=machine.OUTPUT,
            path=shlex.quote(f"{Path(sys.executable).parent}:{SYSTEM_PATH}"),
            cwd=shlex.quote(os.getcwd()),
            timeout=max(1, int(timeout)),
            command=shlex.join(command),
        )
        (scratch / "guest.sh").write_text(script)
        self.process = subprocess.Popen(
            machine.qemu_command(machine.newest_kernel(), scratch, kvm=kvm, more=qemu),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.output = threading.Thread(target=self._copy_output, daemon=True)
        self.output.start()

    def _copy_output(self) -> None:
        assert self.process.stdout is not None
        while chunk := os.read(self.process.stdout.fileno(), 65536):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()

    def wait_for(self, name: str, deadline: float) -> bool:
        """True if the file appeared in the scratch folder before the deadline and before the
        machine ended."""
        while not (self.scratch / name).exists():
            if time.monotonic() > deadline or self.process.poll() is not None:
                return (self.scratch / name).exists()
            time.sleep(0.1)
        return True

    def exit_code(self, deadline: float) -> int:
        code = EXIT_TIMEOUT
        if self.wait_for("code", deadline):
            code = int((self.scratch / "code").read_text())
        if code == EXIT_TIMEOUT:
            print("vm: the command did not end in time", file=sys.stderr)
        return code

    def console(self) -> str:
        """Returns the last lines of the kernel's console."""
        console = self.scratch / "console"
        return console.read_text(errors="replace")[-2000:] if console.exists() else ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Waits until the machine powers off, if its command has ended, and otherwise kills it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10 if (self.scratch / "code").exists() else 0)
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)
                self.process.wait(5)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue
        self.output.join(5)


def write_byte_code() -> None:
    """Writes the byte code of the sources here, because the machine keeps no files."""
    for folder in SOURCES:
        compileall.compile_dir(ROOT / folder, quiet=2)


def run(
    command: list[str], timeout: float, scratch: Path | None = None, qemu: list[str] | None = None
) -> int:
    """Runs a command in a fresh machine, within timeout seconds from its start.

    A boot that hangs is retried once, by emulation. Files that the command writes to its
    $SRDMA_VM_SCRATCH are in scratch afterwards. qemu: more options for QEMU.
    """
    write_byte_code()
    with tempfile.TemporaryDirectory(prefix="srdma-vm-") as own:
        for kvm in (use_kvm(), False):
            with Boot(command, timeout, scratch or Path(own), kvm, qemu or []) as boot:
                if boot.wait_for("up", time.monotonic() + BOOT_SECONDS):
                    return boot.exit_code(time.monotonic() + timeout + 15)
            print(f"vm: the machine did not come up\n{boot.console()}", file=sys.stderr)
    return EXIT_NO_BOOT


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a command in a VM with rdma_rxe.")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        return run(args.command, args.timeout)
    except machine.VmError as error:
        print(f"vm: {error}", file=sys.stderr)
        return EXIT_NO_BOOT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
