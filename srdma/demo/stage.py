"""The stage of the demo: workers, tap and host B, each a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from srdma._engine.frames import read_frame, write_frame
from srdma.embedded import STOP_TIMEOUT, Embedded, spawn, stop
from srdma.errors import DeviceError
from srdma.identity import create_ca, issue
from srdma.inspect.tap import LEFT, TapProcess

HOST_TIMEOUT = 120.0  # seconds for a result of host B; emulated machines are slow

Claim = tuple[str, bool, str]  # claim, whether the check passed, detail


class Pair(Protocol):
    """Two workers, and a capture of their wire."""

    @property
    def a(self) -> Path:
        """Control socket of NIC A."""

    @property
    def b(self) -> Path:
        """Control socket of NIC B."""

    def capture(self) -> list[bytes]:
        """Every srdma packet since the last call."""

    def raw(self) -> Sequence[bytes]:
        """All frames so far, if frames contain more than srdma packets; else empty."""

    def flip(self, *, at_least: int, at: int) -> None:
        """Flip a bit of byte `at` of NIC A's next packet with at least `at_least` bytes."""


class Stage(Protocol):
    """Two pairs of workers: `secure` refuses level none, `open` permits it."""

    @property
    def device(self) -> str: ...
    @property
    def can_flip(self) -> bool: ...
    @property
    def patience(self) -> float:
        """Seconds that a connection may take."""

    @property
    def secure(self) -> Pair: ...
    @property
    def open(self) -> Pair: ...
    @property
    def identities(self) -> Path: ...

    def pids(self) -> dict[str, int]:
        """The processes of the secure pair: name -> pid."""

    def claims(self) -> Iterator[Claim]:
        """Further checks of the stage, made at the end of the run."""


class EmbeddedPair:
    """Two embedded NICs in separate wire folders; a tap forwards packets between them."""

    def __init__(self, nics: Embedded, suffix: str, unprotected: bool) -> None:
        names = f"nica{suffix}", f"nicb{suffix}"
        wires = f"a{suffix}", f"b{suffix}"
        folders = nics.wire(wires[0]), nics.wire(wires[1])
        self.tap = TapProcess(folders, names)
        self.workers = [
            nics.start(name, wire=wire, unprotected=unprotected)
            for name, wire in zip(names, wires, strict=True)
        ]
        self.a, self.b = (worker.control for worker in self.workers)

    def capture(self) -> list[bytes]:
        return [packet.data for packet in self.tap.capture()]

    def raw(self) -> Sequence[bytes]:
        return ()

    def flip(self, *, at_least: int, at: int) -> None:
        self.tap.flip(LEFT, at_least=at_least, at=at)


class EmbeddedStage:
    """Workers on shared memory; close() removes all processes and files."""

    device = "embedded"
    can_flip = True
    patience = 30.0

    def __init__(self) -> None:
        with ExitStack() as stack:
            self._nics = stack.enter_context(Embedded())
            self.identities = make_identities(self._nics.folder / "identities")
            self.secure = EmbeddedPair(self._nics, "", unprotected=False)
            stack.callback(self.secure.tap.close)
            self.open = EmbeddedPair(self._nics, "-open", unprotected=True)
            stack.callback(self.open.tap.close)
            for pair in (self.secure, self.open):
                pair.tap.wait_until_up()
            self._stack = stack.pop_all()

    def pids(self) -> dict[str, int]:
        nic_a, nic_b = self.secure.workers
        return {"NIC A": nic_a.pid, "tap": self.secure.tap.pid, "NIC B": nic_b.pid}

    def claims(self) -> Iterator[Claim]:
        return iter(())

    def close(self) -> None:
        self._stack.close()


class FarHost:
    """Host B at the other end of two descriptors, which this does not own."""

    def __init__(self, out: int, into: int, patience: float) -> None:
        """out: takes requests; into: has the answers; patience: seconds for an answer."""
        self._out, self._into, self._patience = out, into, patience

    def request(self, do: str, **arguments: Any) -> None:
        """Send a request; answer() returns its result. Raises DeviceError if host B ended."""
        try:
            write_frame(self._out, {"do": do, **arguments})
        except BrokenPipeError:
            raise DeviceError("host B ended") from None

    def answer(self) -> dict[str, Any]:
        """The result of the last request. Raises DeviceError if it failed or host B ended."""
        answer = read_frame(self._into, self._patience)
        if answer is None:
            raise DeviceError("host B ended")
        if "error" in answer:
            raise DeviceError(f"host B: {answer['error']}")
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its result. Raises DeviceError."""
        self.request(do, **arguments)
        return self.answer()


class HostProcess(FarHost):
    """Host B as a child process: that of the demo, or a module with other requests."""

    def __init__(self, module: str = "srdma.demo.host") -> None:
        self._process = spawn(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdin and self._process.stdout
        out, into = self._process.stdin.fileno(), self._process.stdout.fileno()
        super().__init__(out, into, HOST_TIMEOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_up(self) -> None:
        self.answer()

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            stop(self._process)
        self._process.stdout.close()


def make_identities(folder: Path) -> Path:
    """Create a CA for one run and the certificates of both hosts, all in `folder`."""
    create_ca(folder, "srdma demo", days=1)
    for name in ("host-a", "host-b"):
        issue(folder, f"spiffe://demo/{name}", folder / name)
    return folder
