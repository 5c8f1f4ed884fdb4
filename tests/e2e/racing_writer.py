"""A host that writes through capabilities as fast as it can until a write is refused.

    python -m tests.e2e.racing_writer WORKER IDENTITY PORT QPS

It reads one token per line from stdin, writes through each token on another of its QPS QPs, and
prints "refused REASON" when a write was refused.
"""

from __future__ import annotations

import sys
from itertools import count

import srdma
from srdma import Access, Capability, SendWR, WROpcode

WAIT = 60
OUTSTANDING = 8


def main() -> None:
    worker, identity, port, qps = sys.argv[1:]
    with srdma.Context(worker) as ctx, srdma.PD(ctx) as pd:
        connection = srdma.connect(
            ("127.0.0.1", int(port)), pd, identity=identity, mode="mem",
            qps=int(qps), sq=OUTSTANDING, rq=4, timeout=WAIT,
        )  # fmt: skip
        for qp, token in zip(connection.qps, sys.stdin, strict=False):
            print("refused", race(pd, qp, Capability.parse(token)), flush=True)


def race(pd: srdma.PD, qp: srdma.SecureQP, cap: Capability) -> str:
    """Writes messages, each filled with another byte value, until one is refused."""
    with pd.alloc(OUTSTANDING * cap.length, Access.LOCAL_WRITE) as mr:
        for n in count():
            piece = slice(n % OUTSTANDING * cap.length, (n % OUTSTANDING + 1) * cap.length)
            mr.buf[piece] = bytes([n % 255 + 1]) * cap.length
            qp.post_send(SendWR(n, WROpcode.RDMA_WRITE, [mr[piece]], capability=cap))
            wanted = 1 if n >= OUTSTANDING - 1 else 0
            for wc in qp.poll(OUTSTANDING, WAIT if wanted else 0):
                if wc.status is not srdma.WCStatus.SUCCESS:
                    return wc.reason
    raise AssertionError


if __name__ == "__main__":
    main()
