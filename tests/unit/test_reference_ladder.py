"""The first connection of protocol.md 16: the page shows it, and its packets verify."""

from __future__ import annotations

from tests.reference import ladder
from tests.reference.session import Session


def test_page_shows_the_first_connection() -> None:
    _, listing, _ = ladder.in_page(ladder.PAGE.read_text())
    assert listing == ladder.text(), "run python -m tests.reference.ladder"
    assert max(map(len, listing.splitlines())) <= 120


def test_its_packets_verify() -> None:
    client = ladder.client()
    ends = Session(client), Session(client.mirrored())
    for _, sender, packet, _ in ladder.PACKETS:
        _, opened = ends[1 - sender].open(ends[sender].seal(packet))
        assert (opened.ack, opened.payload) == (packet.ack, packet.payload)
