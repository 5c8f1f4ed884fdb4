"""The frames that an observer of the wire between two NICs sees."""

from __future__ import annotations

import srdma
from srdma.inspect import roce
from srdma.inspect.dissect import is_srdma

MARKER = b"SRDMA-RXE-PLAINTEXT-MARKER"
SIZE = 256 << 10


def marked() -> bytes:
    """Data in which each packet contains the marker many times."""
    return (MARKER * (SIZE // len(MARKER) + 1))[:SIZE]


def all_ways(connection: srdma.Connection, remote: srdma.RemoteMR, host_b) -> None:
    """Sends the marked bytes by WRITE, READ and SEND, as inline data and by DMA."""
    connection.qp.write(marked(), remote)
    assert connection.qp.read(remote) == marked()
    connection.qp.write(MARKER, remote)
    host_b.request("message", qp=0, size=SIZE)
    connection.qp.send(marked(), imm=1)
    assert host_b.answer()["data"] == marked()


# RFC 5042 A5.3
def test_wire_has_no_plaintext_and_no_one_sided_operations(stage, connected, host_b, pd):
    stage.wire.forget()
    with connected(pd, size=SIZE) as (connection, remote):
        tag_len = connection.suite.tag_len
        all_ways(connection, remote, host_b)
    frames = stage.wire.take()
    raw = b"".join(stage.wire.raw)
    assert len(raw) > 3 * SIZE
    for piece in (MARKER, MARKER[:8], MARKER[9:17], MARKER[-8:]):
        assert piece not in raw
    kinds = roce.kinds(frames)
    assert set(kinds) <= roce.PASSIVE, kinds
    packets = roce.messages(frames)
    assert len(packets) > 3 * SIZE // 4096
    assert all(is_srdma(packet, tag_len) for packet in packets)


def test_plaintext_without_protection(stage, connected, host_b):
    """Control: the same search finds the marker at level none."""
    stage.wire.forget()
    with srdma.Context(stage.open.a) as ctx, srdma.PD(ctx, 512) as pd:
        before = ctx.stats()
        with connected(pd, stage.open, size=SIZE, level="none") as (connection, remote):
            all_ways(connection, remote, host_b)
        after = ctx.stats()
        assert after["packets_unprotected_sent"] > before["packets_unprotected_sent"]
        assert after["packets_sealed"] == before["packets_sealed"]
    frames = stage.wire.take()
    packets = roce.messages(frames)
    assert sum(MARKER in packet for packet in packets) > 3 * SIZE // 4096 - 8
    assert set(roce.kinds(frames)) <= roce.PASSIVE
