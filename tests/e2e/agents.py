"""System agents for tests: `srdma agent` with a policy of one identity."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

import srdma
from srdma.identity import parse_certificates, parse_key
from tests import daemon
from tests.e2e.conftest import WAIT, A, B, Host, Site, run
from tests.ports import free_port


@dataclass
class Agent:
    """A running `srdma agent`."""

    policy: Path
    socket: Path
    process: subprocess.Popen[str]
    user: int | None = None  # None: that of this process

    def audit(self) -> list[dict[str, object]]:
        """Ends the agent. Returns its audit lines."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=WAIT)
        assert self.process.returncode == 0, err
        assert not self.socket.exists()
        return [json.loads(line) for line in err.splitlines()]

    def reload(self, event: str = "policy") -> dict[str, object]:
        """Lets it read its policy. Returns the audit line of this event, after which it is done."""
        self.process.send_signal(signal.SIGHUP)
        assert self.process.stderr
        for line in self.process.stderr:
            if (found := json.loads(line))["event"] == event:
                return dict(found)
            assert found["event"] != "policy-refused", found
        raise AssertionError(f"the agent ended before it told {event}")

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def restart(self, how: signal.Signals) -> None:
        """Ends the agent by a signal, and starts another one with the same policy."""
        self.process.send_signal(how)
        self.process.communicate(timeout=WAIT)
        self.start()

    def start(self) -> None:
        """Starts another one with the same policy."""
        self.process = launch(self.policy, user=self.user)

    def change(self, old: str, new: str) -> None:
        text = self.policy.read_text()
        assert old in text
        self.policy.write_text(text.replace(old, new))


def start(
    folder: Path,
    name: str,
    worker: Path,
    key_log: Path | None = None,
    *,
    port: bool = False,
    listen: str = "",
    peers: str = "",
) -> Agent:
    """port: the agent has one; listen: its address and port. peers: entries [[peer]]."""
    policy, path = folder / f"{name}.toml", folder / f"agent-{name}.sock"
    listen = f"127.0.0.1:{free_port()}" if port else listen
    listen = f'listen = "{listen}"\n' if listen else ""
    policy.write_text(
        f'{listen}worker = "{worker}"\nsocket = "{path}"\nkey_log = {str(bool(key_log)).lower()}\n'
        f'[[identity]]\nname = "host-{name}"\npath = "{name}"\npeers = ["spiffe://test/*"]\n'
        + peers
    )
    return Agent(policy, path, launch(policy, key_log))


def launch(
    policy: Path, key_log: Path | None = None, user: int | None = None
) -> subprocess.Popen[str]:
    """An agent that has started. It may have adopted sessions before."""
    command = [sys.executable, "-m", "srdma", "agent", "--config", str(policy)]
    command += ["--key-log", str(key_log)] if key_log else []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, user=user, group=user)
    assert process.stderr
    while (line := json.loads(process.stderr.readline()))["event"] != "started":
        assert line["event"] == "adopted"
    return process


@dataclass
class Place:
    """Two hosts with a system agent each; their identities are named host-a and host-b."""

    a: Host
    b: Host
    agents: tuple[Agent, Agent]
    address: str = "127.0.0.1"  # of host b

    def connect(self, identity: str = "host-a") -> tuple[srdma.Connection, srdma.Connection]:
        with srdma.listen((self.address, 0), self.b.pd, identity="host-b", peer=A) as listener:
            accepted = run(listener.accept, WAIT)
            client = srdma.connect(listener.address, self.a.pd, identity=identity, peer=B)
            return client, accepted()


@contextlib.contextmanager
def two_hosts(site: Site, pki: Path, folder: Path, *, ports: bool = False) -> Iterator[Place]:
    """ports: the agents have ports."""
    for name in ("a.pem", "a.key", "b.pem", "b.key", "ca.pem"):
        (folder / name).write_bytes((pki / name).read_bytes())
    with contextlib.ExitStack() as stack:
        agents, hosts = [], []
        for name, worker in (("a", site.a), ("b", site.b)):
            agent = start(folder, name, worker.control, port=ports)
            stack.callback(agent.kill)
            agents.append(agent)
            ctx = stack.enter_context(srdma.Context(worker.control, agent=agent.socket))
            hosts.append(Host(ctx, stack.enter_context(srdma.PD(ctx))))
        yield Place(*hosts, (agents[0], agents[1]))


GIDS = {"a": ("127.0.0.1", A), "b": ("127.0.0.2", B)}  # name of a host -> GID, identity
PEER = '[[peer]]\ngid = "{gid}"\nagent = {port}\nidentity = "{identity}"\n'
NAME = '[[identity]]\nname = "{name}"\npath = "{name}"\n'  # another one of the same identity


# The groups that programs of a host may use, with all GIDs.
GROUP = '[[group]]\ngid = "230.0.0.0/8"\nidentities = ["host-{name}"]\n'


# Starts the worker of a host, by its name, with options: its control socket.
StartWorker = Callable[[str, Sequence[str]], Path]


@contextlib.contextmanager
def gid_hosts(
    pki: Path,
    folder: Path,
    start_worker: StartWorker | None = None,
    gids: Mapping[str, tuple[str, str]] = GIDS,
) -> Iterator[Place]:
    """Hosts a and b, each with a worker, whose policies know each other's GIDs. start_worker:
    default: an embedded one with three threads."""
    port = free_port()
    for file in ("a.pem", "a.key", "b.pem", "b.key", "ca.pem"):
        (folder / file).write_bytes((pki / file).read_bytes())
    peers = "".join(PEER.format(gid=gid, port=port, identity=uri) for gid, uri in gids.values())
    with contextlib.ExitStack() as stack:

        def embedded(name: str, options: Sequence[str]) -> Path:
            worker = daemon.worker(folder, name, *options, "--workers", "3")
            return stack.enter_context(worker).control

        agents, hosts = [], []
        for name, (gid, _) in gids.items():
            worker = (start_worker or embedded)(name, ("--gid", gid))
            more = peers + NAME.format(name=name) + GROUP.format(name=name)
            listen = f"{gid}:{port}"
            agent = start(folder, name, worker, listen=listen, peers=more)
            stack.callback(agent.kill)
            agents.append(agent)
            ctx = stack.enter_context(srdma.Context(worker, agent=agent.socket))
            hosts.append(Host(ctx, stack.enter_context(srdma.PD(ctx))))
        yield Place(*hosts, (agents[0], agents[1]), gids["b"][0])


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def revoke(folder: Path, cert: Path, last: dt.timedelta) -> None:
    """Writes crl.pem: the CA of this folder revoked the certificate."""
    now = dt.datetime.now(dt.UTC)
    ca = parse_certificates((folder / "ca.pem").read_bytes(), "ca")[0]
    entry = x509.RevokedCertificateBuilder(
        parse_certificates(cert.read_bytes(), "cert")[0].serial_number, now
    ).build()
    crl = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now - dt.timedelta(days=2))
        .next_update(now + last)
        .add_revoked_certificate(entry)
        .sign(parse_key((folder / "ca.key").read_bytes(), "key"), hashes.SHA256())
    )
    (folder / "crl.pem").write_bytes(crl.public_bytes(serialization.Encoding.PEM))
