"""Types of kvs.pyx, which documents them."""

from srdma.native.leg import Host, ShmLeg

SLOT_LEN: int
KEY_LEN: int
VALUE_LEN: int

def mixes() -> dict[str, str]: ...
def key(number: int) -> bytes: ...
def sealed(slot: bytearray) -> bytes: ...

class Trouble(Exception): ...  # noqa: N818

class Store:
    count: int
    spares: int
    def __init__(self, items: int) -> None: ...
    def fill(self, keys: int) -> int: ...

class Server:
    counts: dict[str, int]
    def __init__(
        self,
        host: Host,
        leg: ShmLeg,
        store: Store,
        connections: list[tuple[int, int, int, memoryview]],
    ) -> None: ...
    def run(self, ns: int) -> int: ...

class Trace:
    count: int
    inserts: bool
    def __init__(self, mix: str, count: int, keys: int, theta: float, seed: int) -> None: ...

class History:
    def __init__(self, capacity: int) -> None: ...
    def __len__(self) -> int: ...
    def check(self, keys: int) -> tuple[int, int, int, int] | None: ...

class Client:
    counts: dict[str, int]
    keys: int
    def __init__(
        self,
        host: Host,
        leg: ShmLeg,
        connections: list[
            tuple[int, tuple[int, int], int, int, tuple[int, int, int], tuple[memoryview, int]]
        ],
        keys: int,
        capacity: int,
    ) -> None: ...
    def record(self, history: History | None) -> None: ...
    def run(self, trace: Trace | None, ns: int = 0) -> None: ...
    def bye(self) -> None: ...
    def reset(self) -> None: ...
    def quantile(self, q: float) -> int: ...
