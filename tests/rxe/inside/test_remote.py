"""Hosts whose NICs are other computers, as far as one machine can show it: control goes through
proxies and the agents of the NICs (control-link.md), and legs over rxe."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import srdma
import srdma.aio
from srdma import Access, QPState, Right
from srdma._engine.host_device import INFINIBAND
from srdma.cli import doctor, doctor_host
from srdma.demo.rxe_stage import RxeStage
from srdma.errors import RemoteWCError
from srdma_bench.perf.measure import Client, Place, Plan, Server, offered
from tests.e2e.agents import Agent, until
from tests.e2e.conftest import A, B, run
from tests.e2e.nic import Nic, Proxy, make_files, nic_of, on_another_computer
from tests.e2e.test_c_library import Writer

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZE = 1 << 20
WAIT = 120
LISTEN = 'listen = ["127.0.0.1:7000-7009"]'


@dataclass
class Ends:
    """Two hosts, each with a PD at the worker of its NIC."""

    nics: list[Nic]
    proxies: list[Proxy]
    pds: list[srdma.PD]

    def connect(
        self, data: tuple[bytes, bytes] = (b"", b""), **options: object
    ) -> tuple[srdma.Connection, srdma.Connection]:
        """A connection of both hosts. Host b listens at its NIC. data: of host a and host b."""
        options |= {"timeout": WAIT}
        with srdma.listen(
            ("", 0), self.pds[1], identity="host-b", peer=A, data=data[1], **options
        ) as listener:
            assert 7000 <= listener.address[1] < 7010
            accepted = run(listener.accept, WAIT)
            client = srdma.connect(
                listener.address, self.pds[0], identity="host-a", peer=B, data=data[0], **options
            )
            return client, accepted()


@pytest.fixture(scope="module")
def ends(stage: RxeStage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    tmp_path = tmp_path_factory.mktemp("remote")
    make_files(tmp_path)
    with contextlib.ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        nics, pds = [], []
        for name, worker in (("a", stage.secure.a), ("b", stage.secure.b)):
            nic = stack.enter_context(nic_of(tmp_path, name, worker, left=LISTEN, right=LISTEN))
            nics.append(nic)
        proxies = [nics[0].proxy("left"), nics[1].proxy("right")]
        on_another_computer(monkeypatch)
        for nic, proxy in zip(nics, proxies, strict=True):
            ctx = stack.enter_context(srdma.Context(nic.worker, agent=proxy.socket, timeout=WAIT))
            assert ctx.remote
            pds.append(stack.enter_context(srdma.PD(ctx)))
        yield Ends(nics, proxies, pds)


def test_data_of_two_hosts(stage: RxeStage, ends: Ends) -> None:
    """WRITE, READ, SEND and atomics, renewal, and no plaintext on the wire."""
    stage.wire.forget()
    source, sink = ends.pds[0].alloc(SIZE), ends.pds[1].alloc(SIZE, ALL, scope="pd")
    source.buf[:] = os.urandom(SIZE)
    wanted = hashlib.sha256(source.buf).digest()
    client, server = ends.connect()
    with client, server:
        assert (client.identity, server.identity) == (B, A)
        client.qp.write(source, sink.remote())
        assert hashlib.sha256(sink.buf).digest() == wanted
        client.rekey(WAIT)
        back = ends.pds[0].alloc(SIZE)
        client.qp.read(sink.remote(), into=back)
        assert hashlib.sha256(back.buf).digest() == wanted
        stats = [pd.ctx.stats() for pd in ends.pds]
        assert all(of["packets_sealed"] and not of["packets_unprotected_sent"] for of in stats)
    secret = bytes(source.buf[:32])
    assert not any(secret in frame for frame in stage.secure.raw())


def test_key_modes_and_capabilities(ends: Ends) -> None:
    """Also rotation of the key of a PD, which only the agent may ask of the worker."""
    mine = ends.pds[0].alloc(4096)
    mine.buf[:] = os.urandom(4096)
    target = ends.pds[1].alloc(8192, ALL, proof=True)
    client, server = ends.connect(mode="pd+mem")
    with client, server:
        assert client.mode == "pd+mem"
        whole = target.capability(rights=Right.READ | Right.WRITE)
        client.qp.write(mine, whole, 100)
        assert target.buf[100:4196] == mine.buf
        rotated = run(ends.pds[1].rotate, WAIT)
        assert rotated() >= 1
        assert client.qp.read(whole, 100, 4096) == mine.buf
        target.revoke()
        with pytest.raises(RemoteWCError, match="PROOF_WRONG"):
            client.qp.write(mine, whole, 100)


def test_asyncio(ends: Ends) -> None:
    async def talk() -> bytes:
        async with await srdma.aio.listen(
            ("", 0), ends.pds[1], identity="host-b", peer=A, timeout=WAIT
        ) as listener:
            accepting = asyncio.ensure_future(listener.accept())
            client = await srdma.aio.connect(
                listener.address, ends.pds[0], identity="host-a", peer=B, timeout=WAIT
            )
            async with client, await accepting as server:
                receiving = asyncio.ensure_future(server.qp.recv())
                await client.qp.send(b"over two computers")
                return bytes((await receiving).data)

    assert asyncio.run(talk()) == b"over two computers"


def test_perf_in_c(ends: Ends) -> None:
    """The loads of `srdma perf` at workers that are on other computers. Their CPU time is not
    known."""
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(contextlib.closing(Place(pd, 1 << 14))) for pd in ends.pds]
        offers = places[0].offer(), places[1].offer()
        each = ends.connect(offers, qps=2, sq=16, rq=16)
        for connection in each:
            stack.enter_context(connection)
        a, b = (
            stack.enter_context(contextlib.closing(end(one, place, offered(one.data))))
            for end, one, place in zip((Client, Server), each, places, strict=True)
        )
        served = run(b.serve)
        for name in ("write_bw", "send_lat"):
            result = a.measure(Plan(name, 2048, 20))
            assert result.host == "C" and result.messages >= 20
            assert set(result.cpu) == {"host_cpu"}
        a.finish()
        served()


def test_doctor(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's list (docs/smartnic.md 6), with a leg. On one machine its link is not visible."""
    monkeypatch.setenv("SRDMA_WORKER", str(ends.nics[0].worker))
    found = list(doctor_host.agents(ends.proxies[0].policy))
    assert [(each.name, each.state) for each in found] == [
        ("proxy file", "ok"), ("certificate", "ok"), ("proxy", "ok"), ("NIC's worker", "ok"),
        ("leg's link", "ok"), ("leg", "ok"),
    ], found  # fmt: skip
    assert "is an address of this machine" in found[4].detail
    (sizes,) = doctor.mtu(Path("/sys/class/net"))
    assert sizes.state == "ok"
    assert doctor.devices(INFINIBAND).state == "ok"


@pytest.mark.parametrize("who", ["proxy", "agent of the NIC"])
def test_programs_come_back(ends: Ends, who: str) -> None:
    """One process of the control link starts again while requests go on. No request fails, and the
    program can make objects, connections and secrets afterwards."""
    source, sink = ends.pds[0].alloc(4096), ends.pds[1].alloc(4096, ALL, scope="pd")
    source.buf[:] = os.urandom(4096)
    ended: Agent = ends.proxies[0] if who == "proxy" else ends.nics[0].agent
    client, server = ends.connect()
    with client, server:
        ended.kill()
        for _ in range(20):
            client.qp.write(source, sink.remote())
        ended.start()
        assert sink.buf == source.buf
        made = until_made(lambda: ends.pds[0].alloc(8192))
        client.rekey(WAIT)
        assert client.qp.read(sink.remote(), 0, 4096) == source.buf
        made.close()
        assert client.alive() and server.alive()
        for end in ends.connect():
            end.close()


@pytest.fixture
def writer(stage: RxeStage, ends: Ends) -> Iterator[Writer]:
    """A program in C that does not find the control sockets of the workers in its file system."""
    workers = [nic.worker for nic in ends.nics]
    hide = 'mount -t tmpfs none "$0" && exec "$@"'
    (folder,) = {str(path.parent) for path in workers}
    made = Writer(
        workers,
        ends.proxies,
        {f"SRDMA_IDENTITY_{name}": f"host-{name.lower()}" for name in "AB"},
        ["unshare", "-m", "sh", "-c", hide, folder],
    )
    yield made
    made.kill()


def test_programs_in_c_come_back(writer: Writer, ends: Ends) -> None:
    """As above, with libsrdma."""
    for ended in (ends.proxies[0], ends.nics[0].agent):
        ended.kill()
        before = writer.does("count")
        while writer.does("count") < before + 20:
            pass
        writer.does("rest")  # else the emulated machine is too slow for the next line
        ended.start()
        writer.does("make")
        writer.does("renew")
    writer.does("connect")
    writer.ends()


def until_made(make: Callable[[], srdma.MR]) -> srdma.MR:
    """A request that was under way when the link ended raises Timeout."""
    while True:
        with contextlib.suppress(srdma.Timeout):
            return make()


def failed(qp: srdma.SecureQP) -> bool:
    qp.poll(1)
    return qp.state is QPState.ERR


def test_end_of_a_host(ends: Ends) -> None:
    """The proxy of host a ends: its QPs end at the peer, with a reason."""
    client, server = ends.connect()
    with server:
        ends.proxies[0].process.kill()
        until(lambda: failed(server.qp))
        assert server.qp.reason == "PEER_HOST_GONE"
    client.close()
