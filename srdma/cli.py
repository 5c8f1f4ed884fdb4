"""The command line: a table of subcommands, and what their failures are called.

A subcommand is a function in a module `cli_*.py`; it returns its exit code or None. What it
raises becomes one line on stderr and an exit code here.
"""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from typing import Any

import typer

from . import (
    cli_bench,
    cli_ca,
    cli_demo,
    cli_doctor,
    cli_kvs,
    cli_peers,
    cli_perf,
    cli_targets,
    cli_transfer,
)
from .cli_options import expanded
from .cli_output import complain
from .errors import DeviceError, Error, IntegrityError, LocalError, RemoteError, Timeout

COMMANDS: dict[str, Callable[..., int | None]] = {
    "demo": cli_demo.demo,
    "recv": cli_transfer.recv,
    "send": cli_transfer.send,
    "doctor": cli_doctor.doctor,
    "perf": cli_perf.perf,
}
CLASSES = {"perf": cli_perf.Command}
GROUPS: dict[str, tuple[str, dict[str, Callable[..., int | None]]]] = {
    "bench": (
        "Measure, keep the results, and show them.",
        {
            "machine": cli_bench.machine,
            "kvs": cli_kvs.kvs,
            "peers": cli_peers.peers,
            "paper": cli_bench.paper,
            "targets": cli_targets.targets,
            "waiting": cli_bench.waiting,
        },
    ),
    "ca": (
        "Make a certificate authority, and identities.",
        {"init": cli_ca.init, "issue": cli_ca.issue},
    ),
}

FAILED, LOCAL, REMOTE, DEVICE, INTEGRITY, TIMEOUT, INTERRUPTED = 1, 3, 4, 5, 6, 7, 130
EXIT_CODES = (
    (Timeout, TIMEOUT),
    (IntegrityError, INTEGRITY),
    (RemoteError, REMOTE),
    (DeviceError, DEVICE),
    (LocalError, LOCAL),
)
EPILOG = (
    "Exit codes: 0 done; 1 something that was checked did not hold; 2 wrong call; 3 wrong input"
    " or file here; 4 the peer; 5 worker, device or system; 6 identity, key or tag; 7 too late;"
    " 130 Ctrl-C."
)


def exit_code(error: Exception) -> int:
    """Whose fault it was."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """The command with its failures named."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs) or 0
        except KeyboardInterrupt:
            complain("interrupted")
            code = INTERRUPTED
        except Error as error:
            complain(str(error))
            code = exit_code(error)
        raise typer.Exit(code)

    return run


def build() -> typer.Typer:
    """The whole command line from the tables."""
    look = {"no_args_is_help": True, "add_completion": False, "rich_markup_mode": None}
    app = typer.Typer(
        name="srdma",
        help="Secure reliable connections for RDMA.",
        epilog=EPILOG,
        pretty_exceptions_enable=False,
        **look,  # type: ignore[arg-type]
    )
    for name, command in COMMANDS.items():
        app.command(name, cls=CLASSES.get(name))(guarded(expanded(command)))
    for name, (text, commands) in GROUPS.items():
        group = typer.Typer(help=text, **look)  # type: ignore[arg-type]
        for sub, command in commands.items():
            group.command(sub)(guarded(expanded(command)))
        app.add_typer(group, name=name)
    return app


def main() -> None:
    """The program `srdma`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    build()()
