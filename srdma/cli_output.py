"""What subcommands print: for people on a terminal, or JSON for machines."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.markup import escape


def console(*, quiet: bool = False) -> Console:
    """Standard output; colours only on a terminal, nothing if quiet (JSON comes instead)."""
    return Console(soft_wrap=True, highlight=False, quiet=quiet)


def complain(text: str) -> None:
    """One line of what went wrong, on standard error."""
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"[bold red]srdma:[/] {escape(text)}"
    )


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2), flush=True)
