"""Verifies the tags of captured packets by the secrets of a key log (docs/verify-wire.md 3)."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple

from srdma.inspect.keys import Way
from srdma.native.observer import Observer
from srdma.native.packet import RefusedError

SEARCHES = 2  # packets of one direction for which its place is sought
FIRST_PN = 1 << 23  # the lowest first packet number of a direction
EPOCHS_MAX = 4096  # epochs of one direction that are listed


class Range(NamedTuple):
    """Where a capture that began in the middle of a session is sought: epochs behind the one with
    which a secret began, and cycles of 2^24 packet numbers."""

    epochs: int
    cycles: int


BEFORE_RENEWAL = Range(4096, 16)
AFTER_RENEWAL = Range(64, 1)  # renewal n begins with one of the epochs n to 64 (n + 1) - 1


class Tag(enum.Enum):
    """The result for one packet. REPEATED: right, and seen before. UNKNOWN: no secret is known."""

    RIGHT = "verified"
    REPEATED = "repeated"
    WRONG = "wrong"
    UNKNOWN = "unverifiable"


class Flow:
    """The packets of one direction of a session; its first secret is known."""

    def __init__(self, way: Way) -> None:
        """Raises OSError if the values of the log do not agree."""
        self.way = way
        self.epochs: set[int] = set()
        self._observer = _observer(way, 0, 0)
        self._given = 1  # secrets that the observer has
        self._searches = 0

    def verify(self, packet: bytes, other: Flow | None) -> Tag:
        """other: the other direction, if its secret is known."""
        self._renew()
        if other is not None:
            self._observer.hear(other._observer)
        result = _open(self._observer, packet)
        if result is None and not self.epochs and self._searches < SEARCHES:
            self._searches += 1
            result = self._search(packet)
        if result is None:
            return Tag.WRONG
        if len(self.epochs) < EPOCHS_MAX:
            self.epochs.add(self._observer.epoch)
        return Tag.REPEATED if result else Tag.RIGHT

    def close(self) -> None:
        self._observer.close()

    def _renew(self) -> None:
        secrets = self.way.secrets
        while self._given < len(secrets) and self._observer.renew(secrets[self._given]):
            self._given += 1

    def _search(self, packet: bytes) -> bool | None:
        """Seeks the secret, epoch and numbers of the packet, and goes on from there."""
        for number, epoch, within in self._starts():
            observer = _observer(self.way, number, epoch)
            result = _walk(observer, within, packet)
            if result is not None:
                self._observer.close()
                self._observer, self._given = observer, number + 1
                return result
            observer.close()
        return None

    def _starts(self) -> Iterator[tuple[int, int, Range]]:
        """Number of a secret, the epoch that may have begun with it, and what to try behind."""
        yield 0, 0, BEFORE_RENEWAL
        for number in range(1, len(self.way.secrets)):
            for epoch in range(number, AFTER_RENEWAL.epochs * (number + 1)):
                yield number, epoch, AFTER_RENEWAL


def _open(observer: Observer, packet: bytes) -> bool | None:
    """True if the packet was seen before; None if it does not verify."""
    try:
        return observer.open(packet)
    except RefusedError:
        return None


def _walk(observer: Observer, within: Range, packet: bytes) -> bool | None:
    """Tries a packet in the epochs of the chain of one secret."""
    bits = packet[8] >> 2 & 3
    for _ in range(within.epochs):
        if observer.epoch & 3 == bits:
            for cycle in range(within.cycles):
                for requests in range(cycle + 1):
                    observer.seek((cycle << 24) + FIRST_PN, requests << 24)
                    if (result := _open(observer, packet)) is not None:
                        return result
        observer.step()
    return None


def _observer(way: Way, number: int, epoch: int) -> Observer:
    s = way.session
    return Observer(
        suite=s.suite, level=s.level, mode=s.mode, tag_len=s.tag_len, direction=way.direction,
        sender=way.sender, receiver=way.receiver, generation=s.generation,
        secret=way.secrets[number], pn=way.pn, epoch=epoch,
    )  # fmt: skip
