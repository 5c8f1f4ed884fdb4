"""The demo's stage on SoftRoCE: two rxe devices on a veth pair, and a capture of every frame.

Hosts reach their NICs, and the NICs each other, by reliable connections of verbs. There is no tap
between the NICs, so no bit can be flipped here; the embedded stage has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from srdma.demo import rxe
from srdma.demo.stage import Claim, make_identities
from srdma.embedded import Embedded, Worker
from srdma.errors import DeviceError
from srdma.inspect import roce


class Wire:
    """The frames that passed over the veth."""

    def __init__(self, netdev: str) -> None:
        self._sniffer = roce.Sniffer(netdev)
        self.raw: list[bytes] = []

    def forget(self) -> None:
        """Discard all frames so far."""
        self._sniffer.forget()
        self.raw.clear()

    def take(self) -> list[roce.Frame]:
        """The RoCE frames since the last call."""
        new = self._sniffer.take()
        self.raw += new
        return roce.frames(new)

    def close(self) -> None:
        self._sniffer.close()


class RxePair:
    """Two workers, one on each device."""

    def __init__(self, workers: Sequence[Worker], wire: Wire) -> None:
        self.workers = workers
        self.a, self.b = (worker.control for worker in workers)
        self._wire = wire

    def capture(self) -> list[bytes]:
        return roce.messages(self._wire.take())

    def raw(self) -> Sequence[bytes]:
        return self._wire.raw

    def flip(self, *, at_least: int, at: int) -> None:
        raise DeviceError("an rxe wire has no tap that flips bits: use the embedded stage")


class RxeStage:
    """Workers on a pair of rxe devices, which close() removes. Needs root."""

    device = "SoftRoCE (rxe)"
    can_flip = False
    patience = 90.0

    def __init__(self, name: str = "srdma", network: str = "10.77.0") -> None:
        if why := rxe.unavailable():
            raise DeviceError(f"no SoftRoCE here: {why} (`make demo-rxe` uses a VM)")
        with ExitStack() as stack:
            self.ends = stack.enter_context(rxe.pair(name, network))
            self.wire = Wire(self.ends[0].netdev)
            stack.callback(self.wire.close)
            self.nics = stack.enter_context(Embedded())
            self.identities = make_identities(self.nics.folder / "identities")
            self.secure = self._pair("", unprotected=False)
            self.open = self._pair("-open", unprotected=True)
            self._stack = stack.pop_all()

    def _pair(self, suffix: str, *, unprotected: bool) -> RxePair:
        names = (f"nica{suffix}", f"nicb{suffix}")
        workers = [
            self.start(name, end, unprotected=unprotected)
            for name, end in zip(names, self.ends, strict=True)
        ]
        return RxePair(workers, self.wire)

    def start(self, name: str, end: rxe.End, *, unprotected: bool = False) -> Worker:
        """Start a worker at one end, and wait until it answers."""
        options = ["--allow-unprotected"] if unprotected else []
        return self.nics.launch(name, [*worker_options(end), *options])

    def pids(self) -> dict[str, int]:
        nic_a, nic_b = self.secure.workers
        return {"NIC A": nic_a.pid, "NIC B": nic_b.pid}

    def claims(self) -> Iterator[Claim]:
        seen = roce.kinds(roce.frames(self.wire.raw))
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(seen.items()))
        only = set(seen) <= roce.PASSIVE and seen["SEND"] > 0
        yield "the NICs exchanged no RDMA operation other than SEND", only, counts

    def close(self) -> None:
        self._stack.close()


def worker_options(end: rxe.End) -> list[str]:
    """Options of srdma-offload: hosts and wire on that device."""
    device = ["--host-dev", end.device, "--wire-dev", end.device]
    return [*device, "--wire-listen", f"{end.address}:0"]
