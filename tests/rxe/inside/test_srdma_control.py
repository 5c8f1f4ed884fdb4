"""Hosts whose NICs have no agent: control goes through srdma-control and the agents of the hosts
(control-link.md 7), and legs over rxe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma import Access
from srdma.demo.rxe_stage import RxeStage, worker_options
from srdma.errors import Error, Timeout
from tests.e2e.agents import PEER, Agent, start, until
from tests.e2e.conftest import A, B, run
from tests.e2e.nic import make_files
from tests.e2e.small_nic import SmallNic, small_nic
from tests.e2e.test_run import LIBRARY, ended
from tests.ports import free_port
from tests.rxe.inside.test_run import FUNCTIONS, all_functions

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
WAIT = 120


@pytest.fixture
def nics(stage: RxeStage, tmp_path: Path) -> Iterator[list[SmallNic]]:
    with contextlib.ExitStack() as stack:
        found = []
        for name, worker in (("a", stage.secure.a), ("b", stage.secure.b)):
            folder = tmp_path / name
            folder.mkdir()
            if found:
                for file in found[0].folder.glob("*.*"):
                    if file.suffix in (".pem", ".key"):
                        (folder / file.name).write_bytes(file.read_bytes())
            else:
                make_files(folder)
            found.append(stack.enter_context(small_nic(folder, worker)))
        yield found


def test_data_of_two_hosts(nics: list[SmallNic]) -> None:
    """The agents on the hosts give the keys. The end of a control link ends its legs."""
    with contextlib.ExitStack() as stack:
        pds = []
        for name, nic in zip("ab", nics, strict=True):
            proxy = nic.proxy()
            agent = start(nic.folder, name, proxy.socket)
            stack.callback(agent.kill)
            ctx = stack.enter_context(srdma.Context(proxy.socket, agent=agent.socket, timeout=WAIT))
            pds.append(stack.enter_context(srdma.PD(ctx)))
        source, sink = pds[0].alloc(1 << 20), pds[1].alloc(1 << 20, ALL, scope="pd")
        source.buf[:] = os.urandom(1 << 20)
        with srdma.listen(
            ("127.0.0.1", 0), pds[1], identity="host-b", peer=A, timeout=WAIT
        ) as listener:
            accepted = run(listener.accept, WAIT)
            client = srdma.connect(
                listener.address, pds[0], identity="host-a", peer=B, timeout=WAIT
            )
            server = accepted()
        assert (client.identity, server.identity) == (B, A)
        client.qp.write(source, sink.remote(), timeout=WAIT)
        assert sink.buf == source.buf
        client.rekey(WAIT)
        client.qp.write(source, sink.remote(), timeout=WAIT)
        nics[0].process.kill()
        nics[0].process.wait()

        def ended() -> bool:
            try:
                client.qp.write(source, sink.remote(), timeout=WAIT)
            except Error:
                return True
            return False

        until(ended)
        nics[0].start()


def remote_agent(
    stack: contextlib.ExitStack, folder: Path, name: str, worker: Path, **options: str
) -> Agent:
    """An agent of the host whose programs may come back."""
    agent = start(folder, name, worker, **options)  # type: ignore[arg-type]
    stack.callback(agent.kill)
    agent.change("worker =", "worker_remote = true\nworker =")
    agent.restart(signal.SIGTERM)
    return agent


@pytest.mark.parametrize("who", ["srdma-control", "proxy"])
def test_programs_come_back(nics: list[SmallNic], who: str) -> None:
    """One end of the control link starts again while requests go on. The agent comes back too."""
    with contextlib.ExitStack() as stack:
        pds, proxies = [], []
        for name, nic in zip("ab", nics, strict=True):
            proxies.append(nic.proxy())
            agent = remote_agent(stack, nic.folder, name, proxies[-1].socket)
            worker = proxies[-1].socket
            ctx = stack.enter_context(srdma.Context(worker, agent=agent.socket, timeout=WAIT))
            assert not ctx.remote
            pds.append(stack.enter_context(srdma.PD(ctx)))
        source, sink = pds[0].alloc(4096), pds[1].alloc(4096, ALL, scope="pd")
        source.buf[:] = os.urandom(4096)
        address = ("127.0.0.1", 0)
        listener = srdma.listen(address, pds[1], identity="host-b", peer=A, timeout=WAIT)
        stack.enter_context(listener)
        accepted = run(listener.accept, WAIT)
        client = srdma.connect(listener.address, pds[0], identity="host-a", peer=B, timeout=WAIT)
        server = accepted()
        ended = nics[0] if who == "srdma-control" else proxies[0]
        ended.process.kill()
        ended.process.wait()
        for _ in range(20):
            client.qp.write(source, sink.remote(), timeout=WAIT)
        ended.start()
        assert sink.buf == source.buf
        made = until_made(pds[0])
        client.rekey(WAIT)
        assert client.qp.read(sink.remote(), 0, 4096) == source.buf
        made.close()
        assert client.alive() and server.alive()


def until_made(pd: srdma.PD) -> srdma.MR:
    """A request that was under way when the link ended raises Timeout."""
    while True:
        with contextlib.suppress(Timeout):
            return pd.alloc(8192)


@pytest.mark.skipif(not LIBRARY.exists(), reason="no build/run/libibverbs.so.1: make run")
def test_unmodified_programs(stage: RxeStage, tmp_path: Path) -> None:
    """`srdma run` on such a host: the control link carries what functions of verbs need
    (docs/run.md)."""
    make_files(tmp_path)
    nic_end, port = stage.ends[0], free_port()
    options = [*worker_options(nic_end), "--gid", nic_end.address]
    worker = stage.nics.launch("run-control", options).control
    with small_nic(tmp_path, worker) as nic, contextlib.ExitStack() as stack:
        proxy = nic.proxy().socket
        own = {"listen": f"{nic_end.address}:{port}"}
        own["peers"] = PEER.format(gid=nic_end.address, port=port, identity=A)
        agent = remote_agent(stack, tmp_path, "a", proxy, **own)
        config = tmp_path / "run.toml"
        config.write_text(
            f'worker = "{proxy}"\nagent = "{agent.socket}"\nidentity = "host-a"\n'
            f'[[peer]]\ngid = "{nic_end.address}"\nallow = ["{A}"]\n'
        )
        config.chmod(0o600)
        command = [sys.executable, "-m", "srdma", "run", "--config", str(config), "--"]
        process = subprocess.Popen(
            [*command, *all_functions()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        code, out = ended(process)
    assert code == 0, out
    assert out.count("[  PASSED  ] 1 test(s).") == len(FUNCTIONS), out
