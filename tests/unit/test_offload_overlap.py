"""Memory that several programs register at one worker (RFC 5042 6.3.6; local-interface.md 3.5)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from tests.daemon import ACCESS_SHARED, BINARY, PAGE, Client, Kind, Worker, memfd, reg_mr, u32
from tests.neighbours import neighbour

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
WRITTEN = LOCAL_WRITE | REMOTE_WRITE
ATOMIC = LOCAL_WRITE | REMOTE_ATOMIC
SHARED = ACCESS_SHARED
LENGTH = 4 * PAGE


@pytest.fixture
def other(a: Worker) -> Iterator[Client]:
    with neighbour(a.control) as client:
        yield client


@pytest.fixture
def fd() -> Iterator[int]:
    made = memfd(LENGTH)
    yield made
    os.close(made)


def register(
    client: Client, leg: int, fd: int, access: int, first: int = 0, length: int = LENGTH
) -> int:
    body = reg_mr(leg, access, length, first, address=0x10000 + first)
    return client.number(Kind.REG_MR, body, [fd])


def refused(
    client: Client, leg: int, fd: int, access: int, first: int = 0, length: int = LENGTH
) -> str:
    body = reg_mr(leg, access, length, first, address=0x10000 + first)
    return client.refused(errno.EBUSY, Kind.REG_MR, body, [fd])


@pytest.mark.parametrize(
    ("mine", "theirs", "permitted"),
    [
        (WRITTEN, WRITTEN, False),
        (ATOMIC, WRITTEN, False),
        (WRITTEN, ATOMIC, False),
        (WRITTEN, REMOTE_READ, False),
        (REMOTE_READ, WRITTEN, False),
        (WRITTEN | SHARED, WRITTEN, False),
        (WRITTEN, WRITTEN | SHARED, False),
        (WRITTEN | SHARED, WRITTEN | SHARED, True),
        (WRITTEN | SHARED, REMOTE_READ | SHARED, True),
        (REMOTE_READ, REMOTE_READ, True),
        (WRITTEN, LOCAL_WRITE, True),
        (LOCAL_WRITE, WRITTEN, True),
    ],
)
# RFC 5042 R6.3.6-1, A6.3.6
def test_rights_of_two_programs(
    a: Worker, other: Client, fd: int, mine: int, theirs: int, permitted: bool
) -> None:
    """R6.3.6-1, R6.3.6-2."""
    client = a.client()
    (leg, _), (foreign, _) = client.open(), other.open()
    register(client, leg, fd, mine)
    if permitted:
        register(other, foreign, fd, theirs)
    else:
        said = refused(other, foreign, fd, theirs)
        assert "another program" in said and "SHARED" in said


@pytest.mark.parametrize(
    ("first", "length", "permitted"),
    [(PAGE, PAGE, False), (2 * PAGE - 1, 10, False), (0, PAGE + 1, False), (2 * PAGE, PAGE, True)],
)
# RFC 5042 A6.2.3
def test_bytes_of_two_programs(
    a: Worker, other: Client, fd: int, first: int, length: int, permitted: bool
) -> None:
    """One byte is an overlap. A second descriptor and mapping of the memfd is the same memory."""
    client = a.client()
    (leg, _), (foreign, _) = client.open(), other.open()
    register(client, leg, fd, WRITTEN, PAGE, PAGE)
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_CLOEXEC)
    try:
        if permitted:
            register(other, foreign, again, WRITTEN, first, length)
        else:
            refused(other, foreign, again, WRITTEN, first, length)
    finally:
        os.close(again)


def test_legs_of_one_process_may_overlap(a: Worker, fd: int) -> None:
    one, two = a.client(), a.client()
    (first, _), (second, _) = one.open(), two.open()
    register(one, first, fd, WRITTEN)
    register(two, second, fd, WRITTEN)
    register(one, first, fd, REMOTE_READ)


def test_bytes_are_free_after_deregistration_and_after_the_leg(
    a: Worker, other: Client, fd: int
) -> None:
    client = a.client()
    (leg, _), (foreign, _) = client.open(), other.open()
    key = register(client, leg, fd, WRITTEN)
    refused(other, foreign, fd, WRITTEN)
    client.request(Kind.DEREG_MR, u32(leg, key))
    key = register(other, foreign, fd, WRITTEN)
    refused(client, leg, fd, WRITTEN)
    other.request(Kind.DEREG_MR, u32(foreign, key))
    register(client, leg, fd, WRITTEN)
    client.close()
    with neighbour(a.control) as third:
        number, _ = third.open()
        for _ in range(1000):  # the worker may learn of the end later
            try:
                register(third, number, fd, WRITTEN)
                return
            except Exception as e:
                assert getattr(e, "status", 0) == errno.EBUSY
    raise AssertionError("the regions of a leg that has ended are still in the way")


def test_shared_needs_a_remote_right(a: Worker, fd: int) -> None:
    client = a.client()
    leg, _ = client.open()
    said = client.refused(
        errno.EINVAL, Kind.REG_MR, reg_mr(leg, LOCAL_WRITE | SHARED, LENGTH), [fd]
    )
    assert "SHARED needs" in said
