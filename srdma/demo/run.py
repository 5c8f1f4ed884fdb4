"""The demo: two hosts move data through two NICs; a tap on the wire captures and changes packets.

`Demo.run()` yields the events of the run, among them a `Check` for each claim, verified in memory
and on the wire. The stage (`stage.py`) has the workers and the tap.
"""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from srdma import Connection, Context, RemoteMR, connect
from srdma.demo.stage import HostProcess, Pair, Stage
from srdma.inspect.dissect import Field, dissect, is_srdma
from srdma.keyex.offers import Suite
from srdma.keyex.policy import describe
from srdma.pd import PD

MARKER = b"SRDMA-DEMO-PLAINTEXT-MARKER"
SECRET = MARKER + b": meet at noon"
SIZE = 1 << 20
MESSAGE = 4096
REPEATS = 5
FLIP_FROM_END = 100  # offset from the end of the packet, inside the payload
HOST_A, HOST_B = "spiffe://demo/host-a", "spiffe://demo/host-b"


@dataclass(frozen=True)
class Processes:
    """The processes: name -> pid."""

    pids: dict[str, int]
    device: str


@dataclass(frozen=True)
class Session:
    """The result of the key exchange; seconds: its duration."""

    identity: str
    suite: str
    group: str
    seconds: float


@dataclass(frozen=True)
class Timing:
    """Median duration of some repetitions; size in bytes."""

    what: str
    size: int
    seconds: float


@dataclass(frozen=True)
class Sealed:
    """The fields of one captured packet, and the plaintext of its payload."""

    fields: list[Field]
    plain: bytes


@dataclass(frozen=True)
class Check:
    """A claim, and whether the check passed."""

    claim: str
    held: bool
    detail: str = ""


Event = Processes | Session | Timing | Sealed | Check


class Demo:
    """One run on a stage whose workers run. This process is host A."""

    def __init__(self, stage: Stage, host_b: HostProcess) -> None:
        self._stage = stage
        self._host_b = host_b
        self._text = sample_text(SIZE)

    def run(self) -> Iterator[Event]:
        """Run the demo; yields the events in the order of display."""
        yield Processes(self._stage.pids() | {"host B": self._host_b.pid}, self._stage.device)
        with ExitStack() as stack:
            pd = stack.enter_context(PD(stack.enter_context(Context(self._stage.secure.a))))
            yield from self._secure(pd)
            if self._stage.can_flip:
                yield from self._flipped(pd)
            open_pd = PD(stack.enter_context(Context(self._stage.open.a)))
            yield from self._unprotected(stack.enter_context(open_pd))
        yield from (Check(*claim) for claim in self._stage.claims())

    # Secure transfers ----------------------------------------------------------

    def _secure(self, pd: PD) -> Iterator[Event]:
        start = time.perf_counter()
        with self._connected(pd, self._stage.secure) as (connection, remote):
            took = time.perf_counter() - start
            suite = describe(connection.suite)
            yield Session(connection.identity, suite, connection.group, took)
            yield Check("host B proved its identity", connection.identity == HOST_B)
            yield from self._job(connection, remote)
            yield from self._on_the_wire(connection, remote)

    def _job(self, connection: Connection, remote: RemoteMR) -> Iterator[Event]:
        """WRITE, READ and SEND, each checked and timed."""
        qp, text, host_b = connection.qp, self._text, self._host_b
        digest = hashlib.sha256(text).hexdigest()
        yield Timing("WRITE", SIZE, _median(lambda: qp.write(text, remote)))
        written = host_b.ask("look", offset=0, length=SIZE)["data"]
        yield Check(
            "the memory of host B equals the written data", written == text,
            f"SHA-256 {digest[:16]}",
        )  # fmt: skip
        host_b.ask("fill", offset=0, data=text[::-1])
        yield Timing("READ", SIZE, _median(lambda: qp.read(remote)))
        yield Check("host A read the memory of host B", qp.read(remote) == text[::-1])
        received: list[bytes] = []
        yield Timing("SEND", MESSAGE, _median(lambda: received.append(self._send(connection))))
        right = received == [text[:MESSAGE]] * REPEATS
        yield Check("host B received every message", right, f"{REPEATS} messages")
        yield Timing("WRITE", 32, _median(lambda: qp.write(text[:32], remote)))

    def _send(self, connection: Connection) -> bytes:
        self._host_b.request("recv", size=MESSAGE)
        connection.qp.send(self._text[:MESSAGE])
        received: bytes = self._host_b.answer()["data"]
        return received

    # Checks on the wire ---------------------------------------------------------

    def _on_the_wire(self, connection: Connection, remote: RemoteMR) -> Iterator[Event]:
        tag_len = connection.suite.tag_len
        packets = self._stage.secure.capture()
        connection.qp.write(SECRET, remote)
        last = self._stage.secure.capture()
        sealed = next(p for p in last if len(p) > len(SECRET) and p[0] == 0x0A)
        yield Sealed(dissect(sealed, tag_len, encrypted=True), SECRET)
        packets += last
        valid = sum(is_srdma(packet, tag_len) for packet in packets)
        yield Check(
            "every packet on the wire had a valid Secure Transport Header",
            valid == len(packets) > 0,
            f"{valid} of {len(packets)} packets, {sum(map(len, packets))} bytes",
        )
        yield Check(
            "no packet on the wire contained the plaintext marker",
            not any(MARKER in packet for packet in (*packets, *self._stage.secure.raw())),
            f"marker {MARKER.decode()}",
        )

    def _flipped(self, pd: PD) -> Iterator[Event]:
        """One flipped bit: the packet is refused, and retransmitted with a new packet number."""
        pair = self._stage.secure
        with self._connected(pd, pair) as (connection, remote):
            self._host_b.ask("fill", offset=0, data=bytes(MESSAGE))
            refused = self._host_b.ask("stats")["refused_tag"]
            resent = pd.ctx.stats()["packets_resent"]
            pair.flip(at_least=MESSAGE, at=-FLIP_FROM_END)
            connection.qp.write(self._text[:MESSAGE], remote)
            refused_then = self._host_b.ask("stats")["refused_tag"]
            resent_then = pd.ctx.stats()["packets_resent"]
            memory = self._host_b.ask("look", offset=0, length=MESSAGE)["data"]
        yield Check(
            "NIC B refused the packet with one flipped bit",
            refused_then == refused + 1,
            f"refused_tag {refused} -> {refused_then}",
        )
        yield Check(
            "NIC A retransmitted its data with a new packet number",
            resent_then > resent,
            f"packets_resent {resent} -> {resent_then}",
        )
        yield Check("the memory of host B equals the sent data", memory == self._text[:MESSAGE])

    def _unprotected(self, pd: PD) -> Iterator[Event]:
        """Counter-check without protection: the same search must find the marker."""
        pair = self._stage.open
        with self._connected(pd, pair, level="none") as (connection, remote):
            connection.qp.write(self._text[: 16 * MESSAGE], remote)
            suite = connection.suite
        found = sum(MARKER in packet for packet in (*pair.capture(), *pair.raw()))
        yield Check(
            "without protection (level none) the same search finds the marker",
            found > 0 and suite == Suite(0, 0, 0),
            f"in {found} packets",
        )

    # Connecting -----------------------------------------------------------------

    def _connected(self, pd: PD, pair: Pair, **options: Any) -> _Connected:
        return _Connected(self, pd, pair, options)

    def connect(self, pd: PD, pair: Pair, options: dict[str, Any]) -> Connection:
        """Host B listens and accepts while host A connects."""
        folder = self._stage.identities
        options = {"timeout": self._stage.patience, **options}
        common = {"peer": HOST_A, "identity": str(folder / "host-b"), **options}
        listening = self._host_b.ask("listen", worker=str(pair.b), options=common, size=SIZE)
        self._host_b.request("accept")
        host, port = listening["address"]
        mine = {"peer": HOST_B, "identity": folder / "host-a", **options}
        connection = connect((host, port), pd, **mine)
        self._host_b.answer()
        return connection

    def hang_up(self, connection: Connection) -> None:
        connection.close()
        self._host_b.ask("hang_up")


class _Connected:
    """A connection and host B's region; a context manager that closes both."""

    def __init__(self, demo: Demo, pd: PD, pair: Pair, options: dict[str, Any]) -> None:
        self._demo = demo
        self._connection = demo.connect(pd, pair, options)

    def __enter__(self) -> tuple[Connection, RemoteMR]:
        return self._connection, RemoteMR.from_bytes(self._connection.data)

    def __exit__(self, *_: object) -> None:
        self._demo.hang_up(self._connection)


def sample_text(size: int) -> bytes:
    """Numbered lines of 64 bytes, each with the marker, so that every packet contains it."""
    lines = (
        b"%08d %s %s\n" % (i, MARKER, b"." * (64 - 11 - len(MARKER))) for i in range(size // 64)
    )
    return b"".join(lines)


def _median(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
