"""`srdma bench`: measurements that are kept and shown (docs/performance.md). What they need is
imported by the commands only."""

from __future__ import annotations

from typing import Annotated

import typer

from .cli_options import Json
from .cli_output import console, print_json

Device = Annotated[str, typer.Option(help="embedded (default) or udp.")]


def machine(device: Device = "embedded", json: Json = False) -> None:
    """What results from here would be of: the machine, the commit, who computes the suites."""
    from .bench.stand import Stand, facts

    with Stand(device) as stand:
        found = facts(device, stand.provider).plain()
    if json:
        print_json(found)
        return
    for name, value in found.items():
        console().print(f"{name:<12} {value}", markup=False)
