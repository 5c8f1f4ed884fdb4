"""What a key exchange makes of the end of its peer, and of its own worker: `python -m srdma.keyex`
behind `ready`, with workers that the test plays."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from srdma.identity import create_ca, issue
from tests.keyex_players import Keyex, config, load, run_pair

PEER_CLOSED, WIRE_LOST = 22, 24
ROLES = ["client", "server"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_ca(tmp_path / "ca", "test")
    for name in "ab":
        issue(tmp_path / "ca", f"spiffe://test/{name}", tmp_path / name)
    return tmp_path


@contextlib.contextmanager
def ready(folder: Path, role: str) -> Iterator[tuple[Keyex, Keyex]]:
    """The end of this role, and the other one."""
    mine, peers = config("client", load(folder, "a")), config("server", load(folder, "b"))
    with run_pair(mine, peers) as pair:
        for one in pair:
            assert [one.event()["event"] for _ in range(2)] == ["peer", "ready"]
        yield pair if role == "client" else pair[::-1]


def ended(one: Keyex) -> list[tuple[int, ...]]:
    """What its worker was told, once it is over."""
    one.events()
    assert not one.worker.expired
    return one.worker.ended


def all_for(one: Keyex, reason: int) -> list[tuple[int, ...]]:
    return [(qp["qpn"], reason) for qp in one.config["qps"]]


@pytest.mark.parametrize("role", ROLES)
def test_peer_says_goodbye(folder: Path, role: str) -> None:
    with ready(folder, role) as (mine, peer):
        assert peer.process.stdin
        peer.process.stdin.close()
        assert ended(mine) == all_for(mine, PEER_CLOSED)
        assert ended(peer) == []


@pytest.mark.parametrize("role", ROLES)
def test_peers_worker_dies(folder: Path, role: str) -> None:
    with ready(folder, role) as (mine, peer):
        peer.worker.ours.shutdown(socket.SHUT_RDWR)
        assert ended(mine) == all_for(mine, WIRE_LOST)
        events = peer.events()
        assert events[-1]["code"] == "gone" and peer.worker.ended == []


@pytest.mark.parametrize("role", ROLES)
def test_end_that_nobody_signed(folder: Path, role: str) -> None:
    """Whoever is on the path can end a TCP connection: it ends no QP."""
    with ready(folder, role) as (mine, peer):
        peer.process.kill()
        events = mine.events()
        assert events == [{"event": "closed"}] and mine.worker.ended == []


def test_qps_that_have_ended(folder: Path) -> None:
    """What the worker says of one does not keep the others from it."""
    with ready(folder, "client") as (mine, peer):
        mine.worker.refuse, mine.worker.refuses = "no such QP", 19
        mine.worker.status = 2
        assert peer.process.stdin
        peer.process.stdin.close()
        assert mine.events() == [{"event": "closed"}]
