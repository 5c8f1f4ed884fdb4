"""Epochs of both directions: when an epoch begins, and which epochs are live (protocol.md 3.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .kdf import next_secret
from .protect import Direction, Mode
from .reasons import RefusedError

LAST = 0xFFFFFFFF
PACKETS, BYTES, NANOSECONDS = 1 << 24, 1 << 36, 60 * 10**9
LAST_WORDS = 8


def by_chain(d: Direction) -> Direction:
    """The same direction in the next epoch, without a new secret."""
    epoch, secret = d.epoch + 1, d.secret
    if not d.mode & Mode.PD:
        secret = next_secret(secret, d.generation, d.direction, epoch)
    return replace(d, epoch=epoch, secret=secret)


def renewed(d: Direction, secret: bytes) -> Direction:
    return replace(d, epoch=d.epoch + 1, secret=secret)


@dataclass(frozen=True)
class Limits:
    """Limits of an epoch. The next epoch is due when one is reached."""

    packets: int = PACKETS
    bytes: int = BYTES
    ns: int = NANOSECONDS


class Outgoing:
    def __init__(self, d: Direction, first_pn: int, hard_stop: int, limits: Limits) -> None:
        self.now, self.first, self.limits = d, first_pn, limits
        self.left = hard_stop
        self.fresh: bytes | None = None
        self._hard_stop = hard_stop
        self._packets = self._bytes = self._began = 0

    def advance(self, now: int, told: int, peer: int, next_pn: int) -> int:
        """Called before a packet. 1: the next epoch begins with it; 0: no change; -1: a new
        epoch is due but not yet permitted. `told` is the highest packet number that the peer
        acknowledged, `peer` is the peer's epoch."""
        if not self._packets:
            self._began = now
        if not self._wanted(now, peer):
            return 0
        if self.now.epoch == LAST:
            self.left = min(self.left, LAST_WORDS)
            return 0
        if told < self.first:
            return -1
        fresh = self.fresh
        self.now = by_chain(self.now) if fresh is None else renewed(self.now, fresh)
        self.fresh, self.first, self.left = None, next_pn, self._hard_stop
        self._packets, self._bytes, self._began = 0, 0, now
        return 1

    def _wanted(self, now: int, peer: int) -> bool:
        limits = self.limits
        return (
            self.fresh is not None
            or self.now.epoch < peer
            or self._packets >= limits.packets
            or self._bytes >= limits.bytes
            or (self._packets > 0 and now - self._began >= limits.ns)
        )

    def spend(self, size: int, last_words: bool) -> None:
        """Counts one packet of `size` bytes that is sealed in this epoch."""
        if self.left <= (0 if last_words else LAST_WORDS):
            raise RuntimeError("the key's packet limit is reached: nothing is sent any more")
        self.left -= 1
        self._packets += 1
        self._bytes += size


class Incoming:
    def __init__(self, d: Direction) -> None:
        self.now = d
        self.before: Direction | None = None
        self.first = 0  # number of the first packet of this epoch that verified
        self.fresh: bytes | None = None

    def candidates(self, bits: int, pn: int, highest: int) -> list[Direction]:
        """Returns the directions in which the packet may have been sealed, in
        the order to try them."""
        ahead = (bits - self.now.epoch) & 3
        if ahead == 0:
            return [self.now]
        if not self.now.level:
            raise RefusedError("epoch", "level none has no epochs")
        if ahead == 1 and self.now.epoch < LAST and pn > highest:
            renewal = [] if self.fresh is None else [renewed(self.now, self.fresh)]
            return [*renewal, by_chain(self.now)]
        if ahead == 3 and self.before and pn < self.first:
            return [self.before]
        raise RefusedError("epoch", f"epoch bits {bits}, the epoch is {self.now.epoch}")

    def verified(self, d: Direction, pn: int) -> None:
        if d.epoch <= self.now.epoch:
            return
        if d.secret == self.fresh:
            self.fresh = None
        self.before, self.now, self.first = self.now, d, pn

    def passed(self, highest: int, window: int) -> None:
        """The window has moved to `highest`: drops the previous epoch when no
        packet of it can verify."""
        if self.before and self.first + window <= highest:
            self.before = None
