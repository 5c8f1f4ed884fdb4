"""Types of suites.pyx."""

from typing import TypedDict

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

def suites() -> list[SuiteRow]: ...
def selftest(name: str) -> bool: ...
