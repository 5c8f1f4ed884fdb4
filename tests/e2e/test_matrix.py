"""Every suite, level and key mode carries WRITE, READ, atomics and SEND, and wrong keys are
refused.

The keys come from tests/keying.py: a TLS connection for each would take minutes.
"""

from __future__ import annotations

import errno
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace

import pytest

import srdma
from srdma import Access, Capability, Right
from srdma.control import Control
from srdma.errors import RemoteWCError
from srdma.keyex.offers import Suite
from srdma.native.suites import suites
from srdma.qp import SecureQP
from tests.e2e.conftest import WAIT, A, B, pattern, run
from tests.keying import End, Protection, attach, key, until_running

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
RIGHTS = Right.READ | Right.WRITE | Right.ATOMIC
LEVELS = ["none", "header", "packet", "aead"]
ROWS = [
    pytest.param(Suite(row["id"], level, row["tag_len"]), id=f"{row['name']}-{LEVELS[level]}")
    for row in suites()
    for level in row["levels"]
]
GCM = Suite(1, 3, 16)
MODES = ["basic", "pd", "mem", "pd+mem"]
CELLS = [(mode, "owner") for mode in MODES] + [("pd", "shared"), ("pd+mem", "shared")]
MEM_BIT = 2
REGION = 40_000
AGAIN = 200
DEAD = 0.4  # seconds that a request waits on a QP whose packets are dropped


@dataclass
class Ends:
    """Two hosts whose legs are open for a trust group or not, with regions
    for access without and with proofs."""

    a: srdma.PD
    b: srdma.PD
    control_a: Control
    control_b: Control
    plain: srdma.MR  # a region of b
    proven: srdma.MR  # a region of b that needs proofs
    capability: Capability  # for 9 nodes of `proven`

    @contextmanager
    def qps(self, timeout: float = WAIT):
        """Yields a QP of each host, not connected."""
        with (
            closing(SecureQP(self.a, 16, 16, timeout=timeout)) as client,
            closing(SecureQP(self.b, 16, 16, timeout=timeout)) as server,
        ):
            yield (
                client,
                server,
                End(self.control_a, client.info, A),
                End(self.control_b, server.info, B),
            )

    @contextmanager
    def connected(self, how: Protection):
        with self.qps() as (client, server, at_client, at_server):
            key(at_client, at_server, how)
            until_running(at_client, at_server, WAIT)
            client.connected = server.connected = True
            yield client, server


@contextmanager
def open_ends(site, group):
    with ExitStack() as stack:
        a, b = (
            stack.enter_context(
                srdma.PD(stack.enter_context(srdma.Context(worker.control)), group=group)
            )
            for worker in (site.a, site.b)
        )
        controls = [stack.enter_context(closing(attach(pd))) for pd in (a, b)]
        proven = b.alloc(REGION, ALL, proof=True, block_size=1024)
        capability = proven.capability(1024, 37 * 1024, rights=RIGHTS)
        yield Ends(a, b, *controls, b.alloc(REGION, ALL, scope="pd"), proven, capability)


@pytest.fixture(scope="module")
def both_policies(site):
    with open_ends(site, "") as owner, open_ends(site, "matrix") as shared:
        yield {"owner": owner, "shared": shared}


@pytest.mark.parametrize(("mode", "policy"), CELLS)
@pytest.mark.parametrize("suite", ROWS)
def test_carries_data(both_policies, suite, mode, policy):
    ends = both_policies[policy]
    how = Protection(suite, MODES.index(mode), policy == "shared")
    with ends.connected(how) as (client, server):
        check_one_sided(client, ends.plain.remote(), ends.plain.buf, 1)
        if how.mode & MEM_BIT:
            check_one_sided(client, ends.capability, ends.proven.buf[1024:], 2)
        check_send(client, server)
        if how.mode & MEM_BIT:
            with pytest.raises(RemoteWCError, match="PROOF_REQUIRED"):
                client.read(ends.proven.remote(), 0, 1, timeout=WAIT)


def check_one_sided(qp, where, memory, seed):
    """Transfers several packets and, with a capability, several nodes."""
    data = pattern(9001, seed)
    qp.write(data, where, 1020, timeout=WAIT)
    assert memory[1020 : 1020 + len(data)] == data
    assert qp.read(where, 1021, 9000, timeout=WAIT) == data[1:]
    was = int.from_bytes(memory[2048:2056], sys.byteorder)
    assert qp.fetch_add(where, 2048, 5, timeout=WAIT) == was
    assert qp.compare_and_swap(where, 2048, (was + 5) % (1 << 64), seed, timeout=WAIT) != was
    assert int.from_bytes(memory[2048:2056], sys.byteorder) == seed


def check_send(client, server):
    for sender, receiver, size in ((client, server, 5000), (server, client, 1)):
        message = run(receiver.recv, WAIT, size=size)
        sender.send(pattern(size, 3), imm=size, timeout=WAIT)
        assert message() == (pattern(size, 3), size, size)


OTHER = {"mode": lambda mode: mode ^ MEM_BIT, "suite": lambda _: 4}  # aes-128-ocb


def flip(name):
    """Returns a function that changes a field of KEYS, by one bit if it is a key."""

    def spoil(keys):
        value = getattr(keys, name)
        if isinstance(value, int):
            return replace(keys, **{name: OTHER[name](value)})
        return replace(keys, **{name: bytes([value[0] ^ 1]) + bytes(value[1:])})

    return spoil


# The end that gets a wrong value, the value, the policies that have it, and the worker that refuses
# a packet: b, the server's, refuses the OPEN, or a, the client's, refuses the response to it.
WRONG = [
    ("client", "tx_secret", "owner", "b"),
    ("server", "tx_secret", "owner", "a"),
    ("client", "rx_secret", "exporter", "a"),
    ("server", "rx_secret", "exporter", "b"),
    *[
        (side, name, "any", "b")
        for side in ("client", "server")
        for name in ("generation", "peer_eid", "mode", "suite")
    ],
]


def takes(mode, policy, where):
    """True if KEYS carries a field of `where` in this mode and policy."""
    return {"any": True, "owner": policy == "owner", "exporter": mode in ("basic", "mem")}[where]


@pytest.mark.parametrize(
    ("mode", "policy", "side", "name", "refuses"),
    [
        (*cell, side, name, refuses)
        for cell in CELLS
        for side, name, where, refuses in WRONG
        if takes(*cell, where)
    ],
)
def test_wrong_key(both_policies, mode, policy, side, name, refuses):
    ends = both_policies[policy]
    how = Protection(GCM, MODES.index(mode), policy == "shared")
    judge = {"a": ends.a, "b": ends.b}[refuses].ctx
    with ends.qps(DEAD) as (client, server, at_client, at_server):
        ends.plain.buf[:4] = b"kept"
        before = judge.stats()
        key(at_client, at_server, how, **{f"spoil_{side}": flip(name)})
        client.connected = server.connected = True
        with pytest.raises(srdma.WCError):
            client.write(b"lost", ends.plain.remote(), 0, timeout=WAIT)
        assert ends.plain.buf[:4] == b"kept"
        after = judge.stats()
        assert after["refused_tag"] > before["refused_tag"]
        assert after["packets_verified"] == before["packets_verified"]


def test_new_qps_have_other_keys(both_policies):
    """The new QPs are in the same PD and have the same peer. tests/c checks
    that old packets are refused."""
    ends, secrets = both_policies["owner"], set()
    for n in range(AGAIN):
        with ends.qps() as (client, _, at_client, at_server):
            secrets.update(key(at_client, at_server, Protection(GCM, n % 2 * MEM_BIT | 1)))
            until_running(at_client, at_server, WAIT)
            client.connected = True
            client.write(n.to_bytes(4, "big"), ends.plain.remote(), 0, timeout=WAIT)
            assert ends.plain.buf[:4] == n.to_bytes(4, "big")
    assert len(secrets) == 2 * AGAIN


# RFC 5042 R3-5
def test_leg_takes_one_group_key(both_policies):
    """A leg that has the K_PD of a group refuses another one."""
    ends = both_policies["shared"]
    with ends.qps() as (_, _, at_client, at_server):
        with pytest.raises(srdma.RefusedError, match="group") as refused:
            key(at_client, at_server, Protection(GCM, 1, True), spoil_client=flip("group_key"))
        assert refused.value.errno == errno.EBUSY
