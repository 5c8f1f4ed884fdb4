"""`srdma agent --proxy`: the proxy as a process."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from srdma.agent.audit import Audit, AuditLog, stderr_in_a_thread
from srdma.agent.harden import harden
from srdma.agent.heap import collect_less
from srdma.agent.remote.forward import Forward
from srdma.agent.remote.proxy import Proxy
from srdma.agent.remote.proxy_file import ProxyFile
from srdma.agent.serving import Signals, accept_all, bound, notify_ready, reload


def run(file: ProxyFile) -> None:
    """A proxy, until SIGTERM or SIGINT. Raises LocalError."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(stderr_in_a_thread())
        listening = [stack.enter_context(bound(place, file.kind)) for place in file.places()]
        harden()
        collect_less()
        asyncio.run(_serve(file, listening, AuditLog()))


async def _serve(file: ProxyFile, listening: list[socket.socket], audit: Audit) -> None:
    proxy = Forward(file, audit) if file.forward else Proxy(file, audit)
    signals = Signals()

    async def serve() -> None:
        await asyncio.gather(started(), *map(accept_all, proxy.takers(), listening))

    async def started() -> None:
        await proxy.tried.wait()
        audit("started", socket=str(file.socket), nic=f"{file.nic[0]}:{file.nic[1]}")
        notify_ready()

    works = [proxy.run(), serve(), reload(file, proxy.withdraw, signals.hup, audit)]
    await signals.until_over(works, proxy.close)
