"""Types of packet.pyx."""

from typing import NotRequired, TypedDict

REFUSALS: tuple[str, ...]
TAG_LENGTHS: dict[int, int]

class RefusedError(ValueError):
    counter: str
    def __init__(self, counter: str) -> None: ...

class AckFields(TypedDict):
    kind: int
    reason: NotRequired[int]
    request_id: NotRequired[int]
    offset: NotRequired[int]
    highest_pn: NotRequired[int]
    recv_credit: NotRequired[int]
    request_credit: NotRequired[int]
    length: NotRequired[int]
    gaps: NotRequired[tuple[tuple[int, int, int], ...]]
    skips: NotRequired[int]

class PacketFields(TypedDict):
    """Fields of a packet. Fields that its opcode does not carry are absent or 0."""

    opcode: int
    request_id: int
    flags: NotRequired[int]
    offset: NotRequired[int]
    depth: NotRequired[int]
    expiry: NotRequired[int]
    proof: NotRequired[bytes]
    access_key: NotRequired[bytes | None]
    va: NotRequired[int]
    rkey: NotRequired[int]
    dma_len: NotRequired[int]
    swap_add: NotRequired[int]
    compare: NotRequired[int]
    original: NotRequired[int]
    imm: NotRequired[int]
    ack: NotRequired[AckFields | None]

class FoundFields(PacketFields):
    """Fields of a received packet: `tag` is set by parse(), `pn` by open()."""

    qpn: int
    psn: int
    epoch: int
    payload: bytes
    tag: NotRequired[bytes]
    pn: NotRequired[int]

def parse(data: bytes, tag_len: int, mtu: int = 4096) -> FoundFields: ...
