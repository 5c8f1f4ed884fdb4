"""Host B of these tests: that of the demo with further requests.

    python -m tests.rxe.inside.host_b

Requests besides those of srdma/demo/host.py: digest (offset, length) -> sha256; digests (pieces)
-> sha256 of each; expect (count, size): receive that many messages; arrived -> sha256 of each, once
all have arrived; message (qp, size) -> data, imm; ended (qp) -> reason, once that QP is in error;
use_agent (path): for the next contexts. If the NIC is another computer, host B listens there.
For test_modes.py, on a separate PD:
modes_open (worker, size) -> token of its leg, remote, capability; modes_qp -> response to INIT of a
new QP; modes_look (offset, length) -> data of both regions; modes_message (size) -> data;
modes_drop.
"""

from __future__ import annotations

import hashlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from srdma import Access, Right
from srdma.demo.host import WAIT, HostB, main
from srdma.qp import SecureQP


class Host(HostB):
    def __init__(self) -> None:
        super().__init__()
        self._thread = self.stack.enter_context(ThreadPoolExecutor(1))

    def use_agent(self, path: str) -> dict[str, Any]:
        os.environ["SRDMA_AGENT"] = path
        return {}

    def listen(
        self, worker: str, options: dict[str, Any], size: int, host: str = "127.0.0.1"
    ) -> dict[str, Any]:
        remote = self._pd(worker).ctx.remote
        return super().listen(worker, options, size, "" if remote else host)

    def digest(self, offset: int, length: int) -> dict[str, Any]:
        return {"sha256": self._sha256(offset, length)}

    def digests(self, pieces: list[list[int]]) -> dict[str, Any]:
        return {"sha256": [self._sha256(offset, length) for offset, length in pieces]}

    def _sha256(self, offset: int, length: int) -> bytes:
        return hashlib.sha256(self._region.buf[offset : offset + length]).digest()

    def expect(self, count: int, size: int) -> dict[str, Any]:
        qp = self._connection.qp

        def take() -> list[bytes]:
            messages = (qp.recv(WAIT, size=size).data for _ in range(count))
            return [hashlib.sha256(message).digest() for message in messages]

        self._messages = self._thread.submit(take)
        return {}

    def arrived(self) -> dict[str, Any]:
        return {"sha256": self._messages.result()}

    def message(self, qp: int, size: int) -> dict[str, Any]:
        data, imm, _ = self._connection.qps[qp].recv(WAIT, size=size)
        return {"data": bytes(data), "imm": imm}

    def modes_open(self, worker: str, size: int) -> dict[str, Any]:
        self._pd_ = self._pd(worker)
        rights = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
        plain = self._pd_.alloc(size, rights)
        proven = self._pd_.alloc(size, rights, proof=True, block_size=1024)
        self._modes_regions = plain, proven
        capability = proven.capability(rights=Right.READ | Right.WRITE)
        return {
            "token": self._pd_.token,
            "remote": plain.remote().to_bytes(),
            "capability": capability.to_bytes(),
        }

    def modes_qp(self) -> dict[str, Any]:
        self._modes_qp = SecureQP(self._pd_, 8, 8, timeout=WAIT)
        return vars(self._modes_qp.info)

    def modes_look(self, offset: int, length: int) -> dict[str, Any]:
        plain, proven = (bytes(mr.buf[offset : offset + length]) for mr in self._modes_regions)
        return {"plain": plain, "proven": proven}

    def modes_message(self, size: int) -> dict[str, Any]:
        self._modes_qp.connected = True
        return {"data": bytes(self._modes_qp.recv(WAIT, size=size).data)}

    def modes_drop(self) -> dict[str, Any]:
        self._modes_qp.close()
        return {}

    def ended(self, qp: int) -> dict[str, Any]:
        ended = self._connection.qps[qp]
        ended.poll(1, WAIT)
        return {"reason": ended.reason}


if __name__ == "__main__":
    sys.exit(main(Host()))
