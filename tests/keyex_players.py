"""Players for tests of the key exchange: the program, and a worker that only responds."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cbor2

from srdma.control import Kind
from srdma.identity import Credentials

HEADER = struct.Struct(">HHII")
KEYS = struct.Struct(">IBBBBBB2x8s16sIQIII64s256s32s32s48s")
KEY = struct.Struct(">IBB2x8s16sI")  # QPN, secret size, group, generation, peer
REKEY = struct.Struct(">IBB2x32s")
BUSY = 16
RTS, ERR = 3, 4


class FakeWorker(threading.Thread):
    """Takes KEYS and REKEY, makes secrets for KEY, and answers WAIT as configured.

    Records: `keys`, the bodies of KEYS; `asked`, the bodies of KEY; `made`, the secrets; `rekeys`,
    the bodies of REKEY; `rotations`, the ages of ROTATE; `expired`, QPs; `ended`, QPs and reasons
    of END. refuse: text with which it refuses requests of the kind `refuses`, KEYS by default.
    busy: direction -> number of REKEYs refused first (EBUSY).
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
        self.status = 22  # of refused requests
        self.rekeys: list[tuple[Any, ...]] = []
        self.times: list[float] = []  # of the rekeys
        self.rotations: list[int] = []
        self.expired: list[int] = []
        self.ended: list[tuple[int, ...]] = []
        self.busy: dict[int, int] = {}
        self.start()

    def run(self) -> None:
        while message := self.ours.recv(1024):
            kind, _, tag, _ = HEADER.unpack_from(message)
            body = message[HEADER.size :]
            if kind == Kind.KEYS:
                self.keys.append(KEYS.unpack(body))
            if self.refuse and kind == self.refuses:
                self._answer(kind, tag, self.status, self.refuse.encode())
            elif not self.silent or kind != Kind.WAIT:
                self._answer(kind, tag, *self._do(Kind(kind), body))

    def _do(self, kind: Kind, body: bytes) -> tuple[int, bytes]:
        match kind:
            case Kind.KEY:
                return 0, self._key(KEY.unpack(body))
            case Kind.WAIT:
                return 0, struct.pack(">II", self.state, 24)
            case Kind.REKEY:
                return self._rekey(REKEY.unpack(body)), b""
            case Kind.ROTATE:
                self.rotations.append(struct.unpack(">II", body)[1])
                return 0, struct.pack(">II", len(self.rotations), 0)
            case Kind.EXPIRE:
                self.expired.append(*struct.unpack(">I", body))
            case Kind.END:
                self.ended.append(struct.unpack(">II", body))
        return 0, b""

    def _rekey(self, body: tuple[Any, ...]) -> int:
        if self.busy.get(body[1], 0):
            self.busy[body[1]] -= 1
            return BUSY
        self.rekeys.append(body)
        self.times.append(time.monotonic())
        return 0

    def _key(self, asked: tuple[Any, ...]) -> bytes:
        self.asked.append(asked)
        self.made.append(os.urandom(asked[1]))
        return self.made[-1].ljust(32, b"\0") + (self.group_key if asked[2] else bytes(48))

    def _answer(self, kind: int, tag: int, status: int, body: bytes = b"") -> None:
        with contextlib.suppress(BrokenPipeError):  # a test ended the program
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

    def wish(self, number: int) -> None:
        self.say(cbor2.dumps({"do": "renew", "wish": number}))

    def event(self) -> dict[str, Any]:
        assert self.process.stdout
        size = int.from_bytes(self.process.stdout.read(4), "big")
        return cbor2.loads(self.process.stdout.read(size)) if size else {"event": "end"}

    def events(self) -> list[dict[str, Any]]:
        """Returns all events up to the end of the program."""
        seen = []
        while (event := self.event())["event"] != "end":
            seen.append(event)
        return seen

    def finish(self) -> int:
        """Asks the program to end. Returns its exit code."""
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self.process.stdin.close()
        code = self.process.wait(30)
        self.stderr = self.process.stderr.read()
        self.process.stdout.close()
        self.process.stderr.close()
        self.worker.close()
        return code


@contextlib.contextmanager
def run_pair(
    client: Any, server: Any, workers: dict[str, FakeWorker] | None = None
) -> Iterator[tuple[Keyex, Keyex]]:
    """Runs two programs with these configurations, connected to each other, and ends them."""
    left, right = socket.socketpair()
    pair = (
        Keyex(client, left, (workers or {}).get("client") or FakeWorker()),
        Keyex(server, right, (workers or {}).get("server") or FakeWorker()),
    )
    try:
        yield pair
    finally:
        for one in pair:
            one.finish()
            assert one.stderr == b"", one.stderr.decode()


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
        "leg": 1,
        "qps": [qp, qp | {"qpn": qp["qpn"] + 1}],
        "data": b"from " + role.encode(),
        "timeout": 20.0,
        "every": 0.0,
        "limit": 20.0,
    }
    return values | changes


def load(folder: Path, name: str) -> Credentials:
    return Credentials.load(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca/ca.pem")
