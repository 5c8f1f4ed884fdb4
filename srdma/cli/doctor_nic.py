"""Findings of `srdma doctor` about workers and agent of this machine (docs/smartnic.md 6)."""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from srdma._engine import host_device
from srdma.agent.access import proxy_status
from srdma.agent.client import SystemAgent
from srdma.agent.clock import CONTROL, PLAUSIBLE
from srdma.agent.policy import Policy
from srdma.agent.settings import Identity
from srdma.cli.finding import Finding, State
from srdma.context import agent_uid
from srdma.control import Control, Hello, HostKind, thread_path
from srdma.errors import Error
from srdma.identity import parse_certificates
from srdma.keyex.fields import ExchangeError

TIMEOUT = 2.0  # seconds for the answer of a worker
AGENT_TIMEOUT = 5.0  # seconds for the answer of an agent
SOON = dt.timedelta(days=7)


def running_workers(has_agent: bool = False) -> Finding:
    """The workers with a control socket in the folder of worker names, and $SRDMA_WORKER.

    has_agent: that one may be on another computer.
    """
    paths = sorted(Path(os.environ.get("XDG_RUNTIME_DIR", "/nowhere"), "srdma").glob("*.sock"))
    if "/" in (chosen := os.environ.get("SRDMA_WORKER", "")):
        paths += [Path(chosen)] if not has_agent or Path(chosen).exists() else []
    alive, dead = [], []
    for path in paths:
        try:
            alive.append(_describe(*_hellos(path)))
        except Error as error:
            dead.append(str(error))
    if dead:
        return Finding("workers", "note", "; ".join(alive + dead), "restart or remove the socket")
    if alive:
        return Finding("workers", "ok", ", ".join(alive))
    return Finding(
        "workers", "note", "no worker is running",
        "srdma-offload --name NAME --wire-dev shm:DIR, or use --embedded",
    )  # fmt: skip


def _hellos(path: Path, user: int | None = None) -> Iterator[Hello]:
    """The HELLO of each worker process. Raises Error if one does not answer."""
    thread = threads = 0
    while thread <= threads:
        place = thread_path(path, thread)
        with contextlib.closing(Control.connect(place, TIMEOUT, user)) as control:
            yield (hello := control.hello())
        thread, threads = thread + 1, hello.threads - 1


def _describe(first: Hello, *others: Hello) -> str:
    threads = f", {first.threads} worker processes" if others else ""
    return f"{first.name} (pid {first.pid}, wire {first.wire}{threads})"


def nic(file: Path) -> Iterator[Finding]:
    """The agent of a policy, its certificates and its worker."""
    try:
        policy = Policy(file)
    except Error as error:
        yield Finding("policy", "missing", str(error), "run this as the agent's user; agent.md 6")
        return
    yield _hosts(policy)
    named = [(identity.name, identity) for identity in policy.granted()]
    if policy.control:
        named.append(("[control]", policy.control_identity()))
    yield from (certificate(name, identity) for name, identity in named)
    yield _agent(policy)
    yield worker_for_hosts(policy)


def _hosts(policy: Policy) -> Finding:
    if policy.hosts:
        return Finding("policy", "ok", f"{policy.path}: hosts {', '.join(policy.hosts)}")
    return Finding(
        "policy", "note", f"{policy.path} has no [control]: no host can use this worker",
        "add [control] and [[host]] (docs/control-link.md 1.2) if this is a NIC",
    )  # fmt: skip


def certificate(name: str, identity: Identity) -> Finding:
    """Whether the clock and the certificates of an identity permit handshakes."""
    rule, chain = identity.clock, parse_certificates(identity.credentials.cert, name)
    if rule.demand == CONTROL:  # only the agent knows the time of a host
        rule = replace(rule, demand=PLAUSIBLE)
    try:
        rule.check(identity.credentials)
    except ExchangeError as error:
        return Finding("certificate", "missing", f"{name}: {error.text}", "start a time service")
    end = min(each.not_valid_after_utc for each in chain)
    left = end - dt.datetime.fromtimestamp(rule.clock.time(), dt.UTC)
    shown = f"{name}: {identity.credentials.identity}, until {end:%Y-%m-%d}"
    if left > SOON:
        return Finding("certificate", "ok", shown)
    state: State = "note" if left > dt.timedelta() else "missing"
    return Finding("certificate", state, shown, "issue a new one: srdma ca issue, or your CA")


def _agent(policy: Policy) -> Finding:
    try:
        status = proxy_status(SystemAgent(policy.socket, agent_uid(None)), AGENT_TIMEOUT)
    except Error as error:
        return Finding("agent", "note", str(error), "systemctl status srdma-agent")
    if status is not None:
        detail = f"a proxy is at {policy.socket}"
        return Finding("agent", "note", detail, "give proxy and agent different sockets")
    return Finding("agent", "ok", f"{policy.socket} answers")


def worker_for_hosts(policy: Policy) -> Finding:
    """The worker of the policy; if hosts use it, also its devices."""
    name = "policy's worker"
    try:
        first, *others = _hellos(policy.worker, policy.worker_user)
    except Error as error:
        return Finding(name, "note", str(error), "systemctl status srdma-worker@NAME")
    shown = _describe(first, *others)
    if not policy.hosts:
        return Finding(name, "ok", shown)
    if first.host_kind != HostKind.VERBS:
        return Finding(
            name, "note", f"{shown} serves programs of this machine only",
            "start it with --host-dev DEVICE (docs/smartnic.md 2)",
        )  # fmt: skip
    if first.host_device == device_at(first.wire):
        return Finding(
            name, "note", f"{shown}: legs and wire use the same device {first.host_device}",
            "give legs a device of their own, whose bridge has no uplink (docs/smartnic.md 2)",
        )  # fmt: skip
    return Finding(name, "ok", f"{shown}, device for hosts {first.host_device}")


def device_at(wire: str) -> str:
    """The RDMA device of this machine that has the address of a wire; "" if there is no such."""
    try:
        address = ipaddress.ip_address(wire.rpartition(":")[0].strip("[]"))
    except ValueError:
        return ""
    for device in host_device.devices():
        if any(gid.address == address for gid in host_device.gids(device)):
            return device
    return ""
