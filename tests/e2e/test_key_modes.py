"""Key modes and trust groups: connections with a real key exchange and two real workers."""

from __future__ import annotations

import contextlib
import logging
import socket
from contextlib import ExitStack, closing

import pytest

import srdma
from srdma import Access
from srdma.connection import TRUST_GROUP
from srdma.control import QPState
from srdma.errors import LocalError, RemoteError, Timeout
from srdma.identity import Credentials
from srdma.keyex.exchange import Derive, Exchange, Install, Parameters, Send
from srdma.keyex.messages import Ready, encode
from srdma.keyex.offers import End, Suite
from srdma.keyex.secrets import Secrets
from srdma.qp import SecureQP
from tests.e2e.conftest import WAIT, A, B, pattern, run
from tests.keying import attach
from tests.tls_players import BlockingTLS

MODES = ["basic", "pd", "mem", "pd+mem"]
WAYS = [(mode, group) for mode in MODES for group in ("", "rack 7")]
SUITES = ["aes-128-gcm", "aes-256-gcm"]  # their secrets have 16 and 32 bytes
SIZE = 10_000


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def pd_of(stack, worker, group=""):
    ctx = stack.enter_context(srdma.Context(worker.control))
    return stack.enter_context(srdma.PD(ctx, group=group))


def connected(stack, pki, client_pd, server_pd, client=None, server=None):
    """Connects these PDs. Raises the client's error if both ends fail."""
    listening = {"identity": pki / "b", "timeout": WAIT} | (server or {})
    with srdma.listen(("127.0.0.1", 0), server_pd, **listening) as listener:
        accepted = run(listener.accept, WAIT)
        calling = {"identity": pki / "a", "timeout": WAIT, "peer": B} | (client or {})
        try:
            ours = stack.enter_context(srdma.connect(listener.address, client_pd, **calling))
        except srdma.Error:
            with pytest.raises(srdma.Error):
                accepted()
            raise
        return ours, stack.enter_context(accepted())


def check_data(client, server, pd):
    """Checks WRITE, READ, and SENDs in both directions."""
    with pd.alloc(
        SIZE, Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ, scope="pd"
    ) as mr:
        client.qp.write(pattern(SIZE, 1), mr.remote(), timeout=WAIT)
        assert mr.buf[:] == pattern(SIZE, 1)
        assert client.qp.read(mr.remote(), 0, SIZE, timeout=WAIT) == pattern(SIZE, 1)
    for sender, receiver in ((client, server), (server, client)):
        message = run(receiver.qp.recv, WAIT, size=SIZE)
        sender.qp.send(pattern(SIZE, 2), timeout=WAIT)
        assert message()[0] == pattern(SIZE, 2)


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize(("mode", "group"), WAYS)
def test_each_mode_and_policy(stack, site, pki, caplog, mode, group, suite):
    client_pd, server_pd = pd_of(stack, site.a, group), pd_of(stack, site.b, group)
    with caplog.at_level(logging.WARNING, "srdma"):
        client, server = connected(
            stack, pki, client_pd, server_pd, {"mode": mode, "suites": [suite], "qps": 2},
            {"qps": 2},
        )  # fmt: skip
    trust_group = group if "pd" in mode else ""
    for end in (client, server):
        assert (end.mode, end.trust_group) == (mode, trust_group)
    check_data(client, server, server_pd)
    said = [r.getMessage() for r in caplog.records if "SRDMA_TRUST_GROUP" in r.getMessage()]
    text = f"SRDMA_TRUST_GROUP: 2 QPs in 'rack 7'. {TRUST_GROUP}"
    assert said == [text] * (2 if trust_group else 0)


def test_client_preference_wins(stack, site, pki):
    client_pd, server_pd = pd_of(stack, site.a), pd_of(stack, site.b)
    client, server = connected(
        stack, pki, client_pd, server_pd, {"mode": ["pd+mem", "pd"]}, {"mode": ["basic", "pd"]}
    )
    assert client.mode == server.mode == "pd"
    check_data(client, server, server_pd)


@pytest.mark.parametrize(("of_client", "of_server"), [("g", ""), ("", "g"), ("g", "h")])
def test_group_of_one_end_only(stack, site, pki, of_client, of_server):
    client_pd, server_pd = pd_of(stack, site.a, of_client), pd_of(stack, site.b, of_server)
    with pytest.raises(RemoteError, match="needs the same trust group at both ends"):
        connected(stack, pki, client_pd, server_pd, {"mode": "pd"})
    client, server = connected(stack, pki, client_pd, server_pd)
    assert client.mode == "basic"
    check_data(client, server, server_pd)


def test_two_clients_in_one_group(stack, site, pki):
    """Two client PDs with two connections each. The legs of both get the K_PD of the server's
    leg."""
    server_pd = pd_of(stack, site.b, "g")
    for client_pd in (pd_of(stack, site.a, "g"), pd_of(stack, site.a, "g")):
        for _ in range(2):
            client, server = connected(stack, pki, client_pd, server_pd, {"mode": "pd"})
            assert client.trust_group == server.trust_group == "g"
            check_data(client, server, server_pd)


def test_group_member_admits_others(stack, site, pki):
    """A host that got the group's key as a client passes it on as a server."""
    member = pd_of(stack, site.a, "g")
    connected(stack, pki, member, pd_of(stack, site.b, "g"), {"mode": "pd"})
    client, server = connected(stack, pki, pd_of(stack, site.b, "g"), member, {"mode": "pd+mem"})
    assert client.trust_group == server.trust_group == "g"
    check_data(client, server, member)


def test_second_group_key_on_one_pd_is_refused(stack, site, pki):
    """A leg has one group key. The K_PD of another server is refused, even
    under the same group name."""
    client_pd = pd_of(stack, site.a, "g")
    connected(stack, pki, client_pd, pd_of(stack, site.b, "g"), {"mode": "pd"})
    with pytest.raises(srdma.Error, match=r"refused KEYS.*group"):
        connected(stack, pki, client_pd, pd_of(stack, site.b, "g"), {"mode": "pd"})


def test_level_none_has_no_key_mode(stack, site, pki):
    client_pd, server_pd = pd_of(stack, site.a), pd_of(stack, site.b)
    with pytest.raises(LocalError, match="has no keys"):
        srdma.connect(("127.0.0.1", 1), client_pd, identity=pki / "a", level="none", mode="pd")
    client, server = connected(
        stack, pki, client_pd, server_pd, {"level": "none"}, {"level": "none"}
    )
    assert client.mode == server.mode == "basic"


# A client that tampers ---------------------------------------------------------------


class Rogue:
    """A client's end of a key exchange, from the real modules, that changes secrets.

    handed: changes those sent to the peer; kept: changes those given to its worker.
    """

    def __init__(self, pd, address, pki, mode, handed=None, kept=None):
        self.qp = SecureQP(pd, 16, 16, timeout=1.0)
        self.control = attach(pd)
        self._handed, self._kept = handed or (lambda h: h), kept or (lambda h: h)
        mine = Credentials.load(pki / "a.pem", pki / "a.key", pki / "ca.pem")
        sock = socket.create_connection(address, WAIT)
        self.tls = BlockingTLS(sock, "client", mine)
        identity, _ = self.tls.handshake()
        info = dict(vars(self.qp.info))
        random, ends = info.pop("random"), (End(**info),)
        suites, hashes = (Suite(1, 3, 16),), self.tls.certificate_hashes()
        self.exchange = Exchange(
            "client", Parameters(suites, random, ends, b"", hashes, (mode,), pd.group)
        )
        self._secrets = Secrets(self.control, self.tls.export, self.exchange, ends, identity)

    def converse(self):
        """Runs the exchange until its worker has keys."""
        self._act(self.exchange.start())
        while self.exchange.state != "connecting":
            self._act(self.exchange.receive(self.tls.message()))

    def _act(self, events):
        for event in events:
            match event:
                case Send(data):
                    self.tls.send(data)
                case Derive(form):
                    self._act(self.exchange.derived(self._handed(self._secrets.derive(form))))
                case Install(handover):
                    self._secrets.install(self._kept(handover))
                    self._act(self.exchange.keyed())

    def close(self):
        self.tls.close()
        self.control.close()
        self.qp.close()


def flipped(handover):
    """Flips one bit of each key."""
    for key in (*handover.secrets, handover.group_key):
        if key:
            key[0] ^= 1
    return handover


@pytest.mark.parametrize(("group", "where"), [("", "handed"), ("", "kept"), ("g", "kept")])
@pytest.mark.parametrize("mode", [1, 3])
def test_changed_secret_gives_no_connection(stack, site, pki, mode, group, where):
    """At least one end cannot verify the other's packets, so that there is no connection and no
    data passes."""
    client_pd, server_pd = pd_of(stack, site.a, group), pd_of(stack, site.b, group)
    worker = site.a if where == "handed" else site.b  # the worker that drops what it cannot verify
    before = refused(worker)
    options = {"identity": pki / "b", "timeout": 3, "peer": A}
    with srdma.listen(("127.0.0.1", 0), server_pd, **options) as listener:
        accepted = run(listener.accept, WAIT)
        with closing(Rogue(client_pd, listener.address, pki, mode, **{where: flipped})) as rogue:
            rogue.converse()
            with pytest.raises(Timeout, match="did not complete in 3 s"):
                accepted()
            with contextlib.suppress(Timeout):
                assert rogue.control.wait(rogue.qp.qp_num, 0.2)[0] is not QPState.RTS
    assert refused(worker) > before
    assert site.a.process.poll() is None and site.b.process.poll() is None


@pytest.mark.parametrize(("mode", "group"), [(1, ""), (3, ""), (1, "g")])
def test_unchanged_secrets_give_a_connection(stack, site, pki, mode, group):
    """Control for the test above: the same player connects if it does not change the secrets."""
    client_pd, server_pd = pd_of(stack, site.a, group), pd_of(stack, site.b, group)
    options = {"identity": pki / "b", "timeout": WAIT, "peer": A}
    with srdma.listen(("127.0.0.1", 0), server_pd, **options) as listener:
        accepted = run(listener.accept, WAIT)
        with closing(Rogue(client_pd, listener.address, pki, mode)) as rogue:
            rogue.converse()
            assert rogue.control.wait(rogue.qp.qp_num, WAIT)[0] is QPState.RTS
            rogue.tls.send(encode(Ready()))
            assert accepted().identity == A


def refused(worker):
    """Returns how many packets the worker dropped because of a wrong tag."""
    with srdma.Context(worker.control) as ctx:
        return ctx.stats()["refused_tag"]
