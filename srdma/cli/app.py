"""The command line: the table of commands, and the exit codes of their failures.

A command is a function that returns its exit code, or None for 0. This module turns an exception
of a command into one line on stderr and an exit code. Other packages add commands by entry points
of the group `srdma.commands`; each names a Command or a Group (commands.py).
"""

from __future__ import annotations

import functools
import signal
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import typer

from srdma.cli import agent, ca, demo, doctor, run, stats, transfer, verify_wire
from srdma.cli.commands import Command, Group, Run
from srdma.cli.options import expanded
from srdma.cli.output import complain
from srdma.errors import DeviceError, Error, IntegrityError, LocalError, RemoteError, Timeout

ENTRY_POINTS = "srdma.commands"
COMMANDS: dict[str, Command | Group] = {
    "demo": Command(demo.demo),
    "recv": Command(transfer.recv),
    "send": Command(transfer.send),
    "run": Command(run.run),
    "verify-wire": Command(verify_wire.verify_wire),
    "doctor": Command(doctor.doctor),
    "stats": Command(stats.stats),
    "agent": Command(agent.agent),
    "config": Group("The policy of an agent.", {"check": agent.check}),
    "ca": Group(
        "Create a certificate authority and issue identities.",
        {"init": ca.init, "issue": ca.issue},
    ),
}
# Commands of other packages, and how to install those. The help lists them in any case.
BENCH = (
    "install the package srdma-bench "
    "(pip install 'srdma[bench]', in a source tree: .ci/setup bench && make native)"
)
ATTACK = (
    "install the package srdma-attack "
    "(in a source tree only: .venv/bin/pip install --no-build-isolation -e ./attack && make attack)"
)
OF_PACKAGES = {"perf": BENCH, "bench": BENCH, "attack": ATTACK}

FAILED, LOCAL, REMOTE, DEVICE, INTEGRITY, TIMEOUT, INTERRUPTED = 1, 3, 4, 5, 6, 7, 130
EXIT_CODES = (
    (Timeout, TIMEOUT),
    (IntegrityError, INTEGRITY),
    (RemoteError, REMOTE),
    (DeviceError, DEVICE),
    (LocalError, LOCAL),
)
EPILOG = (
    "Exit codes: 0 success; 1 a check failed; 2 wrong arguments; 3 wrong local input or file;"
    " 4 error of the peer; 5 error of worker, device or system; 6 identity, key or tag wrong;"
    " 7 time-out; 130 Ctrl-C."
)


def exit_code(error: Exception) -> int:
    """The exit code for an exception."""
    return next((code for kind, code in EXIT_CODES if isinstance(error, kind)), FAILED)


def guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """The command, with its exceptions turned into a line on stderr and an exit code."""

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


def missing(name: str, cause: str) -> Run:
    """A command that prints how to install the package that provides it."""

    def run() -> None:
        how = OF_PACKAGES.get(name, "install the package that provides it again")
        raise LocalError(f"srdma {name} is not available: {cause}: {how}")

    run.__doc__ = f"Not available: {cause}."
    return run


def commands() -> dict[str, Command | Group]:
    """The commands of this package and of installed packages, by name."""
    found = dict(COMMANDS)
    for name in OF_PACKAGES:
        found[name] = Command(missing(name, "its package is not installed"), accept_any=True)
    for point in entry_points(group=ENTRY_POINTS):
        try:
            found[point.name] = point.load()
        except ImportError as error:
            found[point.name] = Command(missing(point.name, str(error)), accept_any=True)
    return found


def build() -> typer.Typer:
    """Build the command line from the tables."""
    look = {"no_args_is_help": True, "add_completion": False, "rich_markup_mode": None}
    app = typer.Typer(
        name="srdma",
        help="RDMA over reliable connections, authenticated and encrypted packet by packet.",
        epilog=EPILOG,
        pretty_exceptions_enable=False,
        **look,  # type: ignore[arg-type]
    )
    for name, entry in commands().items():
        if isinstance(entry, Command):
            accept = {
                "ignore_unknown_options": entry.accept_any,
                "allow_extra_args": entry.accept_any,
            }
            command = guarded(expanded(entry.run))
            app.command(name, cls=entry.cls, context_settings=accept)(command)
            continue
        group = typer.Typer(help=entry.help, **look)  # type: ignore[arg-type]
        for sub, command_run in entry.commands.items():
            group.command(sub)(guarded(expanded(command_run)))
        app.add_typer(group, name=name)
    return app


def main() -> None:
    """The program `srdma`."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    build()()
