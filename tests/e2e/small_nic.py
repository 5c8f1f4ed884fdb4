"""A NIC without Python for tests: srdma-control, and `srdma agent --proxy` with `forward` on the
host."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srdma.agent.remote.link import Type
from srdma.control import Control
from srdma.identity import Credentials
from tests.control_players import HELLO, RawPeer
from tests.daemon import BINARY, until
from tests.e2e.conftest import WAIT
from tests.e2e.nic import LEFT, NIC, Proxy
from tests.ports import free_port

CONTROL = BINARY.with_name("srdma-control")
FORWARD = """forward = "{forward}"
worker = "{worker}"
processes = {processes}
nic = "127.0.0.1:{port}"
control = "{name}"
peer = "{peer}"
"""


def run(*options: str | Path) -> subprocess.CompletedProcess[str]:
    """Run srdma-control until it ends."""
    return subprocess.run([CONTROL, *options], capture_output=True, text=True, timeout=WAIT)


def options_of(folder: Path, worker: Path, port: int) -> list[str | Path]:
    """The options of srdma-control, with the files of make_files()."""
    options: list[str | Path] = ["--listen", f"127.0.0.1:{port}", "--control", worker]
    options += ["--cert", folder / "nic.pem", "--key", folder / "nic.key"]
    return [*options, "--ca", folder / "ca.pem", "--peer", LEFT]


@dataclass
class SmallNic:
    """The NIC of a worker. more: further options. user: of srdma-control; None: that of this
    process."""

    folder: Path
    worker: Path
    undo: contextlib.ExitStack
    more: tuple[str | Path, ...] = ()
    user: int | None = None
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] = field(init=False)

    @property
    def errors(self) -> Path:
        return self.folder / "control.err"

    def start(self) -> None:
        options = options_of(self.folder, self.worker, self.port)
        with self.errors.open("wb") as errors:
            command = [CONTROL, *options, *self.more]
            self.process = subprocess.Popen(command, stderr=errors, user=self.user)
        self.undo.callback(self.stop)
        until(lambda: self.log("started"))

    def log(self, event: str) -> list[dict[str, Any]]:
        """The log lines of this event."""
        lines = map(json.loads, self.errors.read_text().splitlines())
        return [line for line in lines if line["event"] == event]

    def said(self, event: str) -> dict[str, Any]:
        """The first log line of this event, for which it waits."""
        until(lambda: self.log(event))
        return self.log(event)[0]

    def stop(self) -> None:
        """SIGTERM ends it."""
        self.process.terminate()
        assert self.process.wait(WAIT) == 0, self.errors.read_text()

    def proxy(
        self, name: str = "left", *, peer: str = NIC, processes: int = 1, file: str = "proxy"
    ) -> Proxy:
        """The proxy of the host, with the files of this name. Its socket stands for the worker."""
        path, forward = self.folder / f"{file}.toml", self.folder / f"{file}.ctl"
        path.write_text(
            FORWARD.format(
                forward=forward, worker=self.worker, processes=processes, port=self.port, name=name,
                peer=peer,
            )
        )  # fmt: skip
        proxy = Proxy(path, forward, None)  # type: ignore[arg-type]
        proxy.start()
        self.undo.callback(lambda: proxy.process.poll() is None and proxy.kill())
        return proxy

    def connect(self, proxy: Proxy) -> Control:
        """A connection to the worker, of a program on the host."""
        return self.undo.enter_context(contextlib.closing(Control.connect(proxy.socket, WAIT)))

    def tcp(self, receive: int = 0) -> socket.socket:
        """A connection. receive: bytes of its receive buffer; 0: as the kernel chooses."""
        sock = self.undo.enter_context(socket.socket())
        if receive:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
        sock.settimeout(WAIT)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def peer(self, name: str = "left", receive: int = 0) -> RawPeer:
        """A proxy that sends any frames. Its handshake is complete."""
        peer = RawPeer(self.tcp(receive), "client", Credentials.named(self.folder / name))
        peer.handshake()
        return peer

    def greeted(self, receive: int = 0) -> RawPeer:
        """A proxy that sends any frames, after both HELLOs.

        A proxy that reads nothing needs a small receive buffer. With a large one the kernel (6.18)
        drops segments once their memory exceeds it, and with them the acknowledgements of what the
        proxy sends, so that neither end sends any more."""
        peer = self.peer(receive=receive)
        assert peer.take()[:2] == (0, Type.HELLO)
        peer.frame(0, Type.HELLO, HELLO)
        return peer

    @property
    def opening(self) -> dict[str, Any]:
        """OPEN of a stream to the worker."""
        return {"to": "worker", "uid": 0, "path": os.fspath(self.worker)}


@contextlib.contextmanager
def small_nic(
    folder: Path, worker: Path, *more: str | Path, user: int | None = None
) -> Iterator[SmallNic]:
    """The folder has the files of make_files()."""
    with contextlib.ExitStack() as undo:
        nic = SmallNic(folder, worker, undo, more, user)
        nic.start()
        yield nic
