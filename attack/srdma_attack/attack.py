"""An attack, and the result of one run of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Attacker(StrEnum):
    """The attacker whose powers an attack needs."""

    NETWORK = "network, sends only"
    OBSERVER = "network, reads and sends"
    PATH = "man in the middle"
    PEER = "authorised peer"
    LOCAL = "local program"


class Target(StrEnum):
    SRDMA = "srdma"
    PLAIN = "plain"


class Outcome(StrEnum):
    STOPPED = "stopped"
    SUCCEEDS = "succeeds"


class KitError(Exception):
    """The set-up of an attack failed, so that its outcome is unknown."""


@dataclass(frozen=True)
class Settings:
    """full: sweep all 2^24 packet numbers. protected=False: attack sessions of level `none`, on
    which attacks from the network must succeed; tests check the attacks by it."""

    full: bool = False
    protected: bool = True


@dataclass(frozen=True)
class Finding:
    """The result of a run. counters: those of the victims that rose, by name. note: figures."""

    outcome: Outcome
    counters: Mapping[str, int] = field(default_factory=dict)
    note: str = ""


Run = Callable[[Settings], Finding]


@dataclass(frozen=True)
class Attack:
    """A row of the table.

    ids: sections of RFC 5042, and names in the literature. counter: one that rises at srdma.
    srdma, plain: the runs; None: the attack does not apply to the target or is not built for it.
    plain_outcome: the outcome on plain RoCE by the literature. Every outcome on srdma is STOPPED.
    """

    name: str
    aim: str
    attacker: Attacker
    ids: str
    counter: str
    srdma: Run | None = None
    plain: Run | None = None
    plain_outcome: Outcome = Outcome.SUCCEEDS

    def run_of(self, target: Target) -> Run | None:
        return self.srdma if target is Target.SRDMA else self.plain

    def expected(self, target: Target) -> Outcome:
        return Outcome.STOPPED if target is Target.SRDMA else self.plain_outcome

    def as_expected(self, target: Target, found: Finding) -> bool:
        """True if the outcome is the expected one and, at srdma, the counter rose."""
        counted = target is Target.PLAIN or found.counters.get(self.counter, 0) > 0
        return found.outcome is self.expected(target) and counted


def outcome(succeeded: bool) -> Outcome:
    return Outcome.SUCCEEDS if succeeded else Outcome.STOPPED
