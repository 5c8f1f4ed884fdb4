"""A host that keeps a QP busy until it fails, and accounts for every work request.

    python -m tests.e2e.traffic

Frames on stdin and stdout (_engine/frames.py): {"do": "listen", worker, identity, qp_timeout} ->
{"address"}; {"do": "run"}, which connects if it has an address and the arguments of listen ->
{"running"} once data flows, then the outcomes of the work requests when the QP has failed.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import srdma
from srdma._engine.frames import read_frame, write_frame
from srdma.connection import Listener
from srdma.mr import MR, RemoteMR
from srdma.pd import PD
from srdma.wc import WC, WCStatus

REGION = 1 << 20
LARGEST = 256 << 10
OUTSTANDING = 16
WARM = 64  # number of completions after which data counts as flowing
QP_TIMEOUT = 3.0
CONNECT = 90.0  # seconds for a connection; long enough for an emulated machine
LIMIT = 40.0  # seconds until a process counts as hung
RECV = 1 << 32  # wr_ids from here on are receives


class Traffic:
    """The outstanding work requests of one QP and the outcomes of the others."""

    def __init__(self, qp: srdma.SecureQP, region: MR, remote: RemoteMR) -> None:
        self._qp, self._region, self._remote = qp, region, remote
        self._random = random.Random(remote.rkey)
        self._posted_at: dict[int, float] = {}
        self._serial = 0
        self.ends: Counter[str] = Counter()
        self.twice = 0
        self.slowest = 0.0

    def fill(self) -> None:
        """Fills both queues to their depth."""
        for _ in range(OUTSTANDING):
            self._post_receive()
        for _ in range(OUTSTANDING):
            self._post_send()

    def _note(self, base: int) -> int:
        self._serial += 1
        self._posted_at[base + self._serial] = time.monotonic()
        return base + self._serial

    def _post_receive(self) -> None:
        wr_id = self._note(RECV)
        self._qp.post_recv(srdma.RecvWR(wr_id, [self._region[:1024]]))

    def _post_send(self) -> None:
        opcode = self._random.choice(
            [srdma.WROpcode.RDMA_WRITE, srdma.WROpcode.RDMA_READ, srdma.WROpcode.SEND]
        )
        length = self._random.choice([1, 1024, 64 << 10, LARGEST])
        if opcode == srdma.WROpcode.SEND:
            length = min(length, 1024)
        wr = srdma.SendWR(self._note(0), opcode, [self._region[:length]])
        if opcode != srdma.WROpcode.SEND:
            wr.set_remote(self._remote, self._random.randrange(REGION - length + 1))
        self._qp.post_send(wr)

    @property
    def outstanding(self) -> int:
        return len(self._posted_at)

    def take(self, wc: WC) -> None:
        """Handles a completion. After a success, posts another request."""
        posted = self._posted_at.pop(wc.wr_id, None)
        if posted is None:
            self.twice += 1
            return
        self.ends[wc.status.name] += 1
        if wc.wr_id < RECV:
            self.slowest = max(self.slowest, time.monotonic() - posted)
        if wc.status is WCStatus.SUCCESS and not self._qp.reason:
            if wc.wr_id >= RECV:
                self._post_receive()
            else:
                self._post_send()


class Host:
    """The host process."""

    def __init__(self, stdout: int) -> None:
        self._stdout = stdout
        self._stack = ExitStack()
        self._listener: Listener | None = None

    def listen(self, worker: str, identity: str, qp_timeout: float) -> dict[str, Any]:
        self._pd, self._region = self._open(worker)
        self._listener = srdma.listen(
            ("127.0.0.1", 0), self._pd, data=self._region.remote().to_bytes(),
            identity=identity, qp_timeout=qp_timeout, timeout=CONNECT,
        )  # fmt: skip
        return {"address": list(self._listener.address)}

    def _open(self, worker: str) -> tuple[PD, MR]:
        pd = self._stack.enter_context(PD(self._stack.enter_context(srdma.Context(Path(worker)))))
        access = srdma.Access.LOCAL_WRITE | srdma.Access.REMOTE_READ | srdma.Access.REMOTE_WRITE
        return pd, pd.alloc(REGION, access, scope="pd")

    def run(self, address: tuple[str, int] | None = None, **how: Any) -> dict[str, Any]:
        try:
            return self._run(self._accept() if address is None else self._connect(address, **how))
        finally:
            self._stack.close()
            self._listener = None

    def _accept(self) -> srdma.Connection:
        assert self._listener is not None
        return self._listener.accept(CONNECT)

    def _connect(
        self, address: tuple[str, int], worker: str, identity: str, qp_timeout: float
    ) -> srdma.Connection:
        self._pd, self._region = self._open(worker)
        return srdma.connect(
            tuple(address), self._pd, data=self._region.remote().to_bytes(),
            identity=identity, qp_timeout=qp_timeout, timeout=CONNECT,
        )  # fmt: skip

    def _run(self, connection: srdma.Connection) -> dict[str, Any]:
        qp = connection.qp
        traffic = Traffic(qp, self._region, RemoteMR.from_bytes(connection.data))
        self._until_it_fails(qp, traffic)
        return {
            "ends": dict(traffic.ends),
            "outstanding": traffic.outstanding,
            "twice": traffic.twice,
            "slowest": traffic.slowest,
            "reason": qp.reason,
        }

    def _until_it_fails(self, qp: srdma.SecureQP, traffic: Traffic) -> None:
        end = time.monotonic() + LIMIT
        flows = False
        traffic.fill()
        while traffic.outstanding and time.monotonic() < end:
            for wc in qp.poll(OUTSTANDING, 0.2):
                traffic.take(wc)
            if not flows and traffic.ends["SUCCESS"] > WARM:
                flows = True
                write_frame(self._stdout, {"running": True})


def main() -> int:
    stdin, stdout = sys.stdin.fileno(), sys.stdout.fileno()
    host = Host(stdout)
    write_frame(stdout, {"up": True})
    while request := read_frame(stdin):
        do = getattr(host, request.pop("do"))
        try:
            answer = do(**request)
        except srdma.Error as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        write_frame(stdout, answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
