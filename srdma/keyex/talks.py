"""The messages of a talk between two programs (protocol.md 8.9)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from srdma import gid as gids
from srdma.keyex.fields import exactly, integer, octets
from srdma.keyex.offers import DATA_MAX, END_RANGES, qpn_of

PORT_MAX = 65_535
QPN_BIT = 1 << 24  # of the field `talk`: the rest is the QPN of a UD QP, and no port
PORT_OF_QP_MAX = QPN_BIT | max(END_RANGES["qpn"])


@dataclass(frozen=True)
class Talk:
    """TALK: the first message, of a program at the GID `of` to the one that serves a port of `gid`.

    port: that is served, or QPN_BIT and the QPN of a UD QP; own: a port of the caller, or 0.
    """

    of: bytes
    gid: bytes
    port: int
    own: int = 0
    data: bytes = field(default=b"", repr=False)

    def as_map(self) -> dict[str, Any]:
        return {
            "talk": self.port,
            "from": self.of,
            "gid": self.gid,
            "port": self.own,
            "data": self.data,
        }


@dataclass(frozen=True)
class Say:
    """SAY: a further message, of either end."""

    data: bytes = field(repr=False)


def talk_of(fields: Mapping[str, Any]) -> Talk:
    """Raises ExchangeError."""
    exactly(fields, "TALK", {"talk", "from", "gid", "port", "data"})
    of, gid = (octets(fields, name, gids.LEN, gids.LEN) for name in ("from", "gid"))
    return Talk(
        of,
        gid,
        _served("talk", fields["talk"]),
        port_of("port", fields["port"], 0),
        octets(fields, "data", 0, DATA_MAX),
    )


def say_of(fields: Mapping[str, Any]) -> Say:
    """Raises ExchangeError."""
    return Say(octets(fields, "say", 0, DATA_MAX))


def port_of(name: str, value: object, least: int) -> int:
    """Raises ExchangeError (`value`)."""
    return integer(name, value, least, PORT_MAX)


def port_of_qp(name: str, value: object) -> int:
    """The number by which a talk names the UD QP with a QPN. Raises ExchangeError (`value`)."""
    return QPN_BIT | qpn_of(name, value)


def name_of(port: int) -> str:
    """A text for people that names a port or a UD QP."""
    return f"UD QP {port ^ QPN_BIT:#08x}" if port & QPN_BIT else f"port {port}"


def _served(name: str, value: object) -> int:
    """Raises ExchangeError (`value`)."""
    port = integer(name, value, 1, PORT_OF_QP_MAX)
    return port_of_qp(name, port ^ QPN_BIT) if port & QPN_BIT else port_of(name, port, 1)
