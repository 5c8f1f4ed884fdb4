"""`srdma run`: a program that uses libibverbs runs over srdma (docs/run.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from srdma.cli.output import console, print_json
from srdma.errors import LocalError

if TYPE_CHECKING:
    from srdma.run_policy import RunPolicy


def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- PROGRAM [ARGS]", help="The program and its arguments."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The policy  [default: $SRDMA_CONFIG, ~/.config/srdma/run.toml]"
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Start nothing: say what a program would get.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="With --check: print JSON.")] = False,
) -> None:
    """Run an unmodified RDMA program: its only device is srdma0, and every packet is protected.

    Without a policy, a worker or an agent the program finds no device.
    """
    from srdma import run_policy

    policy = run_policy.read(config or run_policy.default_path())
    library = run_policy.find_library()
    if check:
        _show(_found(policy, library), json=json)
        return
    if not command:
        raise LocalError("no program: give srdma run -- PROGRAM [ARGS]")
    _execute(command, run_policy.environment(policy, library))


def _execute(command: list[str], environment: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        raise LocalError(f"{command[0]}: {error.strerror}") from None


def _found(policy: RunPolicy, library: Path) -> dict[str, object]:
    """The device and peers of a program. Raises DeviceError without a worker."""
    import srdma
    from srdma import gid as gids

    with srdma.Context(policy.worker, agent=policy.agent) as context:
        gid = context.hello.gid
        if gid == gids.NONE:
            raise LocalError(
                f"the worker {policy.worker} has no GID: start srdma-offload with --gid ADDRESS"
            )
        return {
            "device": "srdma0",
            "gid": gids.text_of(gid),
            "worker": policy.worker,
            "agent": policy.agent,
            "identity": policy.identity,
            "protection": "aead",
            "library": str(library),
            "peers": {where: list(allowed) for where, allowed in policy.peers.items()},
        }


def _show(found: dict[str, object], *, json: bool) -> None:
    if json:
        print_json(found)
        return
    out = console()
    for name, value in found.items():
        lines = (
            [f"{where}  {', '.join(allowed)}" for where, allowed in value.items()]
            if isinstance(value, dict)
            else [value]
        )
        for line in lines:
            out.print(f"{name:>12}  {line}", markup=False)
