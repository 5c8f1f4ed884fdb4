"""The values that OFFER and CHOICE negotiate: suites, key modes and ends (protocol.md 8.2).

Each function that reads a field raises ExchangeError.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from srdma import gid as gids
from srdma.keyex.fields import ExchangeError, bad, exactly, integer, octets, text
from srdma.native import constants
from srdma.native.constants import EID_LEN, MODE_MEM, NAME_LEN

DATA_MAX = 256
RANDOM_LEN = 32
WIRE_MAX = NAME_LEN - 1
QPS_MAX = 256
SUITES_MAX = 64
GROUP_MAX = 64
MODE_PD = constants.MODE_PD  # bit of the modes with `pd`
MODES = {
    "basic": 0,
    "pd": MODE_PD,
    "mem": MODE_MEM,
    "pd+mem": MODE_PD | MODE_MEM,
}  # protocol.md 3.4
MODE_BASIC = 0
LEVELS = {
    "none": constants.LEVEL_NONE,
    "header": constants.LEVEL_HEADER,
    "packet": constants.LEVEL_PACKET,
    "aead": constants.LEVEL_AEAD,
}
REQUIRED = ("packet", "aead")  # levels that a program or a policy may require
# Field of an END -> (minimum, maximum); sections 4.1, 7 and 12.
END_RANGES = {
    "qpn": (1, 2**24 - 1),
    "pn": (2**23, 2**24 - 1),
    "mtu": (256, 4096),
    "window": (1, 1024),
    "reads": (1, 128),
}


class Suite(NamedTuple):
    """Protection of the packets of a QP: suite id, level and tag length in bytes (2.1)."""

    id: int
    level: int
    tag_len: int


UNPROTECTED = Suite(0, 0, 0)


def level_name(number: int) -> str:
    return next(name for name, level in LEVELS.items() if level == number)


@dataclass(frozen=True)
class End:
    """One end of a QP, as its peer must know it (8.2): endpoint id (16 bytes), SRC QPN, first
    packet number, MTU in bytes, window in packets, READs and atomics at once, wire address."""

    eid: bytes
    qpn: int
    pn: int
    mtu: int
    window: int
    reads: int
    wire: str

    def as_map(self) -> dict[str, Any]:
        return dict(vars(self))


class To(NamedTuple):
    """The QPs of a rendezvous (8.8): GID of the client's worker, GID of the server's worker and
    SRC QPN of the server's QP."""

    of: bytes
    gid: bytes
    qpn: int

    def as_map(self) -> dict[str, Any]:
        return {"from": self.of, "gid": self.gid, "qpn": self.qpn}


def to_of(fields: Mapping[str, Any], ends: tuple[End, ...]) -> To | None:
    """The field `to` of an OFFER with these ends; None without one."""
    if "to" not in fields:
        return None
    value = fields["to"]
    if not isinstance(value, dict):
        raise bad("to", value, "a map")
    exactly(value, "TO", {"from", "gid", "qpn"})
    of, gid = (octets(value, name, gids.LEN, gids.LEN) for name in ("from", "gid"))
    to = To(of, gid, qpn_of("qpn", value["qpn"]))
    if len(ends) != 1:
        raise bad("qps", len(ends), "1 in an OFFER with `to`")
    if (ends[0].qpn, to.of) >= (to.qpn, to.gid):
        raise bad("qpn of the server", to.qpn, "above that of the client, or its GID must be")
    return to


def qpn_of(name: str, value: object) -> int:
    return integer(name, value, *END_RANGES["qpn"])


def random_of(fields: Mapping[str, Any]) -> bytes:
    return octets(fields, "random", RANDOM_LEN, RANDOM_LEN)


def data_of(fields: Mapping[str, Any]) -> bytes:
    return octets(fields, "data", 0, DATA_MAX)


def group_of(fields: Mapping[str, Any]) -> str:
    return text("group", fields["group"], GROUP_MAX)


def modes_of(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= len(MODES):
        raise bad("modes", value, f"a list of 1 to {len(MODES)} modes")
    modes = tuple(mode_of(entry) for entry in value)
    if len(set(modes)) != len(modes):
        raise bad("modes", value, "a list without repetitions")
    return modes


def mode_of(value: object) -> int:
    return integer("mode", value, 0, len(MODES) - 1)


def suites_of(value: object) -> tuple[Suite, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= SUITES_MAX:
        raise bad("suites", value, f"a list of 1 to {SUITES_MAX} entries")
    suites = tuple(suite_of(entry) for entry in value)
    if len(set(suites)) != len(suites):
        raise bad("suites", value, "a list without repetitions")
    if len(suites) > 1 and any(is_unprotected(s) for s in suites):
        raise bad("suites", value, "`none` alone or a list without it: `none` is not negotiable")
    return suites


def is_unprotected(suite: Suite) -> bool:
    return suite.id == 0 or suite.level == 0


def suite_of(value: object) -> Suite:
    if not isinstance(value, list) or len(value) != 3:
        raise bad("suite", value, "[suite id, level, tag length]")
    suite = Suite(
        integer("suite id", value[0], 0, 255),
        integer("level", value[1], 0, 3),
        integer("tag length", value[2], 0, 64),
    )
    if is_unprotected(suite) and suite != UNPROTECTED:
        raise bad("suite", value, "[0, 0, 0] for suite `none`")
    return suite


def ends_of(fields: Mapping[str, Any]) -> tuple[End, ...]:
    value = fields["ends"]
    if not isinstance(value, list) or not 1 <= len(value) <= QPS_MAX:
        raise bad("ends", value, f"a list of 1 to {QPS_MAX} ends")
    ends = tuple(end_of(entry) for entry in value)
    if len({(e.eid, e.qpn) for e in ends}) != len(ends):
        raise ExchangeError("value", "two ends have the same endpoint id and SRC QPN")
    return ends


def end_of(value: object) -> End:
    if not isinstance(value, dict):
        raise bad("end", value, "a map")
    exactly(value, "END", {"eid", "wire", *END_RANGES})
    numbers = {name: integer(name, value[name], *END_RANGES[name]) for name in END_RANGES}
    wire = text("wire", value["wire"], WIRE_MAX)
    if not wire.isascii() or not wire.isprintable() or not wire:
        raise bad("wire", wire, "an address of printable ASCII characters")
    return End(eid=octets(value, "eid", EID_LEN, EID_LEN), wire=wire, **numbers)
