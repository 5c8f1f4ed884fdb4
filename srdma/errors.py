"""All exceptions of srdma. `Error` is the root; the branches say where the cause is.

LocalError: the caller. RemoteError: the peer. IntegrityError: identities and keys. DeviceError:
worker, NIC or operating system. A failed work request is a `WCError` in the branch of its reason
(protocol.md 13.1), with the completion in `wc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from srdma.wc import WC


class Error(Exception):
    """Root of all exceptions of srdma."""


class LocalError(Error):
    """The call was illegal: an argument, the order of calls, or a limit."""


class ClosedError(LocalError):
    """The object was closed, or belongs to the parent of this forked process."""


class BoundsError(LocalError, ValueError):
    """An address range lies outside its memory region."""


class BufferAccessError(LocalError, BufferError):
    """A buffer cannot be used as requested: it is read-only, not contiguous, or empty."""


class QueueFullError(LocalError):
    """No room for a further work request: the queue or the leg is full. Poll completions."""


class RemoteError(Error):
    """The peer refused, violated the protocol, or is gone."""


class IntegrityError(Error):
    """An identity, a key or a tag was wrong, or a key reached its limit of use."""


class DeviceError(Error):
    """The worker, the NIC or the operating system failed."""


class NoWorkerError(DeviceError):
    """No worker answers at the control socket."""


class RefusedError(DeviceError):
    """The worker refused a control message; `errno` and the text are those of its answer."""

    def __init__(self, errno: int, text: str) -> None:
        super().__init__(text)
        self.errno = errno


class Timeout(Error, TimeoutError):  # noqa: N818 - the usual name
    """The time-out of the call ran out."""


class WCError(Error):
    """A work request failed; `wc` is its completion."""

    def __init__(self, text: str, wc: WC) -> None:
        super().__init__(text)
        self.wc = wc


class LocalWCError(WCError, LocalError):
    """A work request failed at this end."""


class RemoteWCError(WCError, RemoteError):
    """A work request failed at the peer or on the path."""


class IntegrityWCError(WCError, IntegrityError):
    """A work request failed because a key reached its limit of use."""


class DeviceWCError(WCError, DeviceError):
    """A work request failed because the local NIC could not execute it."""


class WorkerGone(DeviceError):  # noqa: N818 - named as its reason, WORKER_GONE
    """The local worker, or the leg to it, ended. `wc`: the failed completion, if there is one."""

    def __init__(self, text: str, wc: WC | None = None) -> None:
        super().__init__(text)
        self.wc = wc
