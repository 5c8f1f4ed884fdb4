"""Options that several subcommands share: dataclasses whose fields are options.

A subcommand takes one parameter annotated with the dataclass; `expanded` replaces it by one option
per field.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from srdma.identity import CA_DAYS, DAYS

Json = Annotated[bool, typer.Option("--json", help="Print JSON lines.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


@dataclass(frozen=True)
class Making:
    """Options of new keys and certificates."""

    days: Annotated[
        float | None,
        typer.Option(help=f"Days of validity  [default: CA {CA_DAYS}, identity {DAYS}]"),
    ] = None
    algorithm: Annotated[str, typer.Option(help="Key algorithm: p256 or ed25519.")] = "p256"
    force: Force = False
    json: Json = False


@dataclass(frozen=True)
class Ends:
    """Options of the local end of a connection, and the permitted peers."""

    identity: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX", help="Files PREFIX.pem, PREFIX.key, and ca.pem in the same folder."
        ),
    ] = None
    peer: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URI",
            help="Permitted identity of the peer; * matches within a segment. May be repeated."
            "  [default: every identity of the CA]",
        ),
    ] = None
    suite: Annotated[
        list[str] | None,
        typer.Option(help="Permitted suites, in order of preference. May be repeated."),
    ] = None
    require: Annotated[
        str, typer.Option(help="Least level of protection, packet or aead: less is refused.")
    ] = ""
    mode: Annotated[
        list[str] | None,
        typer.Option(
            help="Key modes basic, pd, mem, pd+mem, in order of preference. May be repeated."
            "  [default: the client offers basic, the server permits all]"
        ),
    ] = None
    worker: Annotated[
        str | None,
        typer.Option(help="Name or control socket of the worker  [default: $SRDMA_WORKER]"),
    ] = None
    json: Json = False


def expanded(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with one keyword per field of its dataclass parameters."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {
        name: kind for name, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)
    }
    parameters = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += list(_options(groups[parameter.name]))
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [p.replace(kind=keyword) for p in parameters]

    def run(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        return command(**given)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _options(kind: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def _default(field: Field[Any]) -> Any:
    return inspect.Parameter.empty if field.default is MISSING else field.default
