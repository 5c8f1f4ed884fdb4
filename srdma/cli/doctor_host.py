"""Findings of `srdma doctor` about the agent of this host's programs, and the NIC behind a proxy
(docs/smartnic.md 6)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

from srdma.agent.access import proxy_status
from srdma.agent.client import SystemAgent
from srdma.agent.clock import TOLERANCE
from srdma.agent.remote.proxy_file import ProxyFile
from srdma.agent.settings import Identity
from srdma.cli.doctor_nic import AGENT_TIMEOUT, certificate
from srdma.cli.finding import Finding
from srdma.cli.leg_link import leg_link
from srdma.context import Context, agent_uid
from srdma.control import HostKind
from srdma.errors import Error
from srdma.native.constants import RING_LEAST
from srdma.pd import PD


def agents(file: Path | None = None) -> Iterator[Finding]:
    """The agent of $SRDMA_AGENT, or the proxy of a file. If it is a proxy: its NIC, and the worker
    there."""
    path = os.environ.get("SRDMA_AGENT", "")
    if file:
        try:
            proxy = ProxyFile(file)
        except Error as error:
            yield Finding("proxy file", "missing", str(error), "docs/control-link.md 1.1 and 7")
            return
        yield proxy_file(proxy)
        yield certificate("control", Identity(proxy.control, ()))
        if proxy.forward:
            yield from worker_of_nic("", proxy.socket)
            return
        path = str(proxy.socket)
    if path:
        yield from _agent(path)


def proxy_file(file: ProxyFile) -> Finding:
    if not file.forward:
        return Finding("proxy file", "ok", str(file.path))
    return Finding(
        "proxy file", "note",
        f"{file.path} forwards the worker of a NIC without an agent: root of this host sees the "
        "private keys of identities and the traffic secrets",
        "run the agent on the NIC if that has Python; check the agent here by --config",
    )  # fmt: skip


def _agent(path: str) -> Iterator[Finding]:
    try:
        status = proxy_status(SystemAgent(Path(path), agent_uid(None)), AGENT_TIMEOUT)
    except Error as error:
        yield Finding("agent", "note", str(error), "start it, or unset SRDMA_AGENT")
        return
    if status is None:
        yield Finding("agent", "ok", f"{path} answers")
    elif "text" in status:
        yield Finding(
            "proxy", "note", f"{path}: no link to the NIC at {status['nic']}: {status['text']}",
            "see the log of the NIC's agent, and docs/control-link.md",
        )  # fmt: skip
    else:
        yield link_to_nic(path, status)
        yield from worker_of_nic(path)


def link_to_nic(path: str, status: dict[str, Any]) -> Finding:
    """status: the event of the proxy."""
    detail = (
        f"{path}: linked to {status['peer']} on {status['computer']} at {status['nic']}, whose "
        f"clock is {abs(status['ahead'])} s {'ahead' if status['ahead'] >= 0 else 'behind'}"
    )
    if abs(status["ahead"]) <= TOLERANCE:
        return Finding("proxy", "ok", detail)
    return Finding("proxy", "note", detail, "set the clocks, for example by a time service")


def worker_of_nic(path: str, worker: Path | None = None) -> Iterator[Finding]:
    """The worker of $SRDMA_WORKER on the NIC, and the leg to it. The other findings are about this
    computer. path: of the proxy's socket. worker: instead of both, a socket of `forward`."""
    try:
        with Context(worker, agent=path) as ctx:
            hello = ctx.hello
            yield Finding(
                "NIC's worker", "ok",
                f"{hello.name}: wire {hello.wire}, its device for hosts {hello.host_device}, "
                f"{hello.threads} processes"
                + ("" if worker else "; srdma doctor --config FILE there checks the rest"),
            )  # fmt: skip
            if hello.host_kind == HostKind.VERBS:
                yield leg_link(leg_address(ctx), ctx.device)
                yield leg(ctx)
    except Error as error:
        yield Finding(
            "NIC's worker", "note", str(error),
            "see the log of the proxy; this user must be that of the proxy" if worker else
            "SRDMA_WORKER must be its path on the NIC, and this user one of the proxy's file",
        )  # fmt: skip


def leg_address(ctx: Context) -> str:
    """IP address of the NIC at which the worker takes legs: it tells it for a leg that is not
    connected. Raises Error."""
    with contextlib.closing(ctx.connect()) as control:
        info, _ = control.open(RING_LEAST)
        return info.address.rpartition(":")[0].strip("[]")


def leg(ctx: Context) -> Finding:
    """Whether a leg can be made."""
    if util.find_spec("pyverbs") is None:
        return Finding("leg", "note", "not tried without pyverbs", "see the line pyverbs")
    try:
        PD(ctx, RING_LEAST).close()
    except Error as error:
        return Finding(
            "leg", "note", str(error),
            "rping -s on the NIC and rping -c -a ADDRESS here test the devices without srdma",
        )  # fmt: skip
    return Finding("leg", "ok", "one was made over RDMA and closed")
