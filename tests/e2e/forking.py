"""A host that forks while it has a connection.

    python -m tests.e2e.forking WORKER IDENTITY HOST PORT CHILD

CHILD tells what the child does: "use" tries every call on what it inherited; "exit" leaves every
`with` block and ends normally; "stay" lives until it is killed. The parent prints the child's pid,
waits for the child's end unless it is told to stay, moves data both ways, and ends after it has
read a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator

import srdma
import srdma.aio
from srdma.mr import RemoteMR
from tests.e2e.load import ACCESS

SIZE = 100_000
WAIT = 120  # seconds for a connection; long enough for a busy machine


def uses(conn: srdma.Connection, mr: srdma.MR, identity: str) -> Iterator[Callable[[], object]]:
    """Yields every call that could reach the worker or the peer."""
    pd, qp, remote = mr.pd, conn.qp, RemoteMR.from_bytes(conn.data)
    ctx = pd.ctx
    yield ctx.connect
    yield ctx.stats
    yield lambda: srdma.PD(ctx)
    yield lambda: pd.alloc(10)
    yield lambda: pd.reg_mr(bytearray(10))
    yield pd.fileno
    yield pd.arm
    yield pd.drain
    yield lambda: pd.control
    yield lambda: srdma.SecureQP(pd)
    yield lambda: srdma.listen(("127.0.0.1", 0), pd, identity=identity)
    yield lambda: srdma.connect(("127.0.0.1", 1), pd, identity=identity)
    yield lambda: mr.buf
    yield mr.sge
    yield lambda: mr[0:1]
    yield mr.remote
    yield mr.capability
    yield mr.revoke
    yield lambda: qp.post_send(srdma.SendWR(1, data=b"x"))
    yield lambda: qp.post_recv(srdma.RecvWR(1))
    yield qp.poll
    yield lambda: qp.poll(1, None)
    yield lambda: qp.write(b"x", remote)
    yield lambda: qp.read(remote)
    yield lambda: qp.send(b"x")
    yield qp.recv
    yield conn.fileno
    yield conn.alive
    yield lambda: asyncio.run(wrapped(conn))


async def wrapped(conn: srdma.Connection) -> None:
    srdma.aio.QP(conn.qp)


def outcome(use: Callable[[], object]) -> str:
    try:
        return f"gave {use()!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def say(line: str) -> None:
    """Writes a line by one call: parent and child share an output that may be unbuffered, and their
    lines must not mix."""
    os.write(1, f"{line}\n".encode())


def child(how: str, conn: srdma.Connection, mr: srdma.MR, identity: str) -> None:
    if how == "use":
        for number, use in enumerate(uses(conn, mr, identity)):
            say(f"{number} {outcome(use)}")
    elif how == "stay":
        signal.pause()
    sys.exit(0)


def main(worker: str, identity: str, host: str, port: str, how: str) -> None:
    with srdma.Context(worker) as ctx, srdma.PD(ctx) as pd:
        conn = srdma.connect((host, int(port)), pd, identity=identity, timeout=WAIT)
        with conn, pd.alloc(SIZE, ACCESS, scope="pd") as mr:
            pid = os.fork()
            if not pid:
                child(how, conn, mr, identity)
            say(f"child {pid}")
            if how != "stay":
                assert os.waitpid(pid, 0) == (pid, 0)
            remote = RemoteMR.from_bytes(conn.data)
            data = os.urandom(SIZE)
            conn.qp.write(data, remote)
            assert conn.qp.read(remote, 0, SIZE) == data
            conn.qp.send(b"from the parent")
            assert conn.qp.recv().data == b"to the parent"
            say("well")
            sys.stdin.readline()


if __name__ == "__main__":
    main(*sys.argv[1:])
