"""What subcommands print: for people on a terminal, or JSON for machines."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


def console(*, quiet: bool = False) -> Console:
    """Standard output; colours only on a terminal, nothing if quiet (JSON comes instead)."""
    return Console(soft_wrap=True, highlight=False, quiet=quiet)


def complain(text: str) -> None:
    """One line of what went wrong, on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"[bold red]srdma:[/] {escape(text)}"
    )


def print_json(value: Any) -> None:
    """One line."""
    print(json.dumps(value), flush=True)


@contextlib.contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error if that is a terminal; called with (done, all) in bytes."""
    err = Console(stderr=True)
    columns = "[progress.description]{task.description}", BarColumn()
    with Progress(
        *columns, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
        console=err, transient=True, disable=quiet or not err.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(escape(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
