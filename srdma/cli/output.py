"""Output of the subcommands: text for a terminal, or JSON for programs."""

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
    """Standard output, with colours on a terminal only. quiet: prints nothing (JSON is printed)."""
    return Console(soft_wrap=True, highlight=False, quiet=quiet)


def complain(text: str) -> None:
    """Print one line with an error to standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"[bold red]srdma:[/] {escape(text)}"
    )


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, and flush."""
    print(json.dumps(value), flush=True)


@contextlib.contextmanager
def progress_bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error if that is a terminal.

    Yields a function to be called with (bytes done, total bytes).
    """
    err = Console(stderr=True)
    columns = "[progress.description]{task.description}", BarColumn()
    with Progress(
        *columns, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(),
        console=err, transient=True, disable=quiet or not err.is_terminal,
    ) as bar:  # fmt: skip
        task = bar.add_task(escape(what), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
