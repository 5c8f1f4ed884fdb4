"""Sessions that survive their TLS connection (protocol.md 8.6): hosts, agents and workers are
real."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma import Access
from tests.e2e.agents import Place, two_hosts, until
from tests.e2e.conftest import WAIT, A, B, Host, Site, run, write


@pytest.mark.parametrize("reset", [True, False])
@pytest.mark.parametrize("mode", ["basic", "pd"])
def test_renewals_go_on_over_another_connection(relayed, reset, mode):
    pair, relay = relayed(mode=mode, qps=3)
    for cut in range(2):
        relay.cut(reset=reset)
        write(pair)
        pair.client.rekey(timeout=WAIT)
        pair.server.rekey(timeout=WAIT)
        write(pair)
        assert relay.accepted == 2 + cut
    assert pair.client.alive() and pair.server.alive()


# A restarted system agent ---------------------------------------------------------


@pytest.fixture
def place(site: Site, pki: Path, tmp_path: Path) -> Iterator[Place]:
    with two_hosts(site, pki, tmp_path) as place:
        yield place


class Load(threading.Thread):
    """WRITEs from A to B until stop(), which raises the error of one that failed."""

    def __init__(self, client: srdma.Connection, host: Host) -> None:
        super().__init__()
        self._client, self._host = client, host
        self._over = threading.Event()
        self._error: Exception | None = None
        self.done = 0
        self.start()

    def run(self) -> None:
        try:
            with self._host.pd.alloc(
                64, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd"
            ) as region:
                while not self._over.is_set():
                    data = self.done.to_bytes(8, "big")
                    self._client.qp.write(data, region.remote(), timeout=WAIT)
                    assert region.buf[:8] == data
                    self.done += 1
        except Exception as error:
            self._error = error

    def stop(self) -> None:
        self._over.set()
        self.join()
        if self._error:
            raise self._error


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["basic", "pd"])
def test_agents_restart_under_load(place: Place, how: signal.Signals, mode: str) -> None:
    """No request is lost, no QP ends, and renewals go on, whichever agent was restarted."""
    options = {"mode": mode, "qps": 2}
    with srdma.listen(
        ("127.0.0.1", 0), place.b.pd, identity="host-b", peer=A, **options
    ) as listener:
        accepted = run(listener.accept, WAIT)
        client = srdma.connect(listener.address, place.a.pd, identity="host-a", peer=B, **options)
        server = accepted()
        more = run(listener.accept, WAIT)  # has the listening socket passed to the new agent
        load = Load(client, place.b)
        for agent in place.agents:
            agent.restart(how)
            client.rekey(timeout=WAIT)
            server.rekey(timeout=WAIT)
            assert client.alive() and server.alive()
        before = load.done
        while load.done < before + 100:
            time.sleep(0.01)
        load.stop()
        # The agents admit new connections, and end the old ones.
        with srdma.connect(listener.address, place.a.pd, identity="host-a", peer=B, **options):
            more()
        place.a.pd.rotate(WAIT) if mode == "pd" else None
        client.close()
        until(lambda: not server.alive())


def test_agents_restart_and_no_program_listens(site: Site, pki: Path, tmp_path: Path) -> None:
    """The sessions resume at the ports of the agents."""
    with two_hosts(site, pki, tmp_path, ports=True) as place:
        client, server = place.connect()  # it closes its listener
        load = Load(client, place.b)
        for agent in place.agents:
            agent.restart(signal.SIGKILL)
            client.rekey(timeout=WAIT)
            server.rekey(timeout=WAIT)
        until(lambda: load.done > 100)
        load.stop()
        assert client.alive() and server.alive()
