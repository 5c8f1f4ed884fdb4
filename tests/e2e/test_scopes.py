"""Scopes of regions (protocol.md 6): an rkey that a peer learned serves no other peer, and `data`
carries the rkey of a region whose scope is the QP of the same connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import srdma
from srdma import Access
from srdma.errors import LocalError, RefusedError, RemoteError, Timeout
from srdma.identity import issue
from tests.e2e.conftest import WAIT, A, B, Host, Joiner, Site, run

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
C = "spiffe://test/c"


@pytest.fixture(scope="module")
def c(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of another identity of the same CA."""
    folder = tmp_path_factory.mktemp("c")
    issue(pki, C, folder / "c")
    (folder / "ca.pem").write_bytes((pki / "ca.pem").read_bytes())
    return folder / "c"


@pytest.fixture
def hosts(join: Joiner, site: Site) -> tuple[Host, Host]:
    return join.host(site.a), join.host(site.b)


@pytest.fixture
def listener(hosts: tuple[Host, Host], pki: Path) -> Iterator[srdma.Listener]:
    """Of host b, which serves two peers with one PD."""
    with srdma.listen(
        ("127.0.0.1", 0), hosts[1].pd, identity=pki / "b", peer=[A, C], timeout=WAIT
    ) as listener:
        yield listener


def meet(
    listener: srdma.Listener, pd: srdma.PD, identity: Path, **options: object
) -> tuple[srdma.Connection, srdma.Connection]:
    accepted = run(listener.accept, WAIT)
    client = srdma.connect(listener.address, pd, identity=identity, peer=B, timeout=WAIT, **options)
    return client, accepted()


OPERATIONS = {
    "write": lambda qp, to: qp.write(b"x", to, timeout=WAIT),
    "read": lambda qp, to: qp.read(to, 0, 8, timeout=WAIT),
    "atomic": lambda qp, to: qp.fetch_add(to, 0, 1, timeout=WAIT),
}


# RFC 5042 R6.1.1-6
@pytest.mark.parametrize("how", OPERATIONS)
def test_rkey_of_another_identity(
    hosts: tuple[Host, Host], listener: srdma.Listener, pki: Path, c: Path, how: str
) -> None:
    """A's rkey, replayed by C on a QP of its own in the same PD."""
    a, b = hosts
    ours, _ = meet(listener, a.pd, pki / "a", qps=1)
    theirs, _ = meet(listener, a.pd, c)
    region = b.pd.alloc(64, ALL, scope=A)
    OPERATIONS[how](ours.qp, region.remote())
    before = bytes(region.buf)
    with pytest.raises(RemoteError, match="QP_SCOPE"):
        OPERATIONS[how](theirs.qp, region.remote())
    assert bytes(region.buf) == before
    OPERATIONS[how](ours.qp, region.remote())  # its own QP is as before


def test_scope_of_the_pd(
    hosts: tuple[Host, Host], listener: srdma.Listener, pki: Path, c: Path
) -> None:
    a, b = hosts
    region = b.pd.alloc(64, ALL, scope="pd")
    for number, identity in enumerate((pki / "a", c)):
        client, _ = meet(listener, a.pd, identity)
        client.qp.write(b"w", region.remote(), number, timeout=WAIT)
    assert bytes(region.buf[:3]) == b"ww\0"


def test_data_is_made_for_each_connection(hosts: tuple[Host, Host], pki: Path, c: Path) -> None:
    """The function knows the QPs, and at the listener the identity. Each peer gets a region that
    no other one can use, also after reconnect()."""
    a, b = hosts
    regions: list[tuple[str, srdma.MR]] = []

    def offer(there: srdma.Connection) -> bytes:
        with pytest.raises(LocalError, match="not made yet"):
            _ = there.suite
        regions.append((there.identity, b.pd.alloc(64, ALL, scope=there.qp)))
        return regions[-1][1].remote().to_bytes()

    def ours(here: srdma.Connection) -> bytes:
        with pytest.raises(LocalError, match="when it is connected"):
            _ = here.identity
        return here.qp.qp_num.to_bytes(4, "big")

    with srdma.listen(
        ("127.0.0.1", 0), b.pd, identity=pki / "b", data=offer, timeout=WAIT
    ) as listener:
        one, server = meet(listener, a.pd, pki / "a", data=ours)
        assert server.data == one.qp.qp_num.to_bytes(4, "big")
        two, _ = meet(listener, a.pd, c)
        accepted = run(listener.accept, WAIT)
        one = one.reconnect()
        accepted()
    assert [identity for identity, _ in regions] == [A, C, A]
    for client, (_, region) in ((two, regions[1]), (one, regions[2])):
        client.qp.write(b"mine", srdma.RemoteMR.from_bytes(client.data), timeout=WAIT)
        assert bytes(region.buf[:4]) == b"mine"
    with pytest.raises(RemoteError, match="QP_SCOPE"):
        one.qp.write(b"x", regions[1][1].remote(), timeout=WAIT)


@pytest.mark.parametrize(
    ("made", "text"),
    [(b"x" * 257, "257 bytes of data: at most 256"), ("text", "data is a str: it must be bytes")],
)
def test_wrong_data_of_a_function(
    hosts: tuple[Host, Host], pki: Path, made: object, text: str
) -> None:
    """It is an error of this end, and leaves no QP. The listener stays usable."""
    a, b = hosts
    wrong, qpns = [made], []

    def offer(there: srdma.Connection) -> object:
        qpns.append(there.qp.qp_num)
        return wrong.pop() if wrong else b"fine"

    def ours(here: srdma.Connection) -> object:
        qpns.append(here.qp.qp_num)
        return made

    with srdma.listen(
        ("127.0.0.1", 0), b.pd, identity=pki / "b", data=offer, timeout=WAIT
    ) as listener:
        accepted = run(listener.accept, WAIT)
        with pytest.raises(LocalError, match=text):
            srdma.connect(listener.address, a.pd, identity=pki / "a", data=ours)
        early = run(srdma.connect, listener.address, a.pd, identity=pki / "a", timeout=1.0)
        with pytest.raises(LocalError, match=text):
            accepted()
        with pytest.raises(Timeout):
            early()
        for pd, qpn in ((a.pd, qpns[0]), (b.pd, qpns[1])):
            with pytest.raises(RefusedError, match="does not exist"):
                pd.control.destroy(qpn)
        client, _ = meet(listener, a.pd, pki / "a")
        assert client.data == b"fine"
