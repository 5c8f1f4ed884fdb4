"""Host B in a separate machine: tests/rxe/inside/host_b.py with requests over TCP from one host A.

    python -m tests.rxe.two.host_b

The first response also names its worker. Requests besides: plain_open (gid, qpn, psn) -> gid, qpn,
psn, rkey, address: a plain RC QP with this peer, and a region of zeros; plain_look (length) -> data
of that region.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from srdma._engine.frames import write_frame
from srdma.demo.host import main
from srdma_attack.against_plain import rc
from tests.rxe.inside.host_b import Host
from tests.rxe.tcp_host import PORT
from tests.rxe.two import end


class FarHost(Host):
    def plain_open(self, gid: str, qpn: int, psn: int) -> dict[str, Any]:
        self._plain = rc.Host(end.rdma(1), self.stack)
        endpoint = self._plain.endpoint()
        endpoint.connect(rc.Name(gid, qpn, psn))
        region = self._plain.region
        name = endpoint.name
        return {
            "gid": name.gid, "qpn": name.qpn, "psn": name.psn,
            "rkey": region.rkey, "address": region.buf,
        }  # fmt: skip

    def plain_look(self, length: int) -> dict[str, Any]:
        return {"data": bytes(self._plain.region.read(length, 0))}


def serve() -> int:
    with (
        end.worker(1) as worker,
        socket.create_server((end.address(1), PORT)) as server,
    ):
        sock, _ = server.accept()
        with sock:
            write_frame(sock.fileno(), {"worker": str(worker.control)})
            os.dup2(sock.fileno(), sys.stdin.fileno())
            os.dup2(sock.fileno(), sys.stdout.fileno())
            return main(FarHost())


if __name__ == "__main__":
    sys.exit(serve())
