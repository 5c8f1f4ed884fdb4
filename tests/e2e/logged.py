"""A connection of two programs with system agents that write key logs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import srdma
from srdma import Access
from srdma.embedded import Worker
from tests.e2e.agents import start
from tests.e2e.conftest import WAIT, A, B, run

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
SIZE = 100_000  # bytes of the region


@contextlib.contextmanager
def logged_connection(
    pki: Path, folder: Path, workers: Sequence[Worker], **options: object
) -> Iterator[tuple[srdma.Connection, srdma.RemoteMR]]:
    """The client, and a region of the server. The agents write a.log and b.log in `folder`."""
    options.setdefault("timeout", WAIT)
    for name in ("a.pem", "a.key", "b.pem", "b.key", "ca.pem"):
        (folder / name).write_bytes((pki / name).read_bytes())
    with contextlib.ExitStack() as stack:
        pds = []
        for name, worker in zip("ab", workers, strict=True):
            agent = start(folder, name, worker.control, folder / f"{name}.log")
            stack.callback(agent.kill)
            ctx = stack.enter_context(srdma.Context(worker.control, agent=agent.socket))
            pds.append(stack.enter_context(srdma.PD(ctx)))
        with srdma.listen(
            ("127.0.0.1", 0), pds[1], identity="host-b", peer=A, **options
        ) as listener:
            accepted = run(listener.accept, WAIT)
            client = srdma.connect(listener.address, pds[0], identity="host-a", peer=B, **options)
            accepted()
        with pds[1].alloc(SIZE, ALL, scope="pd") as region:
            yield client, region.remote()


def work(client: srdma.Connection, remote: srdma.RemoteMR) -> None:
    client.qp.write(b"x" * SIZE, remote, timeout=WAIT)
    assert client.qp.read(remote, 0, SIZE, timeout=WAIT) == b"x" * SIZE
