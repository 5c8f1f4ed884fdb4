"""`srdma stats`: counters, accounts and QPs of a running worker (local-interface.md 3.7, 3.10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srdma.cli.output import console, print_json

if TYPE_CHECKING:
    from srdma.control import Control
    from srdma.control.quotas import QPUse, Usage, Use

SECOND = 1e9  # ns


def stats(
    worker: Annotated[
        str | None,
        typer.Option(help="Name or control socket of the worker  [default: $SRDMA_WORKER]"),
    ] = None,
    qps: Annotated[bool, typer.Option("--qps", help="Show each QP too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what programs and peers use of a worker, and its counters.

    For each account: what it has of every resource, what is guaranteed to it, its limit, and how
    often it was refused. Zeros are left out of the text. The worker's own user, its agent's and
    root may ask.
    """
    found = [*_processes(worker, qps=qps)]
    if json:
        print_json(found)
        return
    for process in found:
        for line in _lines(process):
            console().print(line, markup=False)


def _processes(name: str | None, *, qps: bool) -> Iterator[dict[str, Any]]:
    """The answers of each process of the worker."""
    from srdma.control import Control, thread_path
    from srdma.control.sockets import socket_path

    path, number, count = socket_path(name), 0, 1
    while number < count:
        with closing(Control.connect(thread_path(path, number))) as control:
            count = control.hello().threads
            yield {"worker": str(path), "process": number, **_told_by(control, qps=qps)}
        number += 1


def _told_by(control: Control, *, qps: bool) -> dict[str, Any]:
    from srdma.control import quotas
    from srdma.native.leg import counter_names

    counters = zip(counter_names(), control.stats(), strict=False)
    found: dict[str, Any] = {
        "counters": {name: value for name, value in counters if name},
        "accounts": [_account(usage) for usage in quotas.accounts(control)],
    }
    if qps:
        found["qps"] = [_qp(qp) for qp in quotas.qps(control)]
    return found


def _account(usage: Usage) -> dict[str, Any]:
    from srdma.control.quotas import resources_of

    return {
        "kind": usage.kind.name.lower(),
        "name": usage.name,
        "group": usage.group,
        "idle": usage.idle,
        "resources": {name: _use(usage.uses[name]) for name in resources_of(usage.kind)},
        "counters": usage.counts,
    }


def _use(use: Use) -> dict[str, int | None]:
    """limit: None if there is none."""
    from srdma.control.quotas import NO_LIMIT

    return {
        "used": use.used,
        "guaranteed": use.minimum,
        "limit": None if use.limit == NO_LIMIT else use.limit,
        "refused": use.refused,
    }


def _qp(qp: QPUse) -> dict[str, Any]:
    from srdma.wc import reason_name

    return {
        "qpn": qp.qpn,
        "leg": qp.leg,
        "state": qp.state.name,
        "reason": reason_name(qp.reason) if qp.reason else "",
        "idle": qp.idle / SECOND,
        "identity": qp.identity,
        "counters": qp.counts,
    }


# --- text -------------------------------------------------------------------------------


def _lines(process: Mapping[str, Any]) -> Iterator[str]:
    yield f"worker {process['worker']}, process {process['process']}"
    yield from _counters(process["counters"])
    for account in process["accounts"]:
        group = f", in {account['group']}" if account["group"] else ""
        yield f"\n{account['kind']} {account['name']}{group}"
        for name, use in account["resources"].items():
            if use["used"] or use["refused"]:
                yield f"  {name:<18} {_use_text(use)}"
        yield from _counters(account["counters"])
    for qp in process.get("qps", ()):
        reason = f" {qp['reason']}" if qp["reason"] else ""
        peer = qp["identity"] or "no peer yet"
        yield (
            f"\nQP {qp['qpn']:#08x} of leg {qp['leg']}, {qp['state']}{reason}, with {peer}, "
            f"idle for {qp['idle']:.1f} s"
        )
        yield from _counters(qp["counters"])


def _use_text(use: Mapping[str, Any]) -> str:
    limit = "no limit" if use["limit"] is None else f"limit {use['limit']}"
    return f"{use['used']} used, {use['guaranteed']} guaranteed, {limit}, {use['refused']} refused"


def _counters(counters: Mapping[str, int]) -> Iterator[str]:
    for name, value in counters.items():
        if value:
            yield f"  {name:<18} {value}"
