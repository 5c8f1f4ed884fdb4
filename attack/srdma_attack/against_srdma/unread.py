"""Answers that are not taken: a local program reads no answer of the control socket, and a peer
confirms no response. The worker must keep few of them, and serve the others.

`requests_taken` are those that the program sent until the worker read no more.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from srdma_attack.against_srdma.quotas import CHUNK, serves, take_all
from srdma_attack.attack import Finding, Settings, outcome
from srdma_attack.lab import RIGHTS, Counters, Host, lab
from srdma_attack.peer import Peer
from tests.daemon import HEADER, Client, Kind
from tests.neighbours import neighbour

PEERS = 8
MOST = 1 << 17  # requests after which the program gives up
PAUSES, PAUSE = 40, 0.025  # seconds in which a full socket may get room
ROOM = 32 << 20  # bytes by which the worker may grow


def never_take(settings: Settings) -> Finding:
    """Sends STATS until the worker reads no more, and READs whose responses are never confirmed."""
    with lab(settings) as it, neighbour(it.server.worker.control) as intruder:
        pair = it.pair()
        before, counters = _memory(it.server), Counters(it.server)
        region = it.undo.enter_context(it.server.pd.alloc(CHUNK, RIGHTS, scope="pd"))
        for peer in [Peer(it) for _ in range(PEERS)]:
            take_all(peer, region)
        taken = _fill(intruder)
        grown = _memory(it.server) - before
        with neighbour(it.server.worker.control) as newcomer:
            served = serves(newcomer)
        harmed = not taken or grown > ROOM or not served or not pair.works()
        note = f"the worker grew by {grown >> 10} KiB"
        return Finding(outcome(harmed), {**counters.rose(), "requests_taken": taken}, note)


def _fill(client: Client) -> int:
    """Sends requests until the socket has had no room for a while. Returns how many it sent; 0: the
    worker reads all."""
    client.socket.setblocking(False)
    sent = pauses = 0
    while sent < MOST:
        try:
            client.socket.send(HEADER.pack(Kind.STATS, 0, sent, 0), socket.MSG_DONTWAIT)
            sent, pauses = sent + 1, 0
        except BlockingIOError:
            pauses += 1
            if pauses > PAUSES:
                return sent
            time.sleep(PAUSE)
    return 0


def _memory(host: Host) -> int:
    """Bytes of memory that the worker occupies."""
    pages = int(Path("/proc", str(host.worker.pid), "statm").read_text().split()[1])
    return pages * 4096
