"""Entries of the command line, for the core and for packages that add commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from typer.core import TyperCommand

Run = Callable[..., int | None]


@dataclass(frozen=True)
class Command:
    """`srdma NAME`. accept_any: the command accepts and ignores any arguments."""

    run: Run
    cls: type[TyperCommand] | None = None
    accept_any: bool = False


@dataclass(frozen=True)
class Group:
    """`srdma NAME SUB`."""

    help: str
    commands: dict[str, Run]
