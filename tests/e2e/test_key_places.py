"""K_PD, K_PDmem and K_MR are only in their owner's worker (protocol.md 3.4, 6.1). Secrets derived
from a rotated K_PD are only in the workers that use them and in the agents (8.5). A host has
neither its private key nor a traffic secret (agent.md 1).

Two hosts in key mode pd+mem, each with a worker, and a tap between the workers. The test asks B's
worker for derived secrets, and finds the keys in its memory from which these are derived. Then it
searches everything else for the keys: the memory of all other processes, as in a core dump and with
registered memory, each packet on the wire and each control message.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from srdma import Capability
from srdma.control import Control, KeyRequest, QPRequest
from srdma.demo.stage import EmbeddedPair, HostProcess
from srdma.embedded import Embedded
from tests.daemon import until
from tests.e2e.agents import start
from tests.e2e.conftest import WAIT, A, B
from tests.e2e.key_host import BLOCK, REGION
from tests.memory import heap_of, holds, private_key
from tests.reference.kdf import kdf

GENERATION = bytes(range(8))
PEER_EID, PEER_QPN = bytes(range(16)), 77
WORD = 4  # alignment in bytes of the C structs that hold the keys
# Least number of different values among the 16 bytes of a key. One random key in 10^6 has fewer.
DISTINCT = 9
LEGS = 48  # index of the gauge `legs` in STATS


def candidates(heap: bytes) -> Iterator[int]:
    """Yields the offsets where a key of 16 bytes may be."""
    for at in range(0, len(heap) - 64, WORD):
        if heap[at] | heap[at + 1] and len(set(heap[at : at + 16])) >= DISTINCT:
            yield at


def find(heap: bytes, label: str, context: bytes, wanted: bytes) -> int:
    """Returns the offset of the parent key of a known derived key."""
    for at in candidates(heap):
        if kdf(heap[at : at + 16], label, context, 16) == wanted:
            return at
    pytest.fail(f"the parent key of a known {label!r} key was not found in its owner's heap")


def children_of(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        return [int(child) for child in children.read().split()]


class Scene:
    """Two workers with a tap between them, and their connected hosts."""

    def __init__(self, stack: ExitStack, pki) -> None:
        nics = stack.enter_context(Embedded())
        self.pair = EmbeddedPair(nics, "", unprotected=False)
        stack.callback(self.pair.tap.close)
        self.pair.tap.wait_until_up()
        self.a, self.b = (
            stack.enter_context(closing(HostProcess("tests.e2e.key_host"))) for _ in range(2)
        )
        for host in (self.a, self.b):
            host.wait_until_up()
        self.a.ask("open", worker=str(self.pair.a))
        self.opened = self.b.ask("open", worker=str(self.pair.b))
        options = {"mode": "pd+mem", "timeout": WAIT}
        address = self.b.ask("serve", options={"identity": str(pki / "b"), "peer": A, **options})
        self.b.request("accept")
        self.a.ask(
            "connect",
            address=address["address"],
            options={"identity": str(pki / "a"), "peer": B, **options},
        )
        self.b.answer()

    def use(self, offset: int, length: int) -> bytes:
        """A writes, sends and reads with a capability. Returns its token."""
        token: bytes = self.b.ask("grant", offset=offset, length=length)["token"]
        self.b.request("recv", size=100)
        assert self.a.ask("use", token=token)["right"]
        assert self.b.answer()["data"] == b"done"
        return token


def secrets_of(control: Control, leg: int, size: int) -> tuple[bytes, bytes]:
    """Returns a secret that the worker derives from its K_PD, and the context of the derivation."""
    info = control.init(QPRequest(leg, 1, 1))
    secret, _ = control.key(KeyRequest(info.qpn, size, GENERATION, PEER_EID, PEER_QPN))
    control.destroy(info.qpn)
    own = info.eid + info.qpn.to_bytes(4, "big")
    return bytes(secret[:size]), own + PEER_EID + PEER_QPN.to_bytes(4, "big") + GENERATION


def k_pd_of_owner(scene: Scene) -> tuple[bytes, int]:
    """Returns the heap of B's worker and the offset of its K_PD16."""
    heap = heap_of(scene.pair.workers[1].pid)
    with closing(Control.connect(scene.pair.b)) as control:
        leg = control.attach(scene.opened["token"])
        secret, context = secrets_of(control, leg, 16)
        at = find(heap, "qp rx", context, secret)
        secret, context = secrets_of(control, leg, 32)
    k_pd32 = heap[at + 16 : at + 48]
    assert kdf(k_pd32, "qp rx", context, 32) == secret  # layout of csrc/session/pdkeys.h
    return heap, at


def secret_to_owner(scene: Scene) -> bytes:
    """Returns S of the direction from A to B. The generation is stored beside the ends
    (csrc/session/pdkeys.h)."""
    b, a = scene.b.ask("end"), scene.a.ask("end")
    heap, at = k_pd_of_owner(scene)
    ends = b"".join(end["eid"] + end["qpn"].to_bytes(4, sys.byteorder) for end in (b, a))
    found = heap.index(ends) + len(ends)
    generation = heap[found : found + 8]
    context = b"".join(end["eid"] + end["qpn"].to_bytes(4, "big") for end in (b, a))
    return kdf(heap[at : at + 16], "qp rx", context + generation, 16)


def keys_of_owner(scene: Scene) -> dict[str, bytes]:
    """Returns K_PD16, K_PD32, K_PDmem and K_MR from the heap of B's worker."""
    heap, at = k_pd_of_owner(scene)
    whole = Capability.from_bytes(scene.b.ask("grant", offset=0, length=REGION)["token"])
    root = whole.to_bytes()[64:80]  # the first key of the token: the root node for READ (6.2)
    mr = find(heap, "root", b"\1", root)
    return {
        "K_PD16": heap[at : at + 16],
        "K_PD32": heap[at + 16 : at + 48],
        "K_PDmem": heap[at + 96 : at + 112],  # after the previous K_PD
        "K_MR": heap[mr : mr + 16],
    }


ONLY_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may read the memory of processes that are not dumpable"
)


@ONLY_ROOT
# RFC 5042 X6; review A4
def test_only_the_owner_has_the_keys(pki):
    with ExitStack() as stack:
        scene = Scene(stack, pki)
        token = scene.use(BLOCK, REGION // 2)
        keys = keys_of_owner(scene)
        worker_a, worker_b = (worker.pid for worker in scene.pair.workers)
        assert holds(worker_b, list(keys.values())) == len(keys)

        hosts = [scene.a.pid, scene.b.pid]
        agents = [child for host in hosts for child in children_of(host)]
        assert len(agents) == 2
        for pid in (worker_a, *hosts, *agents, scene.pair.tap.pid):
            assert holds(pid, list(keys.values())) == 0, f"process {pid}"

        said = [m for host in (scene.a, scene.b) for m in host.ask("messages")["messages"]]
        packets = scene.pair.capture()
        assert len(said) > 20 and len(packets) > REGION // 2 // BLOCK
        for name, key in keys.items():
            assert not any(key in message for message in said), name
            assert not any(key in packet for packet in packets), name
        # Control: the same search finds the keys in the token, which is sent to the holder.
        granted = token[64:80]
        assert any(granted in message for message in said)
        assert holds(scene.a.pid, [granted]) == 1


@ONLY_ROOT
# RFC 5042 X6; review A43
def test_no_worker_has_keys_when_the_hosts_have_ended(pki):
    """A43, V23: a dump of a worker after close holds none of them."""
    with ExitStack() as stack:
        scene = Scene(stack, pki)
        token = scene.use(BLOCK, REGION // 2)
        keys = [*keys_of_owner(scene).values(), secret_to_owner(scene), token[64:80]]
        workers = [worker.pid for worker in scene.pair.workers]
        assert holds(workers[1], keys) >= 4 and holds(workers[0], keys) >= 1
        scene.a.close()
        scene.b.close()
        for control in (scene.pair.a, scene.pair.b):
            with closing(Control.connect(control)) as client:
                until(lambda client=client: client.stats()[LEGS] == 0)
        assert [holds(pid, keys) for pid in workers] == [0, 0]


@ONLY_ROOT
# review A12
def test_hosts_have_no_private_keys(pki):
    with ExitStack() as stack:
        scene = Scene(stack, pki)
        for host, name in ((scene.a, "a"), (scene.b, "b")):
            (agent,) = children_of(host.pid)
            key = private_key(pki / f"{name}.key")
            assert holds(agent, key) > 0
            assert holds(host.pid, key) == 0


@ONLY_ROOT
def test_new_secrets_are_in_no_other_process(pki):
    with ExitStack() as stack:
        scene = Scene(stack, pki)
        scene.use(0, BLOCK)
        before = secret_to_owner(scene)
        worker_a = scene.pair.workers[0].pid
        assert holds(worker_a, [before]) == 1
        assert scene.b.ask("rotate")["serial"] >= 1
        scene.use(BLOCK, BLOCK)
        after = secret_to_owner(scene)
        assert after != before
        assert holds(worker_a, [after]) == 1 and holds(worker_a, [before]) == 0

        for pid in (scene.a.pid, scene.b.pid, scene.pair.tap.pid):
            assert holds(pid, [before, after]) == 0, f"process {pid}"
        said = [m for host in (scene.a, scene.b) for m in host.ask("messages")["messages"]]
        for text in (*said, *scene.pair.capture()):
            assert before not in text and after not in text


def logged(path: Path) -> dict[str, list[bytes]]:
    """The secrets of a key log, by direction."""
    assert path.stat().st_mode & 0o777 == 0o600
    found: dict[str, list[bytes]] = {"tx": [], "rx": []}
    for line in path.read_text().splitlines():
        name, *fields = line.split()
        if name == "SRDMA_SECRET":
            found[fields[1]].append(bytes.fromhex(fields[3]))
    assert "EXPORTER_SECRET" in path.read_text()
    return found


@ONLY_ROOT
def test_programs_of_system_agents_have_no_secrets(pki, tmp_path):
    """Neither while QPs are open nor after a renewal; the test knows the secrets by the key log."""
    for name in ("a.pem", "a.key", "b.pem", "b.key", "ca.pem"):
        (tmp_path / name).write_bytes((pki / name).read_bytes())
    with ExitStack() as stack:
        nics = stack.enter_context(Embedded())
        workers = [nics.start("a"), nics.start("b")]
        logs = [tmp_path / "a.log", tmp_path / "b.log"]
        hosts = []
        for name, worker, log in zip("ab", workers, logs, strict=True):
            agent = start(tmp_path, name, worker.control, log)
            stack.callback(agent.audit)
            host = stack.enter_context(closing(HostProcess("tests.e2e.key_host")))
            host.wait_until_up()
            host.ask("open", worker=str(worker.control), agent=str(agent.socket))
            hosts.append(host)
        a, b = hosts
        address = b.ask("serve", options={"identity": "host-b", "timeout": WAIT})["address"]
        b.request("accept")
        a.ask("connect", address=address, options={"identity": "host-a", "timeout": WAIT})
        b.answer()
        first = [logged(log) for log in logs]
        a.ask("rekey")
        both = [logged(log) for log in logs]
        assert first[0] == {"tx": first[1]["rx"], "rx": first[1]["tx"]}
        assert [len(both[0][direction]) for direction in ("tx", "rx")] == [2, 2]
        secrets = [*both[0]["tx"], *both[0]["rx"]]
        for host, name in zip(hosts, "ab", strict=True):
            assert holds(host.pid, [*secrets, *private_key(pki / f"{name}.key")]) == 0
        for worker in workers:
            assert holds(worker.pid, secrets) > 0
