"""Attacks on the key exchange and on its renewal. These labs have real agents and certificates.

Agents have no counters: `connections_closed` and `exchanges_refused` are what the attacker sees.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import srdma
from srdma import Access
from srdma.agent.client import Attempt
from srdma.errors import Error, Timeout
from srdma.identity import create_ca, issue
from srdma_attack.attack import Finding, KitError, Settings, outcome
from srdma_attack.lab import CLIENT, RIGHTS, SERVER, WAIT, Counters, Lab, lab, until
from srdma_attack.peer import Peer, write
from tests.e2e.agents import Place, gid_hosts
from tests.e2e.conftest import B

CROWD, ADDRESSES = 80, 2  # silent connections of an address; addresses
LIFE = 1  # seconds
IMPOSTOR = "spiffe://test/c"


@contextlib.contextmanager
def _identities(*names: str) -> Iterator[Path]:
    """A CA in a folder, and an identity in the files 0, 1 and so on for each name."""
    with tempfile.TemporaryDirectory(prefix="srdma-attack-") as place:
        folder = Path(place)
        create_ca(folder, "lab")
        for number, name in enumerate(names):
            issue(folder, name, folder / str(number))
        yield folder


def handshake_flood(settings: Settings) -> Finding:
    """Opens connections to a listener, from several addresses, and is silent."""
    with lab(settings) as it, _identities(SERVER, CLIENT) as folder, contextlib.ExitStack() as undo:
        listener = undo.enter_context(
            srdma.listen(("127.0.0.1", 0), it.server.pd, identity=folder / "0", peer=CLIENT)
        )
        accepted = _accept(listener, undo)
        crowd = [
            undo.enter_context(
                socket.create_connection(listener.address, WAIT, (f"127.0.1.{number + 1}", 0))
            )
            for number in range(ADDRESSES)
            for _ in range(CROWD)
        ]
        served = _meets(it, listener, folder / "1", accepted)
        closed = sum(_is_closed(sock) for sock in crowd)
        return Finding(outcome(not served), {"connections_closed": closed}, f"{len(crowd)} silent")


Accepted = Future[srdma.Connection]


def _accept(listener: srdma.Listener, undo: contextlib.ExitStack) -> Accepted:
    pool = undo.enter_context(ThreadPoolExecutor(1))
    return pool.submit(listener.accept, WAIT)


def _meets(it: Lab, listener: srdma.Listener, identity: Path, accepted: Accepted) -> bool:
    """True if this identity connects with the listener and its WRITE arrives."""
    try:
        client = srdma.connect(listener.address, it.client.pd, identity=identity, timeout=WAIT)
        with client, accepted.result(WAIT), it.server.pd.alloc(64, RIGHTS, scope="pd") as region:
            client.qp.write(b"genuine", region.remote(), timeout=WAIT)
            return bytes(region.buf[:7]) == b"genuine"
    except Error:
        return False


def _is_closed(sock: socket.socket) -> bool:
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def impersonate(settings: Settings) -> Finding:
    """Connects under the name of a peer with a certificate of its own CA, and with a certificate of
    the right CA under another name."""
    with (
        lab(settings) as it,
        _identities(SERVER, CLIENT, "spiffe://lab/other") as folder,
        _identities(CLIENT) as own_ca,
        contextlib.ExitStack() as undo,
    ):
        listener = undo.enter_context(
            srdma.listen(("127.0.0.1", 0), it.server.pd, identity=folder / "0", peer=CLIENT)
        )
        (own_ca / "ca.pem").write_bytes((folder / "ca.pem").read_bytes())
        refused = 0
        for identity in (own_ca / "0", folder / "2"):
            with contextlib.suppress(Error):
                srdma.connect(listener.address, it.client.pd, identity=identity, timeout=WAIT)
                continue
            refused += 1
        served = _meets(it, listener, folder / "1", _accept(listener, undo))
        return Finding(outcome(refused < 2 or not served), {"exchanges_refused": refused})


def impersonate_rendezvous(settings: Settings) -> Finding:
    """Answers for a GID that the caller's policy gives to another identity, as the client and as
    the server of the key exchange."""
    with _identities(SERVER) as folder, contextlib.ExitStack() as undo:
        for name, uri in (("a", "spiffe://test/a"), ("b", B)):
            issue(folder, uri, folder / name)
        (folder / "place").mkdir()
        place = undo.enter_context(gid_hosts(folder, folder / "place"))
        place.agents[0].change(f'identity = "{B}"', f'identity = "{IMPOSTOR}"')
        place.agents[0].restart(signal.SIGTERM)
        refused = sum(_is_refused(*_calls(place, undo, client)) for client in (True, False))
        return Finding(outcome(refused < 2), {"exchanges_refused": refused})


def _calls(place: Place, undo: contextlib.ExitStack, client: bool) -> list[srdma.Rendezvous]:
    """The caller and the impostor. client: the caller is the client, which has the lower QPN."""
    while True:
        ends = [
            undo.enter_context(srdma.rendezvous(host.pd, identity=name, timeout=WAIT))
            for host, name in ((place.a, "host-a"), (place.b, "host-b"))
        ]
        if (ends[0].qp_num < ends[1].qp_num) == client:
            return ends


def _is_refused(caller: srdma.Rendezvous, impostor: srdma.Rendezvous) -> bool:
    """True if the exchange fails. The client of the two is told, and the server waits on: for it
    the OFFER of a wrong identity is no answer."""
    attempts = Attempt(), Attempt()
    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(caller.connect, impostor.gid, impostor.qp_num, attempt=attempts[0]),
            pool.submit(impostor.connect, caller.gid, caller.qp_num, attempt=attempts[1]),
        ]
        ended, _ = wait(calls, return_when=FIRST_COMPLETED)
        for attempt in attempts:
            attempt.cancel()
        errors = [call.exception() for call in ended]
    if any(isinstance(error, Timeout) for error in errors):
        raise KitError("the caller and the impostor did not meet")
    return all(isinstance(error, Error) for error in errors)


def evade_renewal(settings: Settings) -> Finding:
    """Takes part in no renewal, and goes on sending with its secrets after their life."""
    with lab(settings) as it:
        peer = Peer(it)
        region = it.undo.enter_context(
            it.server.pd.alloc(64, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd")
        )
        counters = Counters(it.server)
        it.server.pd.control.life(peer.qp.qp_num, LIFE)
        peer.request(write(region.addr, region.rkey, b"early"))

        def ended() -> bool:
            peer.request(write(region.addr, region.rkey, b"while"))
            time.sleep(LIFE / 20)
            return "reason_KEY_LIMIT" in counters.rose()

        until(ended, "the end of the QP")
        peer.request(write(region.addr, region.rkey, b"later"))
        works = it.pair().works()  # by now the worker has taken the packet
        late = bytes(region.buf[:5]) != b"while"
        return Finding(outcome(late or not works), counters.rose())
