"""Types of _native.pyx."""

from typing import NotRequired, TypedDict

REFUSALS: tuple[str, ...]

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
    """A packet; those that its opcode does not carry are left out or 0."""

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
    """What the parser found: `tag` from parse(), `pn` from open()."""

    qpn: int
    psn: int
    epoch: int
    payload: bytes
    tag: NotRequired[bytes]
    pn: NotRequired[int]

class SuiteRow(TypedDict):
    id: int
    name: str
    key_len: int
    iv_len: int
    tag_len: int
    tag_min: int
    packets: int
    forgeries: int
    recommended: bool
    levels: tuple[int, ...]

class SessionParams(TypedDict):
    role: int
    suite: int
    level: int
    mode: NotRequired[int]
    tag_len: int
    window: NotRequired[int]
    mtu: NotRequired[int]
    generation: bytes
    local_eid: bytes
    peer_eid: bytes
    local_qpn: int
    peer_qpn: int
    tx_pn: int
    rx_pn: int
    tx_secret: bytes
    rx_secret: bytes
    rekey_packets: NotRequired[int]
    rekey_bytes: NotRequired[int]
    rekey_ns: NotRequired[int]
    group_key: NotRequired[bytes | None]
    shared: NotRequired[bool]
    key_cache: NotRequired[KeyCache | None]

class Counts(TypedDict):
    hits: int
    misses: int
    kept: int

class SessionState(TypedDict):
    key_bytes: int
    nonce_bytes: int
    window_bytes: int

def parse(data: bytes, tag_len: int, mtu: int = 4096) -> FoundFields: ...
def infer(expected: int, low: int) -> int | None: ...
def encode_descriptor(f: dict[str, int]) -> bytes: ...
def decode_descriptor(slot: bytes) -> dict[str, int]: ...
def encode_record(f: dict[str, int]) -> bytes: ...
def decode_record(data: bytes) -> dict[str, int]: ...
def kdf(parent: bytes, label: str, context: bytes, n: int) -> bytes: ...
def pd_secret(
    group_key: bytes,
    receiver: tuple[bytes, int],
    sender: tuple[bytes, int],
    generation: bytes,
    size: int,
) -> bytes: ...
def suites() -> list[SuiteRow]: ...

class Provider:
    def __init__(self, name: str) -> None: ...

class Suite:
    tag_len: int
    def __init__(
        self,
        name: str,
        key: bytes,
        tag_len: int | None = None,
        provider: Provider | None = None,
    ) -> None: ...
    def seal(self, nonce: bytes, ad: bytes, payload: bytes) -> tuple[bytes, bytes]: ...
    def open(self, nonce: bytes, ad: bytes, payload: bytes, tag: bytes) -> bytes: ...

class KeyCache:
    def __init__(self, contexts: int) -> None: ...
    @property
    def counts(self) -> Counts: ...

class Session:
    def __init__(self, params: SessionParams) -> None: ...
    def close(self) -> None: ...
    def seal(self, fields: PacketFields, payload: bytes) -> bytes: ...
    def open(self, data: bytes) -> FoundFields: ...
    def claim(self) -> bytes: ...
    def advance(self, now: int, told: int) -> int: ...
    def renew(self, direction: int, secret: bytes) -> None: ...
    def rotate(self, group_key: bytes) -> None: ...
    @property
    def epochs(self) -> tuple[int, int]: ...
    @property
    def state(self) -> SessionState: ...
    def limit(self, packets: int, forgeries: int) -> None: ...
    @property
    def next_pn(self) -> int: ...
    @property
    def highest(self) -> int: ...
    @property
    def forgeries(self) -> int: ...
    @property
    def spent(self) -> bool: ...
    @property
    def overhead(self) -> int: ...
