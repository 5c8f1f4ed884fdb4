"""Judges the packets of a wire: which had a Secure Transport Header, whose tags verify
(docs/verify-wire.md 2).

Memory is bounded, whatever an attacker sends: a table that is full counts further entries together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from srdma.errors import LocalError
from srdma.inspect import datagram, roce, trains
from srdma.inspect.capture_file import Captured
from srdma.inspect.keys import KeyLog, Known, Way
from srdma.inspect.reassembly import Reassembly
from srdma.inspect.verifier import Flow, Tag
from srdma.keyex.exchange import mode_name
from srdma.keyex.offers import LEVELS, Suite
from srdma.keyex.policy import describe
from srdma.native.packet import TAG_LENGTHS, RefusedError, parse

if TYPE_CHECKING:
    from srdma.native.packet import FoundFields

QPNS_MAX = 4096  # destination QPNs that are listed
_CODE_AT = 8  # byte of the BTH with tag size code and epoch
_SHORT = 62  # bytes of a frame up to the end of its UDP header, over IPv6
_ICRC = 4


@dataclass
class Seen:
    """Packets to one destination QPN."""

    packets: int = 0
    tag_lengths: set[int] = field(default_factory=set)
    epoch_bits: set[int] = field(default_factory=set)


@dataclass
class Proof:
    """The counts so far. sth: packets with a valid STH; plain: others, by kind; transport:
    frames without data of a program, by kind; cut: of which the capture has only a part; lost: by
    the capture; other: frames that are not RoCE. exposed: packets of level `header` with payload.
    """

    keys: KeyLog | None = None
    ports: Collection[int] = (roce.PORT,)
    allow_header: bool = False
    sth: int = 0
    plain: Counter[str] = field(default_factory=Counter)
    transport: Counter[str] = field(default_factory=Counter)
    cut: int = 0
    lost: int = 0
    other: int = 0
    exposed: int = 0
    tags: Counter[Tag] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._reassembly = Reassembly()
        self._qpns: dict[int, Seen] = {}
        self._flows: dict[int, Flow] = {}  # by id of their Way, which the key log keeps
        self._counts: dict[int, tuple[Known, Counter[Tag]]] = {}  # by id of the session

    def frame(self, captured: Captured) -> None:
        """A frame of a network. Raises LocalError if its link type is not supported."""
        datagram.check_link(captured.link)
        found = datagram.decode(captured.link, captured.data)
        if found is None:
            if len(captured.data) < min(captured.length, _SHORT):
                self.cut += 1
            else:
                self.other += 1
        elif found.port not in self.ports:
            self.other += 1
        elif not found.whole:
            self.cut += 1
        else:
            for each in trains.split(found):
                self._roce(each)

    def packet(self, data: bytes) -> None:
        """A packet of srdma, or of what should be one."""
        code = data[_CODE_AT] >> 4 & 7 if len(data) > _CODE_AT else 0
        if not code:
            self.plain["no STH"] += 1
            return
        try:
            fields = parse(data, TAG_LENGTHS[code])
        except RefusedError as error:
            self.plain[f"no valid STH ({error.counter})"] += 1
            return
        self.sth += 1
        self._see(fields, TAG_LENGTHS[code])
        if self.keys is not None:
            self.tags[self._verify(data, fields)] += 1

    def finish(self) -> None:
        """No more frames follow."""
        for message in self._reassembly.finish():
            self.packet(message)

    def close(self) -> None:
        """Wipe the keys."""
        for flow in self._flows.values():
            flow.close()

    @property
    def judged(self) -> int:
        """Packets with an STH, and plain ones."""
        return self.sth + self.plain.total()

    @property
    def incomplete(self) -> int:
        """Messages of which the capture misses frames."""
        return self._reassembly.incomplete

    def faults(self) -> list[str]:
        """Reasons why the wire is not shown to be protected; empty: it is."""
        tags, plain = self.tags, self.plain.total()
        header = 0 if self.allow_header else self.exposed
        counts = (
            (not self.sth and not plain, "no packet was seen: check interface, port and capture"),
            (plain, f"{plain} packets without a valid STH"),
            (self.cut, f"{self.cut} packets are not whole in the capture: capture whole frames"),
            (self.incomplete, f"{self.incomplete} messages miss frames in the capture"),
            (self.lost, f"{self.lost} frames were lost by the capture"),
            (tags[Tag.WRONG], f"{tags[Tag.WRONG]} tags are wrong"),
            (tags[Tag.UNKNOWN], f"{tags[Tag.UNKNOWN]} tags are of sessions without a known secret"),
            (header, f"{header} payloads are not covered by the tag (level header)"),
        )
        return [text for number, text in counts if number]

    def report(self) -> dict[str, Any]:
        """All counts, for JSON. It has no secret."""
        faults = self.faults()
        return {
            "protected": not faults,
            "faults": faults,
            "sth": self.sth,
            "plain": dict(self.plain),
            "transport": dict(self.transport),
            "cut": self.cut,
            "incomplete": self.incomplete,
            "lost": self.lost,
            "other": self.other,
            "exposed": self.exposed,
            "tags": {tag.value: self.tags[tag] for tag in Tag} if self.keys is not None else None,
            "qpns": [
                {
                    "qpn": f"{qpn:06x}" if qpn >= 0 else "others",
                    "packets": seen.packets,
                    "tag_lengths": sorted(seen.tag_lengths),
                    "epoch_bits": sorted(seen.epoch_bits),
                }
                for qpn, seen in sorted(self._qpns.items())
            ],
            "sessions": list(self._sessions()),
        }

    # Internal --------------------------------------------------------------------

    def _roce(self, found: datagram.Datagram) -> None:
        packet = found.payload[:-_ICRC]
        if len(packet) > _CODE_AT and packet[_CODE_AT] & 0x70:
            self.packet(packet)
            return
        frame = roce.frame_of(found)
        if frame is None:
            self.plain["too short"] += 1
        elif frame.is_transport:
            self.transport[frame.kind] += 1
        elif frame.kind == "SEND":
            for message in self._reassembly.add(frame):
                self.packet(message)
        else:
            self.plain[frame.kind] += 1

    def _see(self, fields: FoundFields, tag_len: int) -> None:
        qpn = fields["qpn"]
        if qpn not in self._qpns and len(self._qpns) >= QPNS_MAX:
            qpn = -1
        seen = self._qpns.setdefault(qpn, Seen())
        seen.packets += 1
        seen.tag_lengths.add(tag_len)
        seen.epoch_bits.add(fields["epoch"])

    def _verify(self, packet: bytes, fields: FoundFields) -> Tag:
        assert self.keys is not None
        tag, way = self._try(packet, fields["qpn"])
        if tag in (Tag.WRONG, Tag.UNKNOWN) and self.keys.refresh():
            tag, way = self._try(packet, fields["qpn"])
        if way is None:
            return tag
        known = self.keys.known(way)
        self._counts.setdefault(id(known), (known, Counter()))[1][tag] += 1
        if tag in (Tag.RIGHT, Tag.REPEATED) and known.session.level == LEVELS["header"]:
            self.exposed += bool(fields["payload"])
        return tag

    def _try(self, packet: bytes, qpn: int) -> tuple[Tag, Way | None]:
        """The best result of the sessions with this QPN."""
        assert self.keys is not None
        best: tuple[Tag, Way | None] = Tag.UNKNOWN, None
        for way in self.keys.ways(qpn):
            tag = self._verify_by(way, packet)
            if tag in (Tag.RIGHT, Tag.REPEATED):
                return tag, way
            if best[1] is None or tag is Tag.WRONG:
                best = tag, way
        return best

    def _verify_by(self, way: Way, packet: bytes) -> Tag:
        assert self.keys is not None
        if not way.secrets:
            return Tag.UNKNOWN
        other = self._flows.get(id(self.keys.known(way).ways[1 - way.direction]))
        return self._flow(way).verify(packet, other)

    def _flow(self, way: Way) -> Flow:
        flow = self._flows.get(id(way))
        if flow is None:
            try:
                flow = self._flows[id(way)] = Flow(way)
            except (OSError, ValueError, OverflowError):
                raise LocalError(
                    f"the key log has values of QP {way.session.qpn:06x} that do not agree: it was"
                    " changed, or is of another version"
                ) from None
        return flow

    def _sessions(self) -> Iterator[dict[str, Any]]:
        for known, counts in self._counts.values():
            s = known.session
            flows = [self._flows.get(id(way)) for way in known.ways]
            yield {
                "identities": known.identities,
                "qpns": [f"{way.sender[1]:06x}" for way in known.ways],
                "suite": describe(Suite(s.suite, s.level, s.tag_len)),
                "mode": mode_name(s.mode),
                "epochs": [sorted(flow.epochs) if flow else [] for flow in flows],
                "tags": {tag.value: counts[tag] for tag in Tag},
            }
