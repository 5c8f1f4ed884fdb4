"""Capabilities: transferable rights over a range of a peer's region (protocol.md 6.2).

The bearer of an open capability can narrow it, seal it and pass it on without contact to the
owner of the region. A sealed one is bound to a holder, to an expiry, or to both; it can only be
narrowed to whole pieces or to fewer rights. Treat a capability as a password: `repr()` shows no
key, `str()` and `to_bytes()` are the capability itself.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
from datetime import datetime
from enum import IntFlag

from srdma.errors import BoundsError, LocalError
from srdma.native import constants
from srdma.native.capability import RefusedError, Token

_PREFIX = "srdma-cap1:"
_ANY_HOLDER = bytes(constants.HOLDER_LEN)
_EXPIRY_END = 1 << 32
NO_RIGHT = "a capability needs at least one right"

_NOT_DECODED = {
    errno.EMSGSIZE: "the length does not match the range in the token",
    errno.EPROTO: "they are no token of this version, or a field has an illegal value",
    errno.EBADMSG: "they were damaged in transfer: the check value is wrong",
}


class Right(IntFlag):
    """Rights that a capability grants; bits may be or-ed."""

    READ = constants.RIGHT_READ
    WRITE = constants.RIGHT_WRITE
    ATOMIC = constants.RIGHT_ATOMIC


class CapabilityError(LocalError, ValueError):
    """A capability that cannot be decoded, made, narrowed or sealed as requested."""


def holder_id(identity: str) -> bytes:
    """First 16 bytes of SHA-256 of an identity, the URI of a certificate (protocol.md 6.1)."""
    if not identity or not identity.isascii():
        raise CapabilityError(f"{identity!r} is no identity: give the URI of a certificate")
    return hashlib.sha256(identity.encode()).digest()[: constants.HOLDER_LEN]


def bearer_of(holder: str | None, expires: int | datetime | None) -> tuple[bytes, int]:
    """Holder (16 bytes) and expiry (Unix seconds) as in a token; zero: any holder, no expiry."""
    holder_bytes = _ANY_HOLDER if holder is None else holder_id(holder)
    return holder_bytes, 0 if expires is None else _seconds(expires)


class Capability:
    """An immutable capability. Offsets in its methods count from the first byte that it grants."""

    __slots__ = ("_hash", "_token")

    def __init__(self, token: Token) -> None:
        """Use `from_bytes()` or `parse()`."""
        self._token = token
        self._hash = hash(token.encode())

    # --- as bytes and text ----------------------------------------------------

    @classmethod
    def from_bytes(cls, data: bytes | bytearray | memoryview) -> Capability:
        """Inverse of to_bytes(). Raises CapabilityError for any other bytes."""
        try:
            return cls(Token(bytes(data)))
        except RefusedError as refused:
            why = _NOT_DECODED[refused.errno]
        raise CapabilityError(f"these {len(data)} bytes are no capability: {why}")

    def to_bytes(self) -> bytes:
        """The token (protocol.md 6.2): 88 bytes, and 16 for each key after the first."""
        return self._token.encode()

    @classmethod
    def parse(cls, text: str) -> Capability:
        """Inverse of str(), which prints the token in base64url. Raises CapabilityError."""
        text = text.strip()
        if not text.startswith(_PREFIX):
            raise CapabilityError(f"a capability as text begins with {_PREFIX!r}, this does not")
        digits = text.removeprefix(_PREFIX)
        try:
            data = base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError):
            data = b""
        if _digits(data) != digits:
            raise CapabilityError(f"the text after {_PREFIX!r} is not base64url without padding")
        return cls.from_bytes(data)

    def __str__(self) -> str:
        return _PREFIX + _digits(self.to_bytes())

    def __repr__(self) -> str:
        parts = [f"{self.length} bytes at {self.address:#x}", f"rkey {self.rkey:#x}"]
        parts += [names_of(self.rights)]
        parts += [f"holder {self.holder.hex()}"] if self.holder else []
        parts += [f"expires {self.expires}"] if self.expires else []
        return f"<Capability {', '.join(parts)}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capability) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        return Capability.from_bytes, (self.to_bytes(),)

    # --- rights and range -----------------------------------------------------

    @property
    def rights(self) -> Right:
        """Rights granted, or-ed."""
        return Right(self._token.scope[2])

    @property
    def offset(self) -> int:
        """Offset of the first byte granted, in bytes from the start of the region."""
        return self._token.scope[0]

    @property
    def length(self) -> int:
        """Number of bytes granted."""
        lo, hi, _ = self._token.scope
        return hi - lo

    def __len__(self) -> int:
        return self.length

    @property
    def address(self) -> int:
        """Virtual address of the first byte granted, in the memory of its host."""
        return self._token.region[0] + self.offset

    @property
    def rkey(self) -> int:
        """Wire rkey of the region."""
        return self._token.rkey

    @property
    def block_size(self) -> int:
        """Unit in bytes of ranges: narrow() accepts multiples of it."""
        return self._token.granule

    @property
    def pieces(self) -> list[tuple[int, int]]:
        """(offset, length) of each node. The sender splits an access at the ends of nodes."""
        return [(lo - self.offset, hi - lo) for _, _, lo, hi in self._token.nodes]

    @property
    def sealed(self) -> bool:
        """True if it is bound to a holder, an expiry or both."""
        return self._token.sealed

    @property
    def holder(self) -> bytes | None:
        """`holder_id()` of the only identity that can use it; None: any."""
        return None if self._token.holder == _ANY_HOLDER else self._token.holder

    @property
    def expires(self) -> int | None:
        """The first second (Unix time) at which it is void; None: never."""
        return self._token.expiry or None

    # --- restricting it -------------------------------------------------------

    def narrow(
        self, offset: int = 0, length: int | None = None, rights: Right | int | None = None
    ) -> Capability:
        """A capability for `length` bytes at `offset` with `rights`.

        length None: up to the end. rights None: all that this one grants. Raises BoundsError for
        bytes outside the range, CapabilityError for rights or borders that cannot be granted.
        """
        size = self.length - offset if length is None else length
        wanted = int(self.rights if rights is None else rights)
        if not wanted:
            raise CapabilityError(NO_RIGHT)
        self.check_right(wanted)
        if offset < 0 or size < 1 or offset + size > self.length:
            raise BoundsError(
                f"{size} bytes at offset {offset}: empty, or not inside a capability of "
                f"{self.length} bytes"
            )
        lo = self.offset + offset
        try:
            return Capability(self._token.narrow(lo, lo + size, wanted))
        except RefusedError as refused:
            why = self._why_not(refused.errno)
        raise CapabilityError(f"{size} bytes at offset {offset} cannot be granted: {why}")

    def check_right(self, wanted: Right | int) -> None:
        """Raise CapabilityError unless all `wanted` rights are granted."""
        missing = int(wanted) & ~int(self.rights)
        if missing:
            raise CapabilityError(
                f"this capability grants {names_of(self.rights)}, not {names_of(missing)}"
            )

    def _why_not(self, number: int) -> str:
        if number == errno.EPERM:
            offsets = ", ".join(str(offset) for offset, _ in self.pieces)
            return (
                f"a sealed capability has whole pieces only, which begin at {offsets}; "
                "narrow it before it is sealed"
            )
        return (
            f"begin at a multiple of the block size, {self.block_size} bytes, and end at one or at "
            f"the end of the region"
        )

    def seal(
        self, *, holder: str | None = None, expires: int | datetime | None = None
    ) -> Capability:
        """A sealed copy: for the identity `holder` only, before `expires` only, or both.

        holder: a URI. expires: Unix time in seconds, or an aware datetime. Raises CapabilityError
        if this capability is sealed already, or neither is given.
        """
        if self.sealed:
            raise CapabilityError("this capability is sealed already: seal the open one")
        if holder is None and expires is None:
            raise CapabilityError("seal() needs holder=, expires= or both")
        return Capability(self._token.seal(*bearer_of(holder, expires)))


def _digits(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def names_of(rights: int) -> str:
    """Names of rights, such as READ|WRITE; bits without a name as a number."""
    known = [str(right.name) for right in Right if rights & right]
    other = rights & ~int(Right.READ | Right.WRITE | Right.ATOMIC)
    return "|".join(known + ([str(other)] if other else []))


def _seconds(expires: int | datetime) -> int:
    """Unix time in whole seconds, rounded up."""
    if isinstance(expires, datetime):
        if expires.tzinfo is None:
            raise CapabilityError("expires= needs a time zone: datetime.now(timezone.utc) + ...")
        expires = -int(-expires.timestamp() // 1)
    if not 0 < expires < _EXPIRY_END:
        raise CapabilityError(
            f"expires={expires} is no Unix time in seconds between 1 and {_EXPIRY_END - 1}"
        )
    return expires
