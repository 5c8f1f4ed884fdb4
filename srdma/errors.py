"""One tree of exceptions, by whose fault it is: `Error` is their root.

A failed work request is a `WCError`, in the branch that its reason belongs to
(protocol.md 13.1), with the completion in `wc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srdma.wc import WC


class Error(Exception):
    """Root of all that srdma raises."""


class LocalError(Error):
    """The call was wrong: an argument, an order of calls, a limit."""


class ClosedError(LocalError):
    """The object was closed, or belongs to the process that forked this one."""


class BoundsError(LocalError, ValueError):
    """An address range lies outside its memory region."""


class BufferAccessError(LocalError, BufferError):
    """A buffer cannot be registered as asked: read-only, not contiguous, empty."""


class QueueFullError(LocalError):
    """More work requests are outstanding than the queue is deep."""


class RemoteError(Error):
    """The peer refused, broke the protocol, or went away."""


class IntegrityError(Error):
    """An identity, a key or a tag was wrong, or a key is spent."""


class DeviceError(Error):
    """The worker, the NIC or the operating system could not do it."""


class NoWorkerError(DeviceError):
    """No worker answers at the control socket."""


class RefusedError(DeviceError):
    """The worker refused a control message; `errno` and the text are its own."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno


class Timeout(Error, TimeoutError):  # noqa: N818 - the field's name
    """It did not happen in the time that the caller gave."""


class WCError(Error):
    """A work request failed; `wc` is its completion."""

    def __init__(self, text: str, wc: WC) -> None:
        super().__init__(text)
        self.wc = wc


class LocalWCError(WCError, LocalError):
    """A work request failed at this end."""


class RemoteWCError(WCError, RemoteError):
    """A work request failed at the peer or on the way."""


class IntegrityWCError(WCError, IntegrityError):
    """A work request failed because its key may not be used any more."""


class DeviceWCError(WCError, DeviceError):
    """A work request failed because the own NIC could not execute it."""


class WorkerGone(DeviceError):  # noqa: N818 - named as its reason, WORKER_GONE
    """The own worker ended; `wc` is the completion that told it, if one did."""

    def __init__(self, text: str, wc: WC | None = None) -> None:
        super().__init__(text)
        self.wc = wc
