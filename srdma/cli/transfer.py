"""`srdma send` and `srdma recv`: one file from host to host over a secure connection."""

from __future__ import annotations

import json as jsonlib
import subprocess
import sys
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from srdma.cli.options import Ends
from srdma.cli.output import console, print_json, progress_bar
from srdma.embedded import STOP_TIMEOUT, Embedded, spawn, stop
from srdma.errors import LocalError, RemoteError

if TYPE_CHECKING:
    from srdma.connection import Connection
    from srdma.mr import MR
    from srdma.pd import PD

Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def recv(
    end: Ends,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen at.")
    ] = "0.0.0.0:4433",
    out: Annotated[Path, typer.Option(help="Folder, or new name of the file.")] = Path(),
    force: Force = False,
    max_size: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="BYTES", help="Refuse a larger file, before any of it is written."
        ),
    ] = None,
) -> None:
    """Receive one file. An incomplete file is deleted."""
    from srdma import connection
    from srdma.cli import files
    from srdma.mr import Access

    options = end_options(end)
    with ExitStack() as stack:
        pd = open_worker(stack, end.worker)
        regions: list[MR] = []

        def offer(there: Connection) -> bytes:
            access = Access.LOCAL_WRITE | Access.REMOTE_WRITE
            regions.append(pd.alloc(files.REGION, access, scope=there.qp))
            return regions[-1].remote().to_bytes()

        listener = stack.enter_context(
            connection.listen(_address(listen), pd, data=offer, **options)
        )
        host, port = listener.address
        _tell(end.json, {"listening": f"{host}:{port}"}, f"listening at {host}:{port}")
        there = stack.enter_context(listener.accept())
        receiver = files.Receiver(there.qp, pd, regions[-1])
        _describe(end.json, there)
        with progress_bar("receiving", quiet=end.json) as progress:
            path, digest = receiver.receive(out, force=force, most=max_size, progress=progress)
        _tell(end.json, {"file": str(path), "sha256": digest}, f"{path}\nSHA-256 {digest}")


def send(
    file: Annotated[Path, typer.Argument(help="The file to send.")],
    end: Ends,
    to: Annotated[
        str | None, typer.Argument(metavar="[HOST:PORT]", help="Address of srdma recv.")
    ] = None,
    embedded: Annotated[
        bool,
        typer.Option("--embedded", help="Start two workers and a receiver on this machine."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --embedded: folder or new name of the copy.")
    ] = None,
    force: Force = False,
) -> None:
    """Send a file to `srdma recv`. Both ends compare its SHA-256."""
    if not file.is_file():
        raise LocalError(f"{file} is not a regular file that can be read")
    if embedded:
        if out is None or to is not None:
            raise LocalError("--embedded sends to this machine: give --out and no HOST:PORT")
        _send_embedded(file, out, end, force)
        return
    if out is not None or force:
        raise LocalError("--out and --force need --embedded: else give them to srdma recv")
    if to is None:
        raise LocalError("no address: give the HOST:PORT of srdma recv, or --embedded --out DIR")
    _send(file, to, end)


def _send(file: Path, to: str, end: Ends) -> None:
    from srdma import connection
    from srdma.cli import files
    from srdma.mr import RemoteMR

    options = end_options(end)
    with ExitStack() as stack:
        pd = open_worker(stack, end.worker)
        there = stack.enter_context(connection.connect(_address(to), pd, **options))
        _describe(end.json, there)
        sender = files.Sender(there.qp, pd, RemoteMR.from_bytes(there.data))
        with progress_bar(file.name, quiet=end.json) as progress:
            digest = sender.send(file, progress)
        _tell(
            end.json,
            {"sent": str(file), "sha256": digest},
            f"{file} was sent\nSHA-256 {digest}, equal at both ends",
        )


def _send_embedded(file: Path, out: Path, end: Ends, force: bool) -> None:
    """Two workers, a receiver as a child process, and this process as the sender."""
    from srdma.demo.stage import make_identities

    if end.identity or end.peer or end.worker:
        raise LocalError(
            "--embedded creates workers and identities: omit --identity, --peer and --worker"
        )
    with Embedded() as nics:
        folder = make_identities(nics.folder / "identities")
        nic_a, nic_b = nics.start("nica"), nics.start("nicb")
        command = [sys.executable, "-m", "srdma", "recv", "--json", "--listen", "127.0.0.1:0"]
        command += ["--identity", str(folder / "host-b"), "--worker", str(nic_b.control)]
        command += ["--peer", "spiffe://demo/host-a"]
        command += ["--out", str(out.absolute()), *(["--force"] if force else [])]
        mine = replace(
            end,
            identity=folder / "host-a",
            peer=["spiffe://demo/host-b"],
            worker=str(nic_a.control),
        )
        with closing(ReceiverProcess(command)) as receiver:
            to = receiver.line()["listening"]
            try:
                _send(file, to, mine)
            finally:
                receiver.finish()


class ReceiverProcess:
    """A command with --json, such as `srdma recv`, as a child process."""

    def __init__(self, command: list[str]) -> None:
        self._process = spawn(command, stdout=subprocess.PIPE)

    def line(self) -> dict[str, Any]:
        """The next line of its output, decoded. Raises RemoteError if the process ended."""
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RemoteError(f"the receiver ended with code {self._process.wait()}")
        return dict(jsonlib.loads(line))

    def finish(self) -> None:
        """Wait for its end, which follows the end of the connection; stop it after a time-out."""
        try:
            self._process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            stop(self._process)

    def close(self) -> None:
        stop(self._process)
        assert self._process.stdout
        self._process.stdout.close()


def end_options(end: Ends) -> dict[str, Any]:
    """Keywords of connect() and listen(). Raises LocalError without --identity."""
    if end.identity is None:
        raise LocalError("no identity: give --identity PREFIX (srdma ca issue creates one)")
    return {
        "identity": end.identity,
        "peer": end.peer or (),
        "suites": end.suite or (),
        "mode": end.mode or (),
        "require": end.require,
    }


def open_worker(stack: ExitStack, worker: str | None, ring: int = 4096) -> PD:
    """A PD of a worker, closed with the stack. ring: entries of its completion ring."""
    from srdma.context import Context
    from srdma.pd import PD

    return stack.enter_context(PD(stack.enter_context(Context(worker)), ring))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise LocalError(f"{text!r} is not an address: give HOST:PORT, such as 192.0.2.1:4433")
    return host.strip("[]") or "0.0.0.0", int(port)


def _describe(json: bool, connection: Connection) -> None:
    from srdma.keyex.policy import describe

    suite, mode = describe(connection.suite), connection.mode
    _tell(
        json,
        {"peer": connection.identity, "suite": suite, "mode": mode, "group": connection.group},
        f"{connection.identity}: {suite}, key mode {mode}, key exchange {connection.group}",
    )


def _tell(json: bool, values: dict[str, Any], text: str) -> None:
    if json:
        print_json(values)
    else:
        console().print(text, markup=False)
