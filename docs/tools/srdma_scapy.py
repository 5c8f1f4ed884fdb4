"""scapy layers for srdma on RoCEv2 datagrams (docs/protocol.md 2 and 11a).

Needs scapy 2.6 or newer. BTH, AETH and the ICRC are those of scapy's own contrib.roce. This module
adds RETH, AtomicETH, AtomicAckETH, ImmDt, IETH, the STH with its tag, and the ack body:

    import sys; sys.path.insert(0, "docs/tools")
    import srdma_scapy
    for packet in rdpcap("capture.pcap"):
        packet.show()

Example: BTH(opcode=0x0A, resv7=srdma_scapy.resv7(tag_length=16)) / RETH() / STH(tag=bytes(16)).
The tag size code in the BTH gives the length of the tag. A packet without it (level none, plain
RoCE) is not decoded here. Tags and ciphertext are opaque, because this module has no keys.
"""

from __future__ import annotations

from typing import Any

from scapy.config import conf
from scapy.contrib.roce import AETH, BTH
from scapy.fields import (
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    FieldLenField,
    FlagsField,
    IntField,
    PacketListField,
    StrField,
    StrFixedLenField,
    StrLenField,
    ThreeBytesField,
    XIntField,
    XLongField,
)
from scapy.packet import Packet, bind_layers

TAG_LENGTHS = (0, 12, 16, 20, 28, 32, 48, 64)
ACKNOWLEDGE = 0x11
KINDS = {1: "OPEN", 2: "PING", 3: "CLOSE", 4: "ACK", 5: "NAK", 6: "RNR"}


def resv7(tag_length: int, epoch: int = 0) -> int:
    """The 7 reserved bits of a BTH: tag size code and key epoch."""
    return TAG_LENGTHS.index(tag_length) << 4 | (epoch & 3) << 2


class RETH(Packet):
    name = "RETH"
    fields_desc = (XLongField("va", 0), XIntField("rkey", 0), IntField("dmalen", 0))


class AtomicETH(Packet):
    name = "AtomicETH"
    fields_desc = (
        XLongField("va", 0),
        XIntField("rkey", 0),
        XLongField("swap_add", 0),
        XLongField("compare", 0),
    )


class AtomicAckETH(Packet):
    name = "AtomicAckETH"
    fields_desc = (XLongField("original", 0),)


class ImmDt(Packet):
    name = "ImmDt"
    fields_desc = (XIntField("imm", 0),)


class IETH(Packet):
    name = "IETH"
    fields_desc = (XIntField("rkey", 0),)


# The extension headers of an opcode, in order.
EXTENSIONS: dict[int, tuple[type[Packet], ...]] = {
    opcode: headers
    for headers, opcodes in (
        ((), (0x00, 0x01, 0x02, 0x04, 0x07, 0x08, 0x0E)),
        ((ImmDt,), (0x03, 0x05, 0x09)),
        ((RETH,), (0x06, 0x0A, 0x0C)),
        ((RETH, ImmDt), (0x0B,)),
        ((AETH,), (0x0D, 0x0F, 0x10, ACKNOWLEDGE)),
        ((AETH, AtomicAckETH), (0x12,)),
        ((AtomicETH,), (0x13, 0x14)),
        ((IETH,), (0x16, 0x17)),
    )
    for opcode in opcodes
}


def _bth(packet: Packet | None) -> tuple[BTH | None, int]:
    """Returns the BTH below a layer, and the number of headers between them."""
    between = 0
    while packet is not None and not isinstance(packet, BTH):
        packet, between = packet.underlayer, between + 1
    return packet, between


class Gap(Packet):
    name = "Gap"
    fields_desc = (IntField("request_id", 0), IntField("offset", 0), IntField("length", 0))

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        return b"", s


class AckBody(Packet):
    name = "Ack body"
    fields_desc = (
        ByteEnumField("kind", 4, KINDS),
        ByteField("reason", 0),
        FieldLenField("count", None, fmt="B", count_of="gaps"),
        ByteField("skips", 0),
        IntField("position", 0),
        IntField("offset", 0),
        XIntField("highest_pn", 0),
        IntField("recv_credit", 0),
        IntField("request_credit", 0),
        XIntField("path", 0),
        PacketListField("gaps", [], Gap, count_from=lambda body: body.count),
    )


class Data(Packet):
    """Payload (ciphertext at level aead), and the pad bytes that the BTH counts."""

    name = "Data"
    fields_desc = (
        StrLenField("data", b"", length_from=lambda data: data.payload_length()),
        StrField("pad", b""),
    )

    def payload_length(self) -> int:
        bth, _ = _bth(self.underlayer)
        return max(0, len(self.original) - (bth.padcount if bth is not None else 0))


class STH(Packet):
    name = "STH"
    fields_desc = (
        ThreeBytesField("request_id", 0),
        FlagsField("flags", 0, 8, ["1", "2", "4", "8", "bare", "ack_now", "holder", "proof"]),
        IntField("offset", 0),
        ConditionalField(ByteField("depth", 0), lambda sth: sth.flags.proof),
        ConditionalField(BitField("zero", 0, 24), lambda sth: sth.flags.proof),
        ConditionalField(IntField("expiry", 0), lambda sth: sth.flags.proof),
        ConditionalField(StrFixedLenField("proof", b"", 16), lambda sth: sth.flags.proof),
        StrLenField("tag", b"", length_from=lambda sth: sth.tag_length()),
    )

    def tag_length(self) -> int:
        bth, _ = _bth(self.underlayer)
        return TAG_LENGTHS[bth.resv7 >> 4] if bth is not None else 0

    def guess_payload_class(self, payload: bytes) -> type[Packet]:
        bth, _ = _bth(self.underlayer)
        return AckBody if bth is not None and bth.opcode == ACKNOWLEDGE else Data


class Next(Packet):
    """A placeholder: becomes the header that the opcode has next."""

    @classmethod
    def dispatch_hook(cls, _pkt: bytes = b"", *_: Any, **kwargs: Any) -> type[Packet]:
        bth, between = _bth(kwargs.get("_underlayer"))
        if bth is None or not bth.resv7 >> 4 or bth.opcode not in EXTENSIONS:
            return conf.raw_layer
        return (*EXTENSIONS[bth.opcode], STH)[between]


for _opcode in EXTENSIONS:
    bind_layers(BTH, Next, opcode=_opcode)
for _header in (RETH, AtomicETH, AETH, AtomicAckETH, ImmDt, IETH):
    bind_layers(_header, Next)
