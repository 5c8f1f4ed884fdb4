"""Settings of a connection or listener: the first message of its channel (agent.md 2).

They are checked like the message of a peer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from srdma.agent.clock import ClockRule
from srdma.agent.wires import Network
from srdma.identity import Credentials, IdentityError
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import offer_of
from srdma.keyex.offers import DATA_MAX, RANDOM_LEN, End, Suite
from srdma.keyex.policy import check_identity, check_suite
from srdma.keyex.renew import Times

CREDENTIALS = "credentials"  # code of an error of the local certificate or key
SECONDS_MAX = (1 << 31) - 1  # of every duration in settings
TOKEN_LEN = 16  # of a leg


@dataclass(eq=False, slots=True, weakref_slot=True)
class Identity:
    """Credentials of this end, and the identities that a peer may have: those that match both a
    pattern of `allowed`, the program's, and one of `granted`, the policy's. No pattern: any.

    name: in the policy; "" for a private agent. wires: networks of the peers' wire addresses, empty
    for any. A policy that is read again replaces `credentials`, `granted`, `clock` and `wires`.
    """

    credentials: Credentials
    allowed: tuple[str, ...]
    granted: tuple[str, ...] = ()
    name: str = ""
    clock: ClockRule = field(default_factory=ClockRule)
    wires: tuple[Network, ...] = ()

    def check(self, peer: str) -> None:
        """Raise ExchangeError (`identity`) unless a peer may have this identity."""
        check_identity(peer, self.allowed)
        check_identity(peer, self.granted)

    @staticmethod
    def patterns(value: object) -> tuple[str, ...]:
        """Patterns in a message or a file. A single string would pass as a list of its characters.

        Raises TypeError.
        """
        if not isinstance(value, list) or not all(isinstance(p, str) for p in value):
            raise TypeError("peer is not a list of patterns")
        return tuple(value)

    @classmethod
    def of(cls, fields: Mapping[str, Any], clock: ClockRule) -> Identity:
        """From settings. Raises ExchangeError (`config`, `credentials`)."""
        try:
            allowed = cls.patterns(fields["peer"])
            if "identity" in fields:
                named = Credentials.named(Path(fields["identity"]))
                return cls(named, allowed, clock=clock)
            credentials = Credentials(
                fields["cert"], fields["key"], fields["ca"], fields.get("crl", b"")
            )
            credentials.check()
        except IdentityError as error:
            raise ExchangeError(CREDENTIALS, str(error)) from None
        except (KeyError, TypeError, ValueError) as error:
            raise malformed(error) from None
        return cls(credentials, allowed, clock=clock)


class Current:
    """An identity whose files may be replaced while it is in use."""

    def __init__(self, fields: Mapping[str, Any], clock: ClockRule) -> None:
        """fields: settings. Raises as Identity.of()."""
        self._fields, self._clock = fields, clock
        self._last = Identity.of(fields, clock)
        self._stamp = self._stamp_now()

    def __call__(self) -> Identity:
        """The identity that the files give now, or the last that they gave."""
        stamp = self._stamp_now()
        if stamp != self._stamp:
            self._stamp = stamp
            with contextlib.suppress(ExchangeError):
                self._last = Identity.of(self._fields, self._clock)
        return self._last

    def _stamp_now(self) -> tuple[int, ...]:
        path = self._fields.get("identity")
        return stamps(Credentials.files(Path(path))) if path else ()


def stamps(files: Iterable[Path]) -> tuple[int, ...]:
    """A value that changes when one of the files is replaced."""
    return tuple(_modified(file) for file in files)


def _modified(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


@dataclass(frozen=True)
class Terms:
    """Parameters of the key exchange: this end's offers or limits, and its QPs.

    worker: path of the control socket of their worker process; token: of their leg. timeout:
    seconds of the key exchange; max_age: seconds that secrets live without renewal (agent.md 5).
    """

    worker: Path
    token: bytes
    suites: tuple[Suite, ...]
    modes: tuple[int, ...]
    group: str
    ends: tuple[End, ...]
    random: bytes
    data: bytes
    timeout: float
    times: Times
    max_age: float

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Terms:
        """From settings. Raises ExchangeError (`config`, or the code of the wrong value)."""
        try:
            qps = [dict(qp) for qp in fields["qps"]]
            randoms = [_octets(qp.pop("random"), RANDOM_LEN) for qp in qps]
            offer = offer_of(
                {
                    "qps": len(qps),
                    "suites": fields["suites"],
                    "modes": fields["modes"],
                    "group": fields["group"],
                    "random": randoms[0],
                    "ends": [End(**qp).as_map() for qp in qps],
                    "data": _octets(fields["data"], DATA_MAX),
                }
            )
            for suite in offer.suites:
                check_suite(suite)
            return cls(
                worker=Path(fields["worker"]),
                token=_octets(fields["token"], TOKEN_LEN),
                suites=offer.suites,
                modes=offer.modes,
                group=offer.group,
                ends=offer.ends,
                random=offer.random,
                data=offer.data,
                timeout=_seconds(fields, "timeout", 0.001),
                times=Times(_seconds(fields, "every", 0), _seconds(fields, "limit", 0.001)),
                max_age=_seconds(fields, "max_age", 1),
            )
        except ExchangeError:
            raise
        except Exception as error:  # wrong values may raise any exception in the encoder
            raise malformed(error) from None


def _octets(value: object, most: int) -> bytes:
    if not isinstance(value, bytes) or len(value) > most:
        raise TypeError(f"a value is not at most {most} bytes")
    return value


def _seconds(fields: Mapping[str, Any], name: str, least: float) -> float:
    value = float(fields[name])
    if not least <= value <= SECONDS_MAX:
        raise ValueError(f"{name} is {value}: it must be {least} to {SECONDS_MAX} seconds")
    return value


def malformed(error: Exception) -> ExchangeError:
    return ExchangeError("config", f"the settings are malformed: {type(error).__name__}: {error}")
