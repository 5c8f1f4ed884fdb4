"""`srdma verify-wire`: says whether every packet of a wire was protected (docs/verify-wire.md)."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from srdma.cli.output import complain, console, print_json
from srdma.errors import IntegrityError, LocalError

if TYPE_CHECKING:
    from srdma.inspect.keys import KeyLog
    from srdma.inspect.proof import Proof
    from srdma.inspect.watch import Source

FAILED = 1  # exit code
PROGRESS = 10.0  # seconds between two lines on a long run
SHOWN_QPNS = 20


@dataclass(frozen=True)
class Where:
    """Options: the wire."""

    interface: Annotated[
        str | None,
        typer.Option("--interface", "-i", metavar="NETDEV", help="Watch a device. Needs root."),
    ] = None
    pcap: Annotated[
        Path | None, typer.Option("--pcap", metavar="FILE", help="Read a pcap or pcapng file.")
    ] = None
    tap: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER/NAME",
            help="Join two workers on shared memory, and watch: give it for each of the two.",
        ),
    ] = None
    port: Annotated[
        list[int] | None,
        typer.Option(
            metavar="PORT", help="UDP port of the wire. May be repeated.  [default: 4791]"
        ),
    ] = None


@dataclass(frozen=True)
class Limits:
    """Options: the end of a capture."""

    duration: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after this time.")
    ] = None
    count: Annotated[
        int | None, typer.Option(metavar="PACKETS", help="Stop after this number of packets.")
    ] = None


def verify_wire(
    where: Where,
    limits: Limits,
    key_log: Annotated[
        list[Path] | None,
        typer.Option(
            "--key-log", metavar="FILE", help="Verify tags by the key log of an agent. Repeatable."
        ),
    ] = None,
    allow_header: Annotated[
        bool, typer.Option("--allow-header", help="Accept payload at level header.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Watch a wire, and say which packets were protected.

    It counts packets with a Secure Transport Header, plain packets, and frames that carry no data.
    With the key logs of both agents it verifies each tag. The exit code is 0 only if at least one
    packet was seen, and all were protected; 1 if not; 6 if a tag was wrong.
    """
    _check(where.port or (), limits)
    with ExitStack() as stack:
        keys = _keys(stack, key_log or [])
        report, broken = _judged(where, limits, keys, allow_header=allow_header, quiet=json)
    if json:
        print_json(report)
    else:
        Show(console()).report(report)
    if broken:
        raise LocalError(f"{where.pcap}: {broken}")
    return _code(report)


def _keys(stack: ExitStack, paths: list[Path]) -> KeyLog | None:
    from srdma.agent.harden import harden
    from srdma.inspect.keys import KeyLog

    if not paths:
        return None
    harden()  # no core dump has the secrets
    keys = stack.enter_context(closing(KeyLog(paths)))
    for warning in keys.warnings:
        complain(f"warning: {warning}")
    return keys


def _judged(
    where: Where, limits: Limits, keys: KeyLog | None, *, allow_header: bool, quiet: bool
) -> tuple[dict[str, Any], str]:
    """The report, and the error of a file that cannot be read to its end."""
    from srdma.inspect.capture_file import CaptureError
    from srdma.inspect.proof import Proof
    from srdma.inspect.roce import PORT
    from srdma.inspect.watch import Until, watch

    broken = ""
    with (
        closing(Proof(keys, where.port or (PORT,), allow_header)) as proof,
        closing(_source(where.interface, where.pcap, where.tap or [])) as source,
    ):
        progress = Progress(live=source.live, quiet=quiet)
        try:
            watch(source, proof, Until(limits.duration, limits.count), progress)
        except CaptureError as error:
            proof.finish()
            broken = str(error)
        report = proof.report()
    if broken:
        report["protected"] = False
        report["faults"].append(broken)
    return report, broken


def _code(report: dict[str, Any]) -> int:
    if report["protected"]:
        return 0
    if report["tags"] and report["tags"]["wrong"]:
        raise IntegrityError("not all packets are protected: a tag is wrong")
    return FAILED


def _check(ports: Iterable[int], limits: Limits) -> None:
    duration, count = limits.duration, limits.count
    for port in ports:
        if not 0 < port <= 65_535:
            raise LocalError(f"--port {port}: give a number from 1 to 65535")
    if duration is not None and not 0 < duration < float("inf"):
        raise LocalError(f"--duration {duration}: give a number of seconds above 0")
    if count is not None and count < 1:
        raise LocalError(f"--count {count}: give a number of packets above 0")


def _source(interface: str | None, pcap: Path | None, tap: list[Path]) -> Source:
    from srdma.inspect.watch import Device, File, Tap

    if sum((interface is not None, pcap is not None, bool(tap))) != 1:
        raise LocalError("give one of --interface NETDEV, --pcap FILE, --tap FOLDER/NAME (twice)")
    if interface is not None:
        return Device(interface)
    if pcap is not None:
        return File(pcap)
    if len(tap) != 2:
        raise LocalError(f"{len(tap)} times --tap: give FOLDER/NAME of each of the two workers")
    return Tap(tap[0], tap[1])


class Progress:
    """Says that a live capture runs; prints lines on standard error during a long run."""

    def __init__(self, *, live: bool, quiet: bool) -> None:
        self._live, self._quiet = live, quiet
        self._next = time.monotonic() + PROGRESS

    def begun(self) -> None:
        """Programs that started the command wait for this line, then may send SIGINT."""
        if self._live and self._quiet:
            print_json({"watching": True})
        elif self._live:
            console().print("watching; Ctrl-C ends it and prints the result")

    def batch(self, proof: Proof) -> None:
        if self._quiet or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + PROGRESS
        text = (
            f"{proof.sth:,} packets with an STH, {proof.plain.total():,} plain, {proof.lost:,} lost"
        )
        print(text, file=sys.stderr, flush=True)


class Show:
    """Prints a report as text."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def report(self, report: dict[str, Any]) -> None:
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in report["plain"].items())
        transport = ", ".join(f"{n:,} {kind}" for kind, n in report["transport"].items())
        self._row("with an STH", report["sth"])
        self._row("plain", sum(report["plain"].values()), kinds)
        self._row("transport", sum(report["transport"].values()), transport)
        for name in ("cut", "incomplete", "lost"):
            if report[name]:
                self._row(name, report[name])
        for tag, number in (report["tags"] or {}).items():
            self._row(f"tags {tag}", number)
        if report["tags"] is None:
            self._line("tags were not verified: give --key-log")
        for session in report["sessions"]:
            self._session(session)
        self._qpns(report["qpns"])
        for fault in report["faults"]:
            self._out.print(f"[bold red]fault[/] {fault}")
        good = report["protected"]
        text = "all packets were protected" if good else "NOT all packets were protected"
        self._out.print(f"[bold {'green' if good else 'red'}]{text}[/]")

    def _session(self, session: dict[str, Any]) -> None:
        client, server = (name or "(unknown)" for name in session["identities"])
        tags = ", ".join(f"{n:,} {tag}" for tag, n in session["tags"].items() if n)
        epochs = " and ".join(_ranges(epochs) for epochs in session["epochs"])
        self._line(f"session {client} -> {server}")
        self._line(f"  {session['suite']}; key mode {session['mode']}; epochs {epochs}")
        self._line(f"  QPNs {' and '.join(session['qpns'])}: tags {tags}")

    def _qpns(self, qpns: list[dict[str, Any]]) -> None:
        for row in qpns[:SHOWN_QPNS]:
            bits = ", ".join(str(8 * size) for size in row["tag_lengths"])
            epochs = ", ".join(map(str, row["epoch_bits"]))
            self._line(
                f"to QPN {row['qpn']}: {row['packets']:,} packets, tags of {bits} bits, epochs "
                f"{epochs} (mod 4)"
            )
        if len(qpns) > SHOWN_QPNS:
            self._line(f"and {len(qpns) - SHOWN_QPNS:,} more QPNs: --json lists them")

    def _row(self, name: str, number: int, detail: str = "") -> None:
        self._line(f"{name:<20} {number:>12,}" + (f"  ({detail})" if detail else ""))

    def _line(self, text: str) -> None:
        self._out.print(text, markup=False)


def _ranges(numbers: list[int]) -> str:
    if not numbers:
        return "none"
    first, last = numbers[0], numbers[-1]
    return str(first) if first == last else f"{first} to {last}"
