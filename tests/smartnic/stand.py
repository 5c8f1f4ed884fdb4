"""The stand: hosts, and NICs that are other computers (plan.py shows the machines and cables).

    python tests/smartnic/stand.py [--timeout SECONDS] [--hosts 1|2] [-- COMMAND...]

The NICs are aarch64 machines that run the firmware of build/smartnic (image.py). One x86 machine
has both hosts, or each of two machines has one. COMMAND, by default the tests of
tests/smartnic/inside, runs in the machine of host 0, as vm.py describes. Its $SRDMA_VM_SCRATCH has

    hosts       the number of x86 machines
    wire.pcap   the frames between the NICs so far
    power/      power.py switches machines by files here

Exit codes are those of vm.py. If a machine does not boot, all are started once more.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.rxe import machine, vm  # noqa: E402
from tests.smartnic import plan  # noqa: E402
from tests.smartnic.nic import Firmware, Nic  # noqa: E402

FIRMWARE = ROOT / "build/smartnic"
SOCKET_SECONDS = 10
TESTS = [
    *[sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.rxe.conftest"],
    "tests/smartnic/inside",
]
FAR_HOST = [sys.executable, "-m", "tests.smartnic.far_host"]


class Operator(threading.Thread):
    """Switches machines when tests want it (power.py): a file in the folder is named after the
    machine and contains the action; it is removed when the action is done."""

    def __init__(self, folder: Path, actions: Mapping[str, Mapping[str, Callable[[], None]]]):
        super().__init__(daemon=True)
        self._folder = folder
        self._actions = actions
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.1):
            for file in self._folder.glob("[!.]*"):
                self._actions[file.name][file.read_text()]()
                file.unlink()

    def __enter__(self) -> Self:
        self._folder.mkdir()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()


def _actions(hosts: list[vm.Boot], nics: list[Nic]) -> dict[str, dict[str, Callable[[], None]]]:
    found = {f"nic{i}": _signals(nic.signal, on=nic.on, off=nic.off) for i, nic in enumerate(nics)}
    for number, boot in enumerate(hosts):
        found[f"host{number}"] = _signals(boot.process.send_signal, off=boot.stop)
    return found


def _signals(
    send: Callable[[int], None], **more: Callable[[], None]
) -> dict[str, Callable[[], None]]:
    """The actions that any machine has, and `more`. A machine that is stalled does nothing until it
    goes on."""
    stalls = {"stall": lambda: send(signal.SIGSTOP), "continue": lambda: send(signal.SIGCONT)}
    return {**stalls, **more}


class Stand:
    """One start of all machines."""

    def __init__(self, args: argparse.Namespace, firmware: Firmware, folder: Path) -> None:
        self._args = args
        self._firmware = firmware
        self._folder = folder
        self._laid: set[str] = set()  # the cables that have a socket
        self._stack = ExitStack()

    def play(self) -> int | None:
        """Returns the exit code of the command, or None if a machine did not boot."""
        with self._stack:
            (self._folder / "host0").mkdir()
            (self._folder / "host0/hosts").write_text(str(self._args.hosts))
            hosts = [self._host(n, ports) for n, ports in enumerate(plan.hosts(self._args.hosts))]
            nics = [self._nic(number) for number in range(plan.NICS)]
            folder = hosts[0].scratch / "power"
            self._stack.enter_context(Operator(folder, _actions(hosts, nics)))
            deadline = time.monotonic() + vm.BOOT_SECONDS
            up = [boot.wait_for("up", deadline) for boot in hosts]
            up += [nic.wait_until_up(deadline) for nic in nics]
            if all(up):
                return hosts[0].exit_code(time.monotonic() + self._args.timeout + 15)
            consoles = [machine.console() for machine in (*hosts, *nics)]
            print(f"stand: up: {up}", *consoles, sep="\n", file=sys.stderr)
            return None

    def _host(self, number: int, cables: plan.Cables) -> vm.Boot:
        scratch = self._folder / f"host{number}"
        scratch.mkdir(exist_ok=True)
        command = self._args.command if number == 0 else FAR_HOST
        boot = vm.Boot(command, self._args.timeout, scratch, vm.use_kvm(), self._plug(cables))
        return self._stack.enter_context(boot)

    def _nic(self, number: int) -> Nic:
        capture = self._folder / "host0/wire.pcap" if number == 0 else None
        nic = Nic(number, self._firmware, self._folder, self._plug(plan.nic(number), capture))
        nic.on()
        return self._stack.enter_context(nic)

    def _plug(self, cables: plan.Cables, capture: Path | None = None) -> list[str]:
        """QEMU's options for the ports of a machine that starts now. It listens on the cables that
        no machine has yet, and waits for the others. capture: a file for the frames of the wire."""
        deadline = time.monotonic() + SOCKET_SECONDS
        for path in (self._folder / cable for cable in cables if cable in self._laid):
            while not path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        options = plan.options(cables, self._folder, cables.keys() - self._laid)
        self._laid |= cables.keys()
        if capture:
            options += ["-object", f"filter-dump,id=capture,netdev=wire,file={capture}"]
        return options


def main() -> int:
    parser = argparse.ArgumentParser(description="Hosts with NICs that are other computers.")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=1, help="x86 machines")
    parser.add_argument("command", nargs="*", default=TESTS)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    vm.write_byte_code()
    try:
        for _ in range(2):
            with tempfile.TemporaryDirectory(prefix="srdma-stand-") as folder:
                code = Stand(args, Firmware.of(FIRMWARE), Path(folder)).play()
            if code is not None:
                return code
    except machine.VmError as error:
        print(f"stand: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return vm.EXIT_NO_BOOT


if __name__ == "__main__":
    sys.exit(main())
