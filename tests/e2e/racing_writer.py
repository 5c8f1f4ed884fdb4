"""A host that writes into a region of its peer as fast as it can until a write is refused.

    python -m tests.e2e.racing_writer WORKER IDENTITY PORT QPS

It reads one token of a capability, or one remote region, per line from stdin, writes through each
on another of its QPS QPs, and prints "refused REASON" when a write was refused.
"""

from __future__ import annotations

import sys
from itertools import count

import srdma
from srdma import Access, Capability, RemoteMR, SendWR, WROpcode

WAIT = 60
OUTSTANDING = 8


def main() -> None:
    worker, identity, port, qps = sys.argv[1:]
    with srdma.Context(worker) as ctx, srdma.PD(ctx) as pd:
        connection = srdma.connect(
            ("127.0.0.1", int(port)), pd, identity=identity, mode="mem",
            qps=int(qps), sq=OUTSTANDING, rq=4, timeout=WAIT,
        )  # fmt: skip
        for qp, line in zip(connection.qps, sys.stdin, strict=False):
            print("refused", race(pd, qp, parse(line)), flush=True)


def parse(line: str) -> Capability | RemoteMR:
    return RemoteMR.parse(line) if line.startswith("srdma-mr") else Capability.parse(line)


def race(pd: srdma.PD, qp: srdma.SecureQP, to: Capability | RemoteMR) -> str:
    """Writes messages, each filled with another byte value, until one is refused."""
    cap = to if isinstance(to, Capability) else None
    with pd.alloc(OUTSTANDING * to.length, Access.LOCAL_WRITE) as mr:
        for n in count():
            piece = slice(n % OUTSTANDING * to.length, (n % OUTSTANDING + 1) * to.length)
            mr.buf[piece] = bytes([n % 255 + 1]) * to.length
            write = SendWR(n, WROpcode.RDMA_WRITE, [mr[piece]], capability=cap)
            write.set_wr_rdma(to.rkey, to.address)
            qp.post_send(write)
            wanted = 1 if n >= OUTSTANDING - 1 else 0
            for wc in qp.poll(OUTSTANDING, WAIT if wanted else 0):
                if wc.status is not srdma.WCStatus.SUCCESS:
                    return wc.reason
    raise AssertionError


if __name__ == "__main__":
    main()
