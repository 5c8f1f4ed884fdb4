"""Host B of these tests: that of the demo with further requests.

    python -m tests.rxe.inside.host_b

Requests besides those of srdma/demo/host.py: digest (offset, length) -> sha256; digests (pieces)
-> sha256 of each; expect (count, size): receive that many messages; arrived -> sha256 of each, once
all have arrived; message (qp, size) -> data, imm; ended (qp) -> reason, once that QP is in error;
stats (worker) -> counters, without a connection too; renew (worker, group): a new context and PD,
of this trust group, for further requests at this worker; use_agent (path): for the next contexts.
If the NIC is another computer, host B listens there.
For the PD of the newest connection: prove (size) -> capability for a region with proofs; proven
(offset, length) -> its data; revoke (offset, length); rotate -> serial of the new key.
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
from pathlib import Path
from typing import Any

from srdma import MR, PD, Access, Context, Right
from srdma.demo.host import WAIT, HostB, main
from srdma.qp import SecureQP

RIGHTS = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
BLOCK = 1024  # of regions with proofs


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

    def stats(self, worker: str = "") -> dict[str, Any]:
        if worker:
            self._pd(worker)
        return super().stats()

    def renew(self, worker: str, group: str = "") -> dict[str, Any]:
        context = self.stack.enter_context(Context(Path(worker)))
        self._contexts[worker] = context, self.stack.enter_context(PD(context, group=group))
        return {}

    def prove(self, size: int) -> dict[str, Any]:
        return self._prove(self._region.pd, size)

    def _prove(self, pd: PD, size: int) -> dict[str, Any]:
        self._proven: MR = pd.alloc(size, RIGHTS, proof=True, block_size=BLOCK)
        capability = self._proven.capability(rights=Right.READ | Right.WRITE)
        return {"capability": capability.to_bytes()}

    def proven(self, offset: int, length: int) -> dict[str, Any]:
        return {"data": bytes(self._proven.buf[offset : offset + length])}

    def revoke(self, offset: int, length: int) -> dict[str, Any]:
        self._proven.revoke(offset, length)
        return {}

    def rotate(self) -> dict[str, Any]:
        return {"serial": self._region.pd.rotate(WAIT)}

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
        self._plain = self._pd_.alloc(size, RIGHTS, scope="pd")
        token, remote = self._pd_.token, self._plain.remote().to_bytes()
        return {"token": token, "remote": remote, **self._prove(self._pd_, size)}

    def modes_qp(self) -> dict[str, Any]:
        self._modes_qp = SecureQP(self._pd_, 8, 8, timeout=WAIT)
        return vars(self._modes_qp.info)

    def modes_look(self, offset: int, length: int) -> dict[str, Any]:
        plain, proven = (
            bytes(mr.buf[offset : offset + length]) for mr in (self._plain, self._proven)
        )
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
