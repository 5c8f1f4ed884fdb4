"""A host of test_key_places.py: one PD, one connection, and all control messages of its process.

    python -m tests.e2e.key_host

Requests on stdin (_engine/frames.py): open (worker, agent) -> token, region; serve (options) ->
address; accept; connect (address, options); grant (offset, length) -> token; use (token) writes,
reads and sends through it; recv; end -> eid, qpn of its QP; rotate; rekey; messages -> all messages
to and from the worker.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import srdma
from srdma import Access, Capability, Right
from srdma.control import Control
from srdma.demo.host import WAIT, HostB, main

REGION = 64 << 10
BLOCK = 4096


class Recorded(Control):
    """Records all messages of all connections."""

    messages: list[bytes] = []  # noqa: RUF012

    def _send(self, message: bytearray, *rest: Any) -> None:
        self.messages.append(bytes(message))
        super()._send(message, *rest)

    def _receive(self) -> tuple[bytes, list[int]]:
        data, fds = super()._receive()
        self.messages.append(data)
        return data, fds


class Host(HostB):
    def open(self, worker: str, agent: str = "") -> dict[str, Any]:
        context = self.stack.enter_context(srdma.Context(Path(worker), agent=agent))
        self._pd_ = self.stack.enter_context(srdma.PD(context))
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
        self._region = self._pd_.alloc(REGION, rights, proof=True, block_size=BLOCK)
        return {"token": self._pd_.token, "rkey": self._region.rkey}

    def serve(self, options: dict[str, Any]) -> dict[str, Any]:
        self._listener = srdma.listen(("127.0.0.1", 0), self._pd_, **options)
        return {"address": list(self._listener.address)}

    def connect(self, address: list[Any], options: dict[str, Any]) -> dict[str, Any]:
        self._connection = srdma.connect((address[0], address[1]), self._pd_, **options)
        return {}

    def grant(self, offset: int, length: int) -> dict[str, Any]:
        rights = Right.READ | Right.WRITE
        return {"token": self._region.capability(offset, length, rights=rights).to_bytes()}

    def use(self, token: bytes) -> dict[str, Any]:
        capability, qp = Capability.from_bytes(token), self._connection.qp
        data = bytes(range(256)) * (capability.length // 256)
        qp.write(data, capability, timeout=WAIT)
        qp.send(b"done", timeout=WAIT)
        return {"right": qp.read(capability, timeout=WAIT) == data}

    def end(self) -> dict[str, Any]:
        info = self._connection.qp.info
        return {"eid": info.eid, "qpn": info.qpn}

    def rekey(self) -> dict[str, Any]:
        self._connection.rekey(WAIT)
        return {}

    def rotate(self) -> dict[str, Any]:
        return {"serial": self._pd_.rotate(WAIT)}

    def messages(self) -> dict[str, Any]:
        return {"messages": Recorded.messages}


if __name__ == "__main__":
    sys.modules["srdma.context"].Control = Recorded  # type: ignore[attr-defined]
    sys.exit(main(Host()))
