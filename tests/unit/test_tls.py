"""TLS of the key exchange without a network (protocol.md 8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from OpenSSL import SSL

from srdma.identity import Credentials, create_ca, issue
from srdma.keyex.tls import Inner

HANDSHAKE, TICKETS = 22, 2


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Credentials, Credentials]:
    path: Path = tmp_path_factory.mktemp("identities")
    create_ca(path, "test")
    for name in "ab":
        issue(path, f"spiffe://test/{name}", path / name)
    return Credentials.named(path / "a"), Credentials.named(path / "b")


def carried(sender: Inner, receiver: Inner) -> bytes:
    """Passes all records on. Returns them."""
    passed = b""
    while records := sender.records():
        receiver.feed(records)
        passed += records
    return passed


def connected(
    both: tuple[Credentials, Credentials], session: SSL.Session | None = None
) -> tuple[Inner, Inner, bytes, bytes]:
    """A client and a server after their handshake, the ClientHello, and the records that the
    server sent behind its handshake. session: the client offers to resume it."""
    client, server = Inner("client", both[0]), Inner("server", both[1])
    if session:
        client._tls.set_session(session)
    assert not client.shake()
    hello = carried(client, server)
    assert hello[0] == HANDSHAKE and not server.shake()
    carried(server, client)
    assert client.shake()
    carried(client, server)
    assert server.shake()
    behind = carried(server, client)
    assert client.receive() is None
    return client, server, hello, behind


def records_in(data: bytes) -> int:
    count = 0
    while data:
        data = data[5 + int.from_bytes(data[3:5], "big") :]
        count += 1
    return count


def test_tickets_resume_nothing(both: tuple[Credentials, Credentials]) -> None:
    """The TLS library sends tickets. A client that offers one gets a whole handshake, with
    certificates of both ends."""
    client, _, first, behind = connected(both)
    assert records_in(behind) in (0, TICKETS)
    session = client._tls.get_session()
    assert session
    again, server, second, _ = connected(both, session)
    assert bool(behind) == (len(second) > len(first) + 32)  # the ClientHello has the ticket
    for end in (again, server):
        assert not SSL._lib.SSL_session_reused(end._tls._ssl)  # type: ignore[attr-defined]
        assert all(end.certificate_hashes())


def test_client_offers_no_ticket(both: tuple[Credentials, Credentials]) -> None:
    """The ClientHello after a connection that brought tickets is as long as the first one."""
    lengths = {len(connected(both)[2]) for _ in range(3)}
    assert len(lengths) == 1
