"""Contents of tests/vectors/pd.json and proofs.json: key modes, and packets that prove accesses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from . import memory, protect, random_packets, wire
from .jsonform import to_json
from .memory import Capability, Node, Region
from .pd import PdKeys, with_secrets
from .protect import End, Mode
from .reasons import Reason
from .session import Session
from .suites import Level
from .target import ATOMIC_LEN, Access, Claim, Peer, Registered, Tree, judge, want
from .wire import Flag, Op, Packet

ALICE = "spiffe://example.org/alice"
NOW = 1_899_999_999
EXPIRY = NOW + 1


def hexes(**parts: bytes) -> dict[str, str]:
    return {name: part.hex() for name, part in parts.items()}


def end_json(end: End) -> dict[str, Any]:
    return {"eid": end.eid.hex(), "qpn": end.qpn}


def random_pd(rng: Random) -> PdKeys:
    return PdKeys(rng.randbytes(16), rng.randbytes(32))


# --- key mode pd ----------------------------------------------------------------

PD_SUITES = ((0x01, Level.AEAD), (0x07, Level.AEAD), (0x12, Level.PACKET), (0x30, Level.HEADER))


def pd_vectors() -> dict[str, Any]:
    rng = Random("srdma-1 pd")
    made = [
        _pd_connection(rng, suite, level, policy, mode)
        for suite, level in PD_SUITES
        for policy in ("owner", "shared")
        for mode in (Mode.PD, Mode.PD | Mode.MEM)
    ]
    return {"secrets": _secrets(rng), "connections": made}


def _secrets(rng: Random) -> list[dict[str, Any]]:
    """S of both sizes. Other ends, swapped ends and another generation give other secrets."""
    keys, generation = random_pd(rng), rng.randbytes(8)
    a, b = (End(rng.randbytes(16), rng.randrange(1, 1 << 24)) for _ in range(2))
    flows = [(a, b, generation), (b, a, generation), (a, b, rng.randbytes(8))]
    flows += [(a, replace(b, qpn=b.qpn ^ 1), generation), (a, a, generation)]
    return [
        {
            "group_key": keys.group_key.hex(),
            "receiver": end_json(receiver),
            "sender": end_json(sender),
            "generation": life.hex(),
            "secret": keys.secret(receiver, sender, life, size).hex(),
        }
        for size in (16, 32)
        for receiver, sender, life in flows
    ]


def _pd_connection(rng: Random, suite: int, level: Level, policy: str, mode: int) -> dict[str, Any]:
    own = random_pd(rng)
    peer = random_pd(rng) if policy == "owner" else own
    client = replace(random_packets.params(rng, suite, level), mode=mode)
    client = with_secrets(client, own, peer)
    ends = Session(client), Session(client.mirrored())
    packets = [Packet(Op.SEND_ONLY, payload=b"first"), Packet(Op.WRITE_ONLY, request_id=1)]
    return {
        "policy": policy,
        "group_keys": [own.group_key.hex(), peer.group_key.hex()],
        "client": to_json(client),
        "keys": [hexes(key=end.tx.keys[0], iv=end.tx.keys[1]) for end in ends],
        "packets": [
            {
                "from": sender,
                "fields": to_json(packet),
                "payload": packet.payload.hex(),
                "datagram": ends[sender].seal(packet).hex(),
            }
            for packet in packets
            for sender in (0, 1)
        ],
    }


# --- proofs -----------------------------------------------------------------------


@dataclass(frozen=True)
class Grant:
    """A range, its holder and expiry, and its use."""

    name: str
    lo: int
    hi: int
    holder: bytes = bytes(16)
    expiry: int = 0


def _grants(region: Region) -> list[Grant]:
    block, alice = region.block, memory.holder_id(ALICE)
    return [
        Grant("open, the root", 0, region.length),
        Grant("open, one block", 3 * block, 4 * block),
        Grant("for a holder", 2 * block, 4 * block, holder=alice),
        Grant("until a time", 2 * block, 4 * block, expiry=EXPIRY),
        Grant("for a holder, until a time", 3 * block, 4 * block, alice, EXPIRY),
    ]


# The messages: opcodes with the payload size of each packet.
MESSAGES = [
    [(Op.WRITE_ONLY, 9)],
    [(Op.WRITE_ONLY_IMM, 9)],
    [(Op.WRITE_FIRST, 64), (Op.WRITE_MIDDLE, 64), (Op.WRITE_LAST, 7)],
    [(Op.WRITE_FIRST, 64), (Op.WRITE_LAST_IMM, 7)],
    [(Op.READ_REQUEST, 0)],
    [(Op.COMPARE_SWAP, 0)],
    [(Op.FETCH_ADD, 0)],
]
READ_LENGTH = 130
RIGHTS = {
    Op.READ_REQUEST: memory.READ,
    Op.COMPARE_SWAP: memory.ATOMIC,
    Op.FETCH_ADD: memory.ATOMIC,
}


def registered(rng: Random, region: Region, access: int) -> Registered:
    return Registered(
        pd=1,
        pd_key=rng.randbytes(16),
        rkey=rng.randrange(1, 1 << 32),
        access=access | Access.PROOF,
        tree=Tree(region, rng.randbytes(16)),
    )


def tree_json(tree: Tree) -> dict[str, Any]:
    return {"start": tree.region.start, "end": tree.region.end, "salt": tree.salt.hex()}


def registered_json(state: Registered) -> dict[str, Any]:
    region = state.tree.region
    return {
        "pd_key": state.pd_key.hex(),
        "rkey": state.rkey,
        "access": int(state.access),
        "log2_block": region.block.bit_length() - 1,
        "depth_limit": region.depth_limit,
        "generation": state.generation,
        "tree": tree_json(state.tree),
        "revoked": [tree_json(entry) for entry in state.revoked],
    }


def proof_vectors() -> list[dict[str, Any]]:
    """Each packet kind that names memory, with each kind of capability, from two connections."""
    rng = Random("srdma-1 proofs")
    forms = [(0x01, Level.AEAD, Mode.MEM), (0x12, Level.PACKET, Mode.PD | Mode.MEM)]
    return [_proofs(rng, *form) for form in forms]


def _proofs(rng: Random, suite: int, level: Level, mode: int) -> dict[str, Any]:
    start = 0x7F0011223000
    region = Region(start, start + 11 * 4096 - 5)
    access = Access.REMOTE_READ | Access.REMOTE_WRITE | Access.REMOTE_ATOMIC
    state = registered(rng, region, access)
    params = replace(random_packets.params(rng, suite, level), mode=mode)
    own = random_pd(rng)
    if mode & Mode.PD:
        params = with_secrets(params, own, own)
    sender = _Sender(Session(params), state)
    steps = [
        step
        for grant in _grants(region)
        for message in MESSAGES
        for step in sender.message(grant, message)
    ]
    sender.state = state.revoke_range(2 * 4096, 5 * 4096, rng.randbytes(16))
    inside = Grant("in a revoked range", 2 * 4096, 5 * 4096)
    steps += [step for message in MESSAGES for step in sender.message(inside, message)]
    return {
        "client": to_json(params),
        "group_key": own.group_key.hex() if mode & Mode.PD else "",
        "identity": ALICE,
        "now": NOW,
        "regions": [registered_json(s) for s in (state, sender.state)],
        "steps": steps,
    }


@dataclass
class _Sender:
    """A client that sends messages with proofs, and the target's state."""

    session: Session
    state: Registered
    next_id: int = 0

    def message(self, grant: Grant, message: list[tuple[Op, int]]) -> list[dict[str, Any]]:
        rights = RIGHTS.get(message[0][0], memory.WRITE)
        cap = self.state.grant(grant.lo, grant.hi, rights)
        if grant.holder != bytes(16) or grant.expiry:
            cap = cap.seal(grant.holder, grant.expiry)
        head = self._head(rights, grant, sum(size for _, size in message))
        steps, offset, first = [], 0, Packet(message[0][0], **head)
        for op, size in message:
            fields = head if {"RETH", "Atomic"} & set(wire.ROWS[op].headers) else {}
            fields |= {"imm": 0x01020304} if "Imm" in wire.ROWS[op].headers else {}
            payload = bytes(range(size))
            packet = Packet(op, self.next_id, offset=offset, payload=payload, **fields)
            steps.append({"grant": grant.name} | self._step(cap, packet, first))
            offset += size
        self.next_id += 1
        return steps

    def _head(self, rights: int, grant: Grant, length: int) -> wire.Fields:
        """Header of a message that ends at the end of the grant; an atomic is aligned before it."""
        end = self.state.tree.region.start + grant.hi
        head: wire.Fields = {"rkey": self.state.rkey}
        if rights == memory.ATOMIC:
            va = (end - ATOMIC_LEN) // ATOMIC_LEN * ATOMIC_LEN
            return head | {"va": va, "swap_add": (1 << 64) - 2, "compare": 3}
        length = length or READ_LENGTH
        return head | {"va": end - length, "dma_len": length}

    def _step(self, cap: Capability, packet: Packet, first: Packet) -> dict[str, Any]:
        wanted = want(packet, first)
        node = cap.holding(wanted.right, wanted.start - cap.region.start)
        flags = Flag.PROOF | (Flag.HOLDER if cap.holder != bytes(16) else 0)
        packet = replace(
            packet, request_id=self.next_id, flags=flags, depth=node.depth, expiry=cap.expiry
        )
        access = cap.usable(wanted.right, node)
        way, pn = self.session.tx, self.session.next_pn
        full = protect.complete(way, pn, packet, access)
        data = protect.proof_data(way, pn, full)
        datagram = self.session.seal(packet, access)
        peer = Peer(1, way.receiver.qpn, True, memory.holder_id(ALICE))
        claim = Claim.of(full, peer, data)
        verdict = judge({self.state.rkey: self.state}, peer, wanted, claim, NOW)
        assert verdict == Reason.NONE, "the reference does not authorize its own packet"
        return {
            "name": Op(packet.opcode).name,
            "region": len(self.state.revoked),
            "wanted": [wanted.right, wanted.start, wanted.length],
            "token": cap.encode().hex(),
            "node": [node.depth, node.index, node.lo, node.hi],
            "keys": self._keys(cap, wanted.right, node),
            "access": access.hex(),
            "data": data.hex(),
            "fields": to_json(full),
            "payload": packet.payload.hex(),
            "pn": pn,
            "datagram": datagram.hex(),
        }

    def _keys(self, cap: Capability, right: int, node: Node) -> dict[str, Any]:
        """The keys from K_MR down to the node."""
        region = cap.region
        tree = self.state.tree_of(region.start + node.lo, region.start + node.hi)
        assert tree
        mr_key = self.state.mr_key(tree)
        path = [memory.node_key(mr_key, region, right, step) for step in region.path(node)]
        return {"mr": mr_key.hex(), "path": [key.hex() for key in path]}
