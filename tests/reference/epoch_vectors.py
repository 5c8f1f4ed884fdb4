"""Contents of tests/vectors/epochs.json: connections whose epochs change (protocol.md 3.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from . import random_packets
from .jsonform import to_json
from .kdf import next_secret, traffic_keys
from .mode_vectors import hexes, random_pd
from .pd import PdKeys, with_secrets
from .protect import End, Mode
from .session import Session
from .suites import SUITES, Level
from .wire import Op, Packet

FORMS = ((0x01, Level.AEAD), (0x07, Level.AEAD), (0x12, Level.PACKET), (0x20, Level.HEADER))
MODES = ((Mode.BASIC, "owner"), (Mode.MEM, "owner"), (Mode.PD, "owner"), (Mode.PD, "shared"))
TURNS = 40
REKEY_PACKETS = 3
RENEWALS = {10: 0, 22: 1}  # turn: the end that gets a new secret for sending
CHAIN = (1, 2, 3, 1 << 8, 0xFFFFFFFE, 0xFFFFFFFF)


def epoch_vectors() -> dict[str, Any]:
    rng = Random("srdma-1 epochs")
    return {
        "secrets": [_secret(rng, suite, level) for suite, level in FORMS for _ in range(2)],
        "connections": [
            _connection(rng, form, mode, policy) for form in FORMS for mode, policy in MODES
        ],
    }


def _secret(rng: Random, suite: int, level: Level) -> dict[str, Any]:
    """A chain: S of some epochs, each from the row before, with its key and IV."""
    form = (SUITES[suite], level, SUITES[suite].tag_size)
    size = 16 if SUITES[suite].key_size <= 16 else 32
    secret, generation, direction = rng.randbytes(size), rng.randbytes(8), rng.getrandbits(1)
    rows = []
    first = secret
    for epoch in CHAIN:
        secret = next_secret(secret, generation, direction, epoch)
        key, iv = traffic_keys(secret, generation, direction, epoch, form)
        rows.append({"epoch": epoch} | hexes(secret=secret, key=key, iv=iv))
    return {
        "suite": suite,
        "level": int(level),
        "tag_len": form[2],
        "direction": direction,
        **hexes(generation=generation, secret=first),
        "rows": rows,
    }


@dataclass
class Life:
    rng: Random
    ends: tuple[Session, Session]
    pds: list[PdKeys]

    def packet(self, sender: int, number: int) -> dict[str, Any]:
        end, peer = self.ends[sender], self.ends[1 - sender]
        told = peer.window.highest
        began = end.advance(0, told)
        packet = Packet(Op.SEND_ONLY, request_id=number, payload=self.rng.randbytes(number % 5))
        datagram = end.seal(packet)
        peer.open(datagram)
        return {
            "from": sender,
            "told": told,
            "began": began,
            "epochs": [end.tx.epoch, peer.rx.epoch],
            "fields": to_json(packet),
            "payload": packet.payload.hex(),
            "datagram": datagram.hex(),
        }

    def renewal(self, sender: int) -> dict[str, Any]:
        """The receiver gets the new secret first."""
        direction = self.ends[sender].tx
        size, found = len(direction.secret), {"renew": sender}
        if direction.mode & Mode.PD:
            self.pds[1 - sender] = pd = random_pd(self.rng)
            ends: tuple[End, End] = direction.receiver, direction.sender
            secret = pd.secret(*ends, direction.generation, size)
            found |= hexes(group_key=pd.group_key)
        else:
            secret = self.rng.randbytes(size)
        self.ends[1 - sender].renew(1, secret)
        self.ends[sender].renew(2, secret)
        return found | hexes(secret=secret)


def _connection(rng: Random, form: tuple[int, Level], mode: Mode, policy: str) -> dict[str, Any]:
    client = replace(random_packets.params(rng, *form), mode=mode, rekey_packets=REKEY_PACKETS)
    pds = [random_pd(rng), random_pd(rng)]
    if policy == "shared":
        pds[1] = pds[0]
    if mode & Mode.PD:
        client = with_secrets(client, *pds)
    life = Life(rng, (Session(client), Session(client.mirrored())), list(pds))
    steps = []
    for turn in range(TURNS):
        if turn in RENEWALS and policy == "owner":
            steps.append(life.renewal(RENEWALS[turn]))
        steps.append(life.packet(int(rng.random() < 0.4), turn))
    return {
        "policy": policy,
        "group_keys": [pd.group_key.hex() for pd in pds],
        "client": to_json(client),
        "steps": steps,
    }
