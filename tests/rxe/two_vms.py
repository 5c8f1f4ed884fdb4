"""Two virtual machines with real kernel RoCE, and a man in the middle on the cable between them.

    python tests/rxe/two_vms.py [--timeout SECONDS]

The man in the middle (udp_cable.py) first attacks WRITEs of plain RC QPs, which have no protection
(test_plain_roce.py). Then it tampers with one RoCE frame in ten. Other frames, over which the hosts
exchange keys and check the data, pass unchanged. Exit code: that of the tests in machine 0
(tests/rxe/two), 1 if no frame was tampered with, and otherwise as vm.py.
"""

import argparse
import shutil
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from srdma.demo.stage import make_identities  # noqa: E402
from srdma_attack.against_plain.rules import InTurn  # noqa: E402
from tests.e2e.mitm import Faults  # noqa: E402
from tests.rxe import vm  # noqa: E402
from tests.rxe.two import end  # noqa: E402
from tests.rxe.udp_cable import UdpCable  # noqa: E402

FAULTS = Faults(flip=400, drop=300, twice=300)
SEED = 4
COMMANDS = (
    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/rxe/two"],
    [sys.executable, "-m", "tests.rxe.two.host_b"],
)


class Machine(threading.Thread):
    """One of the machines, with its end of the cable."""

    def __init__(self, number: int, folder: Path, cable: UdpCable, timeout: float) -> None:
        super().__init__(daemon=True)
        self._number = number
        self._timeout = timeout
        self._scratch = folder / f"vm{number}"
        shutil.copytree(folder / "identities", self._scratch / "identities")
        self._qemu = [
            f"-netdev {cable.netdev('w', number)}",
            f"-device virtio-net-pci,netdev=w,mac={end.mac(number)}",
        ]
        self.code = vm.EXIT_NO_BOOT

    def run(self) -> None:
        self.code = vm.run(COMMANDS[self._number], self._timeout, self._scratch, self._qemu)


def play(folder: Path, timeout: float) -> int:
    make_identities(folder / "identities")
    rule = InTurn()
    begun = threading.Event()

    def begin() -> None:
        """Tampers, once the attacks on plain QPs are over."""
        if rule.done and not begun.is_set():
            begun.set()
            cable.mitm.faults(FAULTS, SEED)

    with closing(UdpCable(folder, rule, begin)) as cable:
        machines = [Machine(i, folder, cable, timeout) for i in (0, 1)]
        for machine in machines:
            machine.start()
        for machine in machines:
            machine.join()
        count = cable.mitm.count()
    print(f"two VMs: {count}")
    codes = [machine.code for machine in machines]
    if any(codes):
        print(f"two VMs: exit codes {codes}", file=sys.stderr)
    return max(codes) or int(not min(count.packets, count.flip, count.drop, count.twice))


def main() -> int:
    parser = argparse.ArgumentParser(description="Two VMs with rdma_rxe, one cable.")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="srdma-two-") as folder:
        return play(Path(folder), args.timeout)


if __name__ == "__main__":
    sys.exit(main())
