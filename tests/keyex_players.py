"""Players for tests of the key exchange: the program, and a worker that only answers."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbor2

from srdma.control import Kind
from srdma.identity import Credentials

HEADER = struct.Struct(">HHII")
KEYS = struct.Struct(">IBBBBBB2x8s16sIQIII64s256s32s32s48s")
KEY = struct.Struct(">IBB2x8s16sI")  # QPN, secret size, group, generation, peer
RTS, ERR = 3, 4


class FakeWorker(threading.Thread):
    """Takes KEYS, makes secrets for KEY, and answers WAIT as told.

    `keys` has the bodies taken, `asked` those of KEY, `made` the secrets; refuse: KEYS, or the
    kind of `refuses`.
    """

    def __init__(
        self,
        *,
        state: int = RTS,
        refuse: str = "",
        refuses: Kind = Kind.KEYS,
        silent: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.state, self.refuse, self.refuses, self.silent = state, refuse, refuses, silent
        self.keys: list[tuple[Any, ...]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.made: list[bytes] = []
        self.group_key = os.urandom(48)
        self.start()

    def run(self) -> None:
        while message := self.ours.recv(1024):
            kind, _, tag, _ = HEADER.unpack_from(message)
            body = message[HEADER.size :]
            if kind == Kind.KEYS:
                self.keys.append(KEYS.unpack(body))
            if self.refuse and kind == self.refuses:
                self._answer(kind, tag, 22, self.refuse.encode())
            elif kind == Kind.KEYS:
                self._answer(kind, tag, 0)
            elif kind == Kind.KEY:
                self._answer(kind, tag, 0, self._key(KEY.unpack(body)))
            elif not self.silent:
                assert kind == Kind.WAIT
                self._answer(kind, tag, 0, struct.pack(">II", self.state, 24))

    def _key(self, asked: tuple[Any, ...]) -> bytes:
        self.asked.append(asked)
        self.made.append(os.urandom(asked[1]))
        return self.made[-1].ljust(32, b"\0") + (self.group_key if asked[2] else bytes(48))

    def _answer(self, kind: int, tag: int, status: int, body: bytes = b"") -> None:
        self.ours.send(HEADER.pack(kind, 0, tag, status) + body)

    def close(self) -> None:
        self.ours.shutdown(socket.SHUT_RDWR)
        self.join()
        self.ours.close()
        self.theirs.close()


@dataclass
class Keyex:
    """One `python -m srdma.keyex` with its pipes."""

    config: dict[str, Any]
    tcp: socket.socket
    worker: FakeWorker = field(default_factory=FakeWorker)

    def __post_init__(self) -> None:
        tcp, control = self.tcp.fileno(), self.worker.theirs.fileno()
        options = ["--tcp-fd", str(tcp), "--control-fd", str(control)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "srdma.keyex", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[tcp, control],
        )
        self.tcp.close()
        self.say(cbor2.dumps(self.config))

    def say(self, raw: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(len(raw).to_bytes(4, "big") + raw)
        self.process.stdin.flush()

    def event(self) -> dict[str, Any]:
        assert self.process.stdout
        size = int.from_bytes(self.process.stdout.read(4), "big")
        return cbor2.loads(self.process.stdout.read(size)) if size else {"event": "end"}

    def events(self) -> list[dict[str, Any]]:
        """All up to the end of the program."""
        seen = []
        while (event := self.event())["event"] != "end":
            seen.append(event)
        return seen

    def finish(self) -> int:
        """Ask it to end; its exit code."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.process.stdin.close()
        code = self.process.wait(30)
        self.stderr = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        self.worker.close()
        return code


def config(role: str, credentials: Credentials, **changes: Any) -> dict[str, Any]:
    """A configuration that works, with these changes."""
    qp = {
        "qpn": 0x1234 if role == "client" else 0x5678,
        "eid": os.urandom(16),
        "pn": (1 << 23) + 7,
        "mtu": 4096,
        "window": 64,
        "reads": 16,
        "random": os.urandom(32),
        "wire": "nica" if role == "client" else "nicb",
    }
    values = {
        "role": role,
        "cert": credentials.cert,
        "key": credentials.key,
        "ca": credentials.ca,
        "peer": [],
        "suites": [[1, 3, 16], [7, 3, 16]],
        "modes": [0],
        "group": "",
        "qps": [qp, qp | {"qpn": qp["qpn"] + 1}],
        "data": b"from " + role.encode(),
        "timeout": 20.0,
    }
    return values | changes


def load(folder: Path, name: str) -> Credentials:
    return Credentials.load(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca/ca.pem")
