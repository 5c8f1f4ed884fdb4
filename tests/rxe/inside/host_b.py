"""Host B of these tests: that of the demo, and what the demo does not ask.

    python -m tests.rxe.inside.host_b

Requests besides those of srdma/demo_host.py: digest (offset, length) -> sha256; message (qp, size)
-> data, imm; ended (qp) -> reason, once that QP is in error.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Any

from srdma.demo_host import WAIT, HostB, main


class Host(HostB):
    def digest(self, offset: int, length: int) -> dict[str, Any]:
        return {"sha256": hashlib.sha256(self._region.buf[offset : offset + length]).digest()}

    def message(self, qp: int, size: int) -> dict[str, Any]:
        data, imm, _ = self._connection.qps[qp].recv(WAIT, size=size)
        return {"data": bytes(data), "imm": imm}

    def ended(self, qp: int) -> dict[str, Any]:
        ended = self._connection.qps[qp]
        ended.poll(1, WAIT)
        return {"reason": ended.reason}


if __name__ == "__main__":
    sys.exit(main(Host()))
