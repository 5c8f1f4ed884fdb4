from array import array
from typing import Any

from srdma._leg import Host, ShmLeg, Work

class Failed(Exception): ...  # noqa: N818

class Load:
    def __init__(self, host: Host, leg: ShmLeg) -> None: ...
    def stream(self, works: list[Work], count: int, ns: int) -> tuple[int, int]: ...
    def receive(self, works: list[Work], count: int, ns: int) -> tuple[int, int]: ...
    def alone(self, work: Work, times: array[int]) -> None: ...
    def play(
        self,
        work: Work,
        receive: Work | None,
        out: Any,
        back: Any,
        times: array[int],
        first: bool,
    ) -> None: ...
    def post_all(self, works: list[Work]) -> int: ...
