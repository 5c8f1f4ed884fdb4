"""The worked example in key mode pd+mem: every key from those of the PDs down to one packet with
a proof, and the packet field by field."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from . import memory, protect, wire
from .jsonform import packet_from_json, params_from_json, to_json
from .memory import Region
from .mode_vectors import ALICE, registered_json
from .pd import PdKeys, with_secrets
from .protect import Mode
from .session import Params
from .target import Access, Claim, Peer, Registered, Tree, judge, want
from .wire import Flag, Op, Packet

CLIENT_PD = PdKeys(bytes(range(0x40, 0x50)), bytes(range(0x50, 0x70)))
SERVER_PD = PdKeys(bytes(range(0x80, 0x90)), bytes(range(0x90, 0xB0)))
NOW, EXPIRY = 1_899_999_999, 1_900_000_000


def region() -> Registered:
    start = 0x7F0011223000
    return Registered(
        pd=1,
        pd_key=bytes(range(0xC0, 0xD0)),
        rkey=0x8BADF00D,
        access=Access.REMOTE_WRITE | Access.PROOF,
        tree=Tree(Region(start, start + 5 * 4096), bytes(range(0xD0, 0xE0))),
    )


def connection(params: Params) -> dict[str, Any]:
    """The client writes 6 bytes to the third block. Its grant covers the third and fourth."""
    params = with_secrets(replace(params, mode=Mode.PD | Mode.MEM), CLIENT_PD, SERVER_PD)
    way, pn, state = params.directions()[0], params.tx_pn, region()
    holder = memory.holder_id(ALICE)
    cap = state.grant(2 * 4096, 4 * 4096, memory.WRITE).seal(holder, EXPIRY)
    (node,) = cap.nodes
    access_key = cap.usable(memory.WRITE, node)
    packet = Packet(
        Op.WRITE_ONLY,
        request_id=1 << 32,
        flags=Flag.PROOF | Flag.HOLDER,
        depth=node.depth,
        expiry=EXPIRY,
        va=cap.region.start + 2 * 4096 + 0x40,
        rkey=state.rkey,
        dma_len=6,
        payload=b"srdma!",
    )
    full = protect.complete(way, pn, packet, access_key)
    data = protect.proof_data(way, pn, full)
    peer = Peer(1, way.receiver.qpn, True, holder)
    claim = Claim.of(full, peer, data)
    assert not judge({state.rkey: state}, peer, want(full, full), claim, NOW)
    mr_key = state.mr_key(state.tree)
    nodes = [
        [n.depth, n.index, n.lo, n.hi, memory.node_key(mr_key, cap.region, 2, n).hex()]
        for n in cap.region.path(node)
    ]
    key, iv = way.keys
    return {
        "suite": "aes-128-gcm",
        "level": "aead",
        "client": to_json(params) | {"suite": params.suite},
        "group_keys": [CLIENT_PD.group_key.hex(), SERVER_PD.group_key.hex()],
        "keys": [{"key": key.hex(), "iv": iv.hex()}],
        "memory": registered_json(state)
        | {
            "identity": ALICE,
            "holder": holder.hex(),
            "now": NOW,
            "height": cap.region.height,
            "mr_key": mr_key.hex(),
            "nodes": nodes,
            "access_key": access_key.hex(),
            "token": cap.encode().hex(),
        },
        "packets": [
            {
                "name": Op(packet.opcode).name,
                "from": 0,
                "pn": pn,
                "fields": to_json(full),
                "payload": packet.payload.hex(),
                "nonce": protect.nonce(way, iv, pn).hex(),
                "proven": data.hex(),
                "ad": protect.associated_data(way, pn, full).hex(),
                "datagram": protect.seal(way, pn, full).hex(),
            }
        ],
    }


def text(c: dict[str, Any]) -> Iterator[str]:
    p = params_from_json(c["client"])
    yield from ("", "=== key mode pd+mem (3), policy owner, suite aes-128-gcm (0x01), level aead")
    yield f"generation {p.generation.hex()}, key mode {p.mode}, epoch 0"
    ends = ("client", p.local_eid, p.local_qpn), ("server", p.peer_eid, p.peer_qpn)
    for (name, eid, qpn), keys in zip(ends, c["group_keys"], strict=True):
        yield f"{name}     endpoint id {eid.hex()}, SRC QPN {qpn:#08x}"
        yield f"           K_PD16 {keys[:32]}  K_PD32 {keys[32:]}"
    yield f"client ->  S   {p.tx_secret.hex()}  (from the server's K_PD16)"
    yield f"           key {c['keys'][0]['key']}  iv {c['keys'][0]['iv']}"
    yield f"server ->  S   {p.rx_secret.hex()}  (from the client's K_PD16)"
    yield from _memory_text(c["memory"])
    yield from _packet_text(c["packets"][0])


def _memory_text(m: dict[str, Any]) -> Iterator[str]:
    tree = m["tree"]
    yield f"region     start {tree['start']:#x}, end {tree['end']:#x}, B {1 << m['log2_block']},"
    yield f"           D {m['depth_limit']}, h {m['height']}, wire rkey {m['rkey']:#x}"
    yield f"           generation {m['generation']}, salt {tree['salt']}"
    yield f"           K_PDmem {m['pd_key']}  K_MR {m['mr_key']}"
    for depth, index, lo, hi, key in m["nodes"]:
        name = "root_2" if depth == 0 else f"({depth}, {index})"
        yield f"  {name:8} [{lo:#x}, {hi:#x})".ljust(32) + key
    yield f"  holder   {m['holder']}  of {m['identity']}"
    yield f"  K_access {m['access_key']}"
    yield f"  token    {m['token'][:128]}"
    yield f"           {m['token'][128:]}"


def _packet_text(entry: dict[str, Any]) -> Iterator[str]:
    p = packet_from_json(entry["fields"], entry["payload"])
    data = bytes.fromhex(entry["datagram"])
    parsed = wire.parse(data, 16)
    layout = wire.layout(parsed)
    va, rkey, length = layout.extension[:8], layout.extension[8:12], layout.extension[12:]
    sth = layout.sth
    yield from ("", f"{entry['name']}, client ->: pn {entry['pn']:#x}, payload {entry['payload']}")
    fields = [
        ("BTH", layout.bth, ""),
        ("RETH", va, f"virtual address {p.va:#x}"),
        ("", rkey, "wire rkey"),
        ("", length, f"DMALen {p.dma_len}"),
        ("STH", sth[:3], f"low 24 bits of request id {p.request_id:#x}"),
        ("", sth[3:4], "flags P, H"),
        ("", sth[4:8], f"offset {p.offset}"),
        ("", sth[8:9], f"node depth {p.depth}"),
        ("", sth[9:12], "zero"),
        ("", sth[12:16], f"expiry {p.expiry}"),
        ("", sth[16:], "proof"),
        ("tag", layout.tag, ""),
        ("payload", layout.payload, "encrypted"),
        ("pad", layout.pad, ""),
    ]
    for name, part, meaning in fields:
        yield f"  {name:8} {part.hex():34}{meaning}".rstrip()
    yield f"  nonce    {entry['nonce']}"
    proven = entry["proven"]
    yield f"  proven   {b'srdma mp'.hex()} {proven[:16]}"
    yield f"           {proven[16:152]}"
    yield f"           {proven[152:]}"
    yield f"  AD       {entry['ad'][:136]}"
    yield f"           {entry['ad'][136:]}"
    yield f"  out      {entry['datagram']}"
