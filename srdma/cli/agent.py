"""`srdma agent` and `srdma config`: the system agent and its policy (agent.md 6)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srdma.cli.output import console, print_json

File = Annotated[Path, typer.Argument(metavar="FILE", help="The policy, agent.toml.")]


def agent(
    config: Annotated[Path, typer.Option(metavar="FILE", help="The policy, agent.toml.")],
    key_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write all secrets here, for tests; the policy must allow it."
        ),
    ] = None,
) -> None:
    """Make and renew keys for the programs of this machine, until SIGTERM.

    Audit lines, one JSON object each, go to stderr.
    """
    from srdma.agent.policy import Policy
    from srdma.agent.program import run

    run(Policy(config), key_log)


def check(
    config: File,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a policy and the files that it names."""
    from srdma.agent.policy import Policy

    policy = Policy(config)
    found = {"socket": str(policy.socket), "worker": str(policy.worker), **policy.summary()}
    if json:
        print_json(found)
        return
    for what, value in found.items():
        console().print(f"{what:>12}  {value}", markup=False)
