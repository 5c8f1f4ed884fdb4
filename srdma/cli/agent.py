"""`srdma agent` and `srdma config`: agents, proxies, their files (agent.md 6, control-link.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from srdma.cli.output import console, print_json
from srdma.errors import LocalError

File = Annotated[Path, typer.Argument(metavar="FILE", help="agent.toml, or proxy.toml.")]


def agent(
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The policy, agent.toml.")
    ] = None,
    proxy: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of --config: proxy.toml, for a worker on another computer.",
        ),
    ] = None,
    key_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write all secrets here, for tests; the policy must allow it."
        ),
    ] = None,
) -> None:
    """Make and renew keys for the programs of this machine, until SIGTERM.

    With --proxy, the agent of a NIC does that, and this process connects programs to it. Audit
    lines, one JSON object each, go to stderr.
    """
    if proxy is not None and config is None and key_log is None:
        from srdma.agent.remote import program as proxy_program
        from srdma.agent.remote.proxy_file import ProxyFile

        proxy_program.run(ProxyFile(proxy))
    elif config is not None and proxy is None:
        from srdma.agent.policy import Policy
        from srdma.agent.program import run

        run(Policy(config), key_log)
    else:
        raise LocalError("give either --config FILE, or --proxy FILE without --key-log")


def check(
    config: File,
    proxy: Annotated[bool, typer.Option("--proxy", help="FILE is that of a proxy.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the file of an agent or a proxy, and the files that it names."""
    found = _proxy_summary(config) if proxy else _policy_summary(config)
    if json:
        print_json(found)
        return
    for what, value in found.items():
        console().print(f"{what:>12}  {value}", markup=False)


def _policy_summary(path: Path) -> dict[str, str]:
    from srdma.agent.policy import Policy

    policy = Policy(path)
    return {"socket": str(policy.socket), "worker": str(policy.worker), **policy.summary()}


def _proxy_summary(path: Path) -> dict[str, str]:
    from srdma.agent.remote.proxy_file import ProxyFile

    return ProxyFile(path).summary()
