"""Types of bindings.pyx."""

from typing import NotRequired, TypedDict

from srdma.native.packet import REFUSALS as REFUSALS
from srdma.native.packet import FoundFields, PacketFields
from srdma.native.packet import RefusedError as RefusedError
from srdma.native.packet import parse as parse
from srdma.native.suites import suites as suites

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
