"""`srdma demo`: a secure connection on one machine, shown and checked step by step."""

from __future__ import annotations

import itertools
import logging
import os
import time
from contextlib import closing
from dataclasses import asdict, is_dataclass
from typing import Annotated, Any

import typer
from rich.console import Console

from srdma.cli.output import console, print_json
from srdma.errors import LocalError

FAILED = 1
HEX_WIDTH = 16


def demo(
    device: Annotated[str, typer.Option(help="embedded (default) or rxe.")] = "embedded",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    """Run a demo of a secure connection.

    Two hosts do WRITE, READ and SEND over two NICs. A tap on the wire captures the packets and
    flips one bit. The exit code is 0 only if all checks passed.
    """
    from srdma.demo.run import Check, Demo
    from srdma.demo.stage import HostProcess

    start = time.monotonic()
    logging.getLogger("srdma").setLevel(logging.ERROR)  # no warnings of level none: it is intended
    show = Show(console(quiet=json))
    with closing(_stage(device)) as stage, closing(HostProcess()) as host_b:
        host_b.wait_until_up()
        for event in Demo(stage, host_b).run():
            show.event(event)
    checks = [event for event in show.events if isinstance(event, Check)]
    held = all(check.held for check in checks)
    if json:
        print_json({"held": held, "events": [_plain(event) for event in show.events]})
    show.end(sum(check.held for check in checks), len(checks), time.monotonic() - start)
    return 0 if held else FAILED


def _stage(device: str) -> Any:
    if device == "embedded":
        from srdma.demo.stage import EmbeddedStage

        return EmbeddedStage()
    if device == "rxe":
        from srdma.demo.rxe_stage import RxeStage

        return RxeStage()
    raise LocalError(f"--device {device}: give embedded or rxe")


class Show:
    """Prints events as they arrive, and keeps them for JSON."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self.events: list[Any] = []

    def event(self, event: Any) -> None:
        self.events.append(event)
        getattr(self, f"_{type(event).__name__.lower()}")(event)

    def end(self, held: int, checks: int, seconds: float) -> None:
        colour = "green" if held == checks else "red"
        self._out.print(f"\n[bold {colour}]{held} of {checks} checks passed[/], {seconds:.1f} s")

    def _processes(self, event: Any) -> None:
        pids = {"host A": os.getpid(), **event.pids}
        names = ["host A", "NIC A", *(["tap"] if "tap" in pids else []), "NIC B", "host B"]
        boxes = [f"{name:^12}" for name in names]
        numbers = [f"{f'pid {pids[name]}':^12}" for name in names]
        wire = {("NIC A", "tap"), ("tap", "NIC B"), ("NIC A", "NIC B")}
        lines = ["═══" if pair in wire else "───" for pair in itertools.pairwise(names)]
        self._out.print(f"[bold]Processes[/] on the {event.device} NIC:\n")
        for row, joints in ((boxes, lines), (numbers, ["   "] * len(lines))):
            text = row[0] + "".join(j + cell for j, cell in zip(joints, row[1:], strict=True))
            self._out.print("  " + text, markup=False)

    def _session(self, event: Any) -> None:
        self._out.print(
            f"\n[bold]Connected[/] to {event.identity} in {event.seconds * 1000:.0f} ms\n"
            f"  key exchange: TLS 1.3, {event.group}; packets: {event.suite}"
        )

    def _timing(self, event: Any) -> None:
        rate = f", {event.size / event.seconds / 1e6:.0f} MB/s" if event.size > 65_536 else ""
        self._out.print(
            f"  {event.what:<6} {event.size:>8} B  {event.seconds * 1e6:>8.0f} us{rate}"
        )

    def _sealed(self, event: Any) -> None:
        self._out.print(f"\n[bold]One packet on the wire[/], plaintext {event.plain!r}:\n")
        for field in event.fields:
            for at in range(0, len(field.data), HEX_WIDTH):
                name, meaning = (field.name, field.meaning) if at == 0 else ("", "")
                row = field.data[at : at + HEX_WIDTH].hex(" ")
                self._out.print(f"  {name:<19} {row:<47}  {meaning}", markup=False)
        self._out.print()

    def _check(self, event: Any) -> None:
        mark = "[green]passed[/]" if event.held else "[bold red]FAILED[/]"
        detail = f" [dim]({event.detail})[/]" if event.detail else ""
        self._out.print(f"  {mark} {event.claim}{detail}")


def _plain(event: Any) -> dict[str, Any]:
    """An event for JSON: bytes as hex."""
    fields = asdict(event) if is_dataclass(event) and not isinstance(event, type) else {}
    return {"event": type(event).__name__.lower(), **_hex(fields)}


def _hex(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: _hex(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _hex(value._asdict())
    if isinstance(value, list | tuple):
        return [_hex(item) for item in value]
    return value
