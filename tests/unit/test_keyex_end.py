"""How a connection handles the end of its peer and of its own worker: agents after `ready`, with
simulated workers."""

from __future__ import annotations

import contextlib
import time
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
    """Yields the end of this role, and the other one."""
    mine, peers = config("client", load(folder, "a")), config("server", load(folder, "b"))
    with run_pair(mine, peers) as pair:
        for one in pair:
            assert [one.event()["event"] for _ in range(2)] == ["peer", "ready"]
        yield pair if role == "client" else pair[::-1]


def ended(one: Keyex) -> list[tuple[int, ...]]:
    """Waits for the end. Returns the END requests that its worker got."""
    one.events()
    assert not one.worker.expired
    return one.worker.ended


def all_for(one: Keyex, reason: int) -> list[tuple[int, ...]]:
    return [(qp["qpn"], reason) for qp in one.config["qps"]]


@pytest.mark.parametrize("role", ROLES)
def test_peer_closes(folder: Path, role: str) -> None:
    with ready(folder, role) as (mine, peer):
        peer.hang_up()
        assert ended(mine) == all_for(mine, PEER_CLOSED)
        assert ended(peer) == all_for(peer, PEER_CLOSED)  # if the program keeps its QPs


@pytest.mark.parametrize("role", ROLES)
def test_worker_of_the_peer_dies(folder: Path, role: str) -> None:
    with ready(folder, role) as (mine, peer):
        peer.worker.die()
        assert ended(mine) == all_for(mine, WIRE_LOST)
        events = peer.events()
        assert events[-1]["code"] == "gone" and peer.worker.ended == []


@pytest.mark.parametrize("role", ROLES)
def test_unauthenticated_end_of_tcp_ends_no_qp(folder: Path, role: str) -> None:
    """A TCP connection that ends without close_notify ends no QP, because any attacker on the path
    can end it."""
    with ready(folder, role) as (mine, peer):
        lives = [*mine.worker.lives]
        peer.kill()
        mine.wish(1)  # it waits for another connection
        time.sleep(0.5)
        assert mine.worker.ended == [] and mine.worker.expired == []
        mine.hang_up()
        assert mine.events() == [{"event": "closed"}]
        assert mine.worker.ended == all_for(mine, PEER_CLOSED)
        assert mine.worker.lives == lives


@pytest.mark.parametrize("role", ROLES)
def test_session_ends_with_its_last_qp(folder: Path, role: str) -> None:
    """A session without a connection ends when the worker has no QP of it any more."""
    with ready(folder, role) as (mine, peer):
        peer.kill()
        mine.worker.gone.update(qp["qpn"] for qp in mine.config["qps"])
        assert mine.events() == [{"event": "closed"}]


def test_qps_that_have_already_ended(folder: Path) -> None:
    """If the worker refuses END for a QP that has already ended, END is still sent for the
    others."""
    with ready(folder, "client") as (mine, peer):
        mine.worker.refuse, mine.worker.refuses = "no such QP", 19
        mine.worker.status = 2
        peer.hang_up()
        assert mine.events() == [{"event": "closed"}]
