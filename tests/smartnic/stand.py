"""The stand: hosts, and NICs that are other computers (plan.py shows the machines and cables).

    python tests/smartnic/stand.py [OPTIONS] [-- COMMAND...]

The NICs are aarch64 machines that run the firmware of build/smartnic (image.py). COMMAND, by
default the tests of tests/smartnic/inside, runs in the machine of host 0, as vm.py describes. Its
$SRDMA_VM_SCRATCH has

    stand.json   the options of the stand
    wire.pcap    the frames between the NICs so far
    identities/  the identities of host 0, or of both hosts
    operator/    requests to the operator (outside.py)

Exit codes are those of vm.py. If a machine does not boot, all are started once more.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.rxe import machine, vm  # noqa: E402
from tests.rxe.udp_cable import UdpCable  # noqa: E402
from tests.smartnic import identities, plan  # noqa: E402
from tests.smartnic.keys import Machine, Search  # noqa: E402
from tests.smartnic.nic import Firmware, Nic  # noqa: E402
from tests.smartnic.outside import PAUSE_S, Operator  # noqa: E402

FIRMWARE = ROOT / "build/smartnic"
SOCKET_SECONDS = 10
TESTS = [
    *[sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.rxe.conftest"],
    "tests/smartnic/inside",
]
SHORT = ["-m", "not soak and not full"]
FAR_HOST = [sys.executable, "-m", "tests.smartnic.far_host"]


def switch(send: Callable[[int], None], action: str, **more: Callable[[], None]) -> str:
    """Carries out an action of outside.switch() or pause(). send: sends a signal to the machine's
    QEMU."""
    stalls = {"stall": lambda: send(signal.SIGSTOP), "continue": lambda: send(signal.SIGCONT)}
    {"pause": partial(pause, send), **stalls, **more}[action]()
    return ""


def pause(send: Callable[[int], None]) -> None:
    send(signal.SIGSTOP)
    time.sleep(PAUSE_S)
    send(signal.SIGCONT)


class Stand:
    """One start of all machines."""

    def __init__(self, args: argparse.Namespace, firmware: Firmware, folder: Path) -> None:
        self._args = args
        self._firmware = firmware
        self._folder = folder
        self._laid: set[str] = set()  # the cables that have a socket
        self._middle: UdpCable | None = None
        self._stack = ExitStack()

    def play(self) -> int | None:
        """Returns the exit code of the command, or None if a machine did not boot."""
        with self._stack:
            identities.make(self._folder / "identities")
            (self._folder / "host0").mkdir()
            (self._folder / "host0/stand.json").write_text(json.dumps(vars(self._args)))
            if self._args.middle:
                self._middle = self._stack.enter_context(closing(UdpCable(self._folder)))
            hosts = [self._host(n, ports) for n, ports in enumerate(plan.hosts(self._args.hosts))]
            nics = [self._nic(number) for number in range(plan.NICS)]
            self._stack.enter_context(Operator(hosts[0].scratch, self._targets(hosts, nics)))
            deadline = time.monotonic() + vm.BOOT_SECONDS
            up = [boot.wait_for("up", deadline) for boot in hosts]
            up += [nic.wait_until_up(deadline) for nic in nics]
            if all(up):
                return hosts[0].exit_code(time.monotonic() + self._args.timeout + 15)
            consoles = [machine.console() for machine in (*hosts, *nics)]
            print(f"stand: up: {up}", *consoles, sep="\n", file=sys.stderr)
            return None

    def _targets(self, hosts: list[vm.Boot], nics: list[Nic]) -> dict[str, Callable[[str], str]]:
        targets: dict[str, Callable[[str], str]] = {}
        for number, nic in enumerate(nics):
            targets[f"nic{number}"] = partial(switch, nic.signal, on=nic.on, off=nic.off)
        for number, boot in enumerate(hosts):
            targets[f"host{number}"] = partial(switch, boot.process.send_signal, off=boot.stop)
        if self._middle:
            targets["wire"] = self._middle.mitm.ask
        search = Search(self._folder / "identities", [nic.console for nic in nics])
        machines: dict[str, Machine] = {f"nic{number}": nic for number, nic in enumerate(nics)}
        machines |= {f"host{number}": boot.process for number, boot in enumerate(hosts)}
        targets |= {f"keys-{name}": partial(search.answer, machines[name]) for name in machines}
        return targets

    def _identities(self, kind: str, numbers: Iterable[int]) -> dict[str, bytes]:
        """The files of identities of hosts or NICs."""
        agent = self._args.agent
        wanted = [name for number in numbers for name in identities.names(kind, number, agent)]
        return identities.files(self._folder / "identities", wanted)

    def _host(self, number: int, cables: plan.Cables) -> vm.Boot:
        scratch = self._folder / f"host{number}"
        scratch.mkdir(exist_ok=True)
        numbers = range(plan.NICS) if self._args.hosts == 1 else [number]
        for name, data in self._identities("host", numbers).items():
            file = scratch / identities.SCRATCH / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        command = self._args.command if number == 0 else FAR_HOST
        boot = vm.Boot(command, self._args.timeout, scratch, vm.use_kvm(), self._plug(cables))
        return self._stack.enter_context(boot)

    def _nic(self, number: int) -> Nic:
        cables = plan.nic(number)
        ports = self._plug({name: cables[name] for name in cables if name != "wire"})
        if self._middle:
            ports += plan.options("wire", cables["wire"], self._middle.netdev("wire", number))
        else:
            ports += self._plug({"wire": cables["wire"]})
        if number == 0:
            file = self._folder / "host0/wire.pcap"
            ports += ["-object", f"filter-dump,id=capture,netdev=wire,file={file}"]
        place = identities.ON_NIC.relative_to("/")
        own = {f"{place}/{name}": data for name, data in self._identities("nic", [number]).items()}
        nic = Nic(number, self._firmware, self._folder, ports, own)
        nic.on()
        return self._stack.enter_context(nic)

    def _plug(self, cables: plan.Cables) -> list[str]:
        """QEMU's options for the ports of a machine that starts now. Cables are Unix sockets.

        The machine makes the socket of a cable that no other has yet, and waits for the others. If
        the other machine ends, this one accepts it again; the opposite does not work in QEMU 7.2.
        """
        options = []
        for cable, port in cables.items():
            path = self._folder / cable
            first = cable not in self._laid
            self._laid.add(cable)
            deadline = time.monotonic() + SOCKET_SECONDS
            while not first and not path.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            place = f"addr.type=unix,addr.path={path}"
            netdev = f"stream,id={cable},server={'on' if first else 'off'},{place}"
            options += plan.options(cable, port, netdev)
        return options


def main() -> int:
    parser = argparse.ArgumentParser(description="Hosts with NICs that are other computers.")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=1, help="x86 machines")
    parser.add_argument("--middle", action="store_true", help="a man in the middle of the wire")
    parser.add_argument(
        "--agent", choices=("host", "nic"), default="host", help="place of the agents (control.py)"
    )
    parser.add_argument("--full", action="store_true", help="also the tests that are marked full")
    parser.add_argument("command", nargs="*")
    args = parser.parse_args()
    args.command = args.command or [*TESTS, *([] if args.full else SHORT)]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    vm.write_byte_code()
    try:
        firmware = Firmware.of(FIRMWARE, args.agent == "nic")
        for _ in range(2):
            with tempfile.TemporaryDirectory(prefix="srdma-stand-") as folder:
                code = Stand(args, firmware, Path(folder)).play()
            if code is not None:
                return code
    except machine.VmError as error:
        print(f"stand: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return vm.EXIT_NO_BOOT


if __name__ == "__main__":
    sys.exit(main())
