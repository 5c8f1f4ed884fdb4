"""Two virtual machines with real kernel RoCE, and a man in the middle on the cable between them.

    python tests/rxe/two_vms.py [--timeout SECONDS]

The cable carries Ethernet frames as UDP datagrams (QEMU's `-netdev socket`) through
tests/e2e/c/mitm.c, which tampers with one RoCE frame in ten. Other frames, over which the hosts
exchange keys and check the data, pass unchanged. Exit code: that of the tests in machine 0
(tests/rxe/two), 1 if no frame was tampered with, and otherwise as vm.py.
"""

import argparse
import shutil
import socket
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from srdma.demo.stage import make_identities  # noqa: E402
from tests.e2e.mitm import Faults, Mitm, build  # noqa: E402
from tests.rxe import vm  # noqa: E402
from tests.rxe.two import end  # noqa: E402

FAULTS = Faults(flip=400, drop=300, twice=300)
SEED = 4
COMMANDS = (
    [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/rxe/two"],
    [sys.executable, "-m", "tests.rxe.two.host_b"],
)


def free_ports(n: int) -> list[int]:
    """Returns unused UDP ports of 127.0.0.1."""
    with ExitStack() as stack:
        socks = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(n)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [int(sock.getsockname()[1]) for sock in socks]


class Machine(threading.Thread):
    """One of the machines, with its end of the cable."""

    def __init__(self, number: int, folder: Path, ports: list[int], timeout: float) -> None:
        super().__init__(daemon=True)
        self._number = number
        self._timeout = timeout
        self._scratch = folder / f"vm{number}"
        shutil.copytree(folder / "identities", self._scratch / "identities")
        here, there = ports
        self._qemu = [
            f"-netdev socket,id=w,udp=127.0.0.1:{there},localaddr=127.0.0.1:{here}",
            f"-device virtio-net-pci,netdev=w,mac={end.mac(number)}",
        ]
        self.code = vm.EXIT_NO_BOOT

    def run(self) -> None:
        self.code = vm.run(COMMANDS[self._number], self._timeout, self._scratch, self._qemu)


def play(folder: Path, timeout: float) -> int:
    make_identities(folder / "identities")
    ports = free_ports(4)
    cable = [ports[:2], ports[2:]]
    mitm = Mitm([str(build(folder)), "vms", *(str(p) for own, its in cable for p in (its, own))])
    try:
        mitm.faults(FAULTS, SEED)
        machines = [Machine(i, folder, cable[i], timeout) for i in (0, 1)]
        for machine in machines:
            machine.start()
        for machine in machines:
            machine.join()
        count = mitm.count()
    finally:
        mitm.close()
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
