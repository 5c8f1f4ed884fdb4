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

HELLO: int
OPEN: int
ATTACH: int
REG_MR: int
DEREG_MR: int
INIT: int
KEYS: int
WAIT: int
DESTROY: int
STATS: int
KEY: int
CAP: int
INSTALL: int
UNINSTALL: int
REVOKE: int
ROTATE: int
REKEY: int
EXPIRE: int
END: int

def encode(kind: int, tag: int, values: Iterable[Any]) -> bytearray: ...
def peek(data: Buffer) -> tuple[int, int, int] | None: ...
def decode(data: Buffer) -> tuple[Any, ...] | str: ...
