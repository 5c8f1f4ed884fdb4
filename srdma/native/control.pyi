"""Types of control.pyx."""

from collections.abc import Iterable
from typing import Any

from typing_extensions import Buffer

VERSION: int
HEADER_LEN: int
MAX_MESSAGE: int
IDENTITY_LEN: int
TOKEN_MIN: int
TOKEN_MAX: int
ALLOW_UNPROTECTED: int
SHARED: int
KEPT_QP_LEN: int
RESOURCES: tuple[str, ...]
LOCAL_RESOURCES: tuple[str, ...]
REMOTE_RESOURCES: tuple[str, ...]
RESOURCE_PLACES: int
QUOTAS_MAX: int
QUOTA_LAST: int
PROGRAM: int
PROCESS: int
GROUP: int
IDENTITY: int

KINDS: dict[str, int]

def count_names() -> tuple[str, ...]: ...
def encode(kind: int, tag: int, values: Iterable[Any]) -> bytearray: ...
def peek(data: Buffer) -> tuple[int, int, int] | None: ...
def decode(data: Buffer) -> tuple[Any, ...] | str: ...
