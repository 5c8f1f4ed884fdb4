"""Transfer of one file over a secure QP: chunks by WRITE into the receiver's region, SHA-256 at
both ends.

    sender                                receiver
    BEGIN {name, size} (SEND)      ->
    chunk 0, 1, ... (WRITE with immediate, chunk i into slot i mod SLOTS)  ->
    END {sha256} (SEND)            ->
                                   <-     DONE {sha256} (SEND)

The receiver posts one receive for BEGIN and one per free slot, and one more after it has written a
chunk to the file. RECV credit is therefore the flow control: the sender never overwrites a slot
that the receiver still reads. Either end may send {error} instead of any message; then both ends
fail. The file gets its name only when it is complete and on disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import cbor2

from srdma import plain_cbor
from srdma.errors import Error, IntegrityError, LocalError, RemoteError, WCError
from srdma.mr import MR, Access, RemoteMR
from srdma.pd import PD
from srdma.qp import SecureQP
from srdma.wc import WC, WCOpcode
from srdma.wr import RecvWR, SendWR, WROpcode

CHUNK = 1 << 20
SLOTS = 8
REGION = CHUNK * SLOTS
MESSAGE = 4096  # bytes of BEGIN, END, DONE and error
NAME_MAX = 255  # bytes of a file name, as in Linux file systems
SIZE_MAX = (1 << 63) - 1  # bytes of a file, as in Linux
NAME_SHOWN = 80  # characters of a name in an error
EVENT_TIMEOUT = 0.2  # seconds until the event that explains flushed requests

Progress = Callable[[int, int], None]  # bytes done, total bytes


class End:
    """One end of a transfer: completions of its QP, and messages. Owns the region `region`."""

    def __init__(self, qp: SecureQP, pd: PD, region: MR, receives: int) -> None:
        self._qp = qp
        self._messages = pd.alloc(MESSAGE * receives)
        self.region = region
        for index in range(receives):
            self._post_receive(index)

    def _post_receive(self, index: int) -> None:
        piece = self._messages[index * MESSAGE : (index + 1) * MESSAGE]
        self._qp.post_recv(RecvWR(index, [piece]))

    def _next(self) -> WC:
        """Wait for the next completion. Raises WCError or RemoteError if it failed."""
        wcs = self._qp.poll(1, None)
        if not wcs:
            raise self._ended()
        if error := wcs[0].error():
            raise self._ended() if wcs[0].reason == "FLUSHED" else error
        return wcs[0]

    def _ended(self) -> RemoteError:
        """The exception for a QP in error. The event with the reason follows flushed requests."""
        while not self._qp.reason and self._qp.poll(SLOTS, EVENT_TIMEOUT):
            pass
        return RemoteError(
            f"the connection ended before the transfer: {self._qp.reason or 'no reason given'}"
        )

    def _message(self, wc: WC) -> dict[str, Any]:
        """The peer's message. Raises RemoteError if it is malformed or {error}."""
        at = wc.wr_id * MESSAGE
        try:
            message = plain_cbor.loads(bytes(self._messages.buf[at : at + wc.byte_len]))
        except Exception:  # hostile bytes may raise any exception in the decoder
            message = None
        if not isinstance(message, dict):
            raise RemoteError("the peer sent a malformed message: it must be `srdma send` or recv")
        if "error" in message:
            raise RemoteError(f"the peer reports: {_printable(str(message['error']))}")
        return message

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._qp.send(cbor2.dumps(message))
        except WCError:
            for wc in self._qp.poll(SLOTS + 2):  # an {error} of the peer is the better reason
                if wc.opcode == WCOpcode.RECV and wc.error() is None:
                    self._message(wc)
            raise

    @contextlib.contextmanager
    def _report_failure(self) -> Iterator[None]:
        """Send {error} to the peer if this end fails."""
        try:
            yield
        except (LocalError, IntegrityError) as error:
            with contextlib.suppress(Error):
                self._send({"error": str(error)[: MESSAGE // 2]})
            raise

    def close(self) -> None:
        """Free the memory. The caller closes the QP first."""
        self._messages.close()
        self.region.close()


class Sender(End):
    """The end with the file."""

    def __init__(self, qp: SecureQP, pd: PD, remote: RemoteMR) -> None:
        super().__init__(qp, pd, pd.alloc(REGION, Access.NONE), receives=2)
        if remote.length != REGION:
            raise RemoteError(
                f"the peer's region has {remote.length} bytes, it must have {REGION}: "
                "use the same version at both ends"
            )
        self._remote = remote
        self._free = list(range(SLOTS))
        self._done: dict[str, Any] | None = None

    def send(self, path: Path, progress: Progress) -> str:
        """Send the file. Returns the SHA-256 (hex) that both ends computed.

        Raises LocalError (file), RemoteError (peer), IntegrityError (SHA-256 differs).
        """
        with self._report_failure(), _open(path) as file:
            size = os.fstat(file.fileno()).st_size
            self._send({"name": _sent_name(path), "size": size})
            digest = self._chunks(file, path, size, progress)
            while len(self._free) < SLOTS:
                self._complete()
            self._send({"sha256": digest})
            while self._done is None:
                self._complete()
        if self._done.get("sha256") != digest:
            raise IntegrityError("the receiver computed another SHA-256: send the file again")
        return digest

    def _chunks(self, file: BinaryIO, path: Path, size: int, progress: Progress) -> str:
        digest = hashlib.sha256()
        for number, at in enumerate(range(0, size, CHUNK)):
            while not self._free:
                self._complete()
            slot = self._free.pop(0)
            length = min(CHUNK, size - at)
            buffer = self.region.buf[slot * CHUNK :][:length]
            if _read_into(file, buffer, path) != length:
                raise LocalError(f"{path} became shorter during the transfer: send it again")
            digest.update(buffer)
            self._write(number, slot, length)
            progress(at + length, size)
        return digest.hexdigest()

    def _write(self, number: int, slot: int, length: int) -> None:
        piece = self.region.sge(slot * CHUNK, length)
        opcode = WROpcode.RDMA_WRITE_WITH_IMM
        wr = SendWR(slot, opcode, [piece], imm_data=number & 0xFFFFFFFF)
        wr.set_remote(self._remote, number % SLOTS * CHUNK)
        self._qp.post_send(wr)

    def _complete(self) -> None:
        """Process one completion: a slot is free again, or the receiver's DONE arrived."""
        wc = self._next()
        if wc.opcode == WCOpcode.RECV:
            self._done = self._message(wc)
        else:
            self._free.append(wc.wr_id)


class Receiver(End):
    """The end that receives the file. The region exists before the peer connects."""

    def __init__(self, qp: SecureQP, pd: PD, region: MR) -> None:
        super().__init__(qp, pd, region, receives=SLOTS + 1)
        self._chunks = 0

    def receive(
        self, out: Path, *, force: bool, most: int | None, progress: Progress
    ) -> tuple[Path, str]:
        """Receive one file into `out`, a folder or the file's new name. Returns its path and its
        SHA-256 (hex). most: bytes of a file that is accepted; None: any number.

        Raises LocalError (file), RemoteError (peer), IntegrityError (SHA-256 differs).
        """
        with self._report_failure():
            begin = self._message(self._next())
            size = begin.get("size")
            if type(size) is not int or not 0 <= size <= SIZE_MAX:
                raise RemoteError("the peer's BEGIN has no valid file size")
            if most is not None and size > most:
                raise LocalError(f"the file has {size} bytes, above --max-size {most}: refused")
            path = target(out, begin.get("name"), force)
            with _partial(path) as (file, partial):
                digest = self._fill(file, path, size, progress)
                _finish(file, partial, path)
        self._send({"sha256": digest})
        return path, digest

    def _fill(self, file: BinaryIO, path: Path, size: int, progress: Progress) -> str:
        digest = hashlib.sha256()
        done = 0
        while True:
            wc = self._next()
            if wc.opcode == WCOpcode.RECV:
                break
            # A copy, because the peer may write the slot at any time.
            chunk = bytes(self.region.buf[wc.imm_data % SLOTS * CHUNK :][: wc.byte_len])
            if wc.imm_data != self._chunks & 0xFFFFFFFF or done + wc.byte_len > size:
                raise RemoteError("the peer sent a chunk out of order or beyond the file size")
            _write(file, memoryview(chunk), path)
            digest.update(chunk)
            self._chunks += 1
            done += wc.byte_len
            self._post_receive(wc.wr_id)
            progress(done, size)
        declared = self._message(wc).get("sha256")
        if done != size:
            raise RemoteError(f"the peer sent {done} of {size} bytes")
        if declared != digest.hexdigest():
            raise IntegrityError("SHA-256 differs from the sender's: the file was discarded")
        return digest.hexdigest()


# Files ---------------------------------------------------------------------------


def _open(path: Path) -> BinaryIO:
    try:
        file = path.open("rb")
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from None
    if not path.is_file():
        file.close()
        raise LocalError(f"{path} is not a regular file")
    return file


def _sent_name(path: Path) -> str:
    """The name for the receiver. Raises LocalError for one that is no UTF-8."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise LocalError(
            f"the name of {_printable(str(path))} is no UTF-8 text: send a copy with another name"
        ) from None
    return path.name


def _read_into(file: BinaryIO, buffer: memoryview, path: Path) -> int:
    try:
        return cast("Any", file).readinto(buffer) or 0
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from None


def target(out: Path, name: object, force: bool) -> Path:
    """The path of the new file. A name that the peer chose cannot leave the folder `out`."""
    try:
        if out.is_dir():
            out = out / _checked(name)
        if not out.parent.is_dir():
            raise LocalError(f"the folder {out.parent} does not exist: create it")
        if out.exists() and not force:
            raise LocalError(f"{out} exists: nothing was written (--force overwrites it)")
    except OSError as error:
        raise LocalError(f"cannot write {out}: {error.strerror}: give another --out") from None
    return out


def _checked(name: object) -> str:
    """The name if it is a plain file name in this folder, else raises LocalError."""
    if not isinstance(name, str):
        fault = "it is no text"
    elif not name or name.startswith("."):
        fault = "it is empty, or begins with a dot"
    elif "/" in name or not name.isprintable():
        fault = "it has a slash, or a character that cannot be printed"
    elif len(name.encode()) > NAME_MAX:
        fault = f"it has more than {NAME_MAX} bytes"
    else:
        return name
    shown = _printable(repr(name)[:NAME_SHOWN])
    raise LocalError(f"{shown} is not a valid file name: {fault}: give one by --out FILE")


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[tuple[BinaryIO, str]]:
    """A temporary file next to the target, deleted at the end unless `_finish` renamed it."""
    try:
        fd, name = tempfile.mkstemp(prefix=".srdma-recv.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise LocalError(f"cannot write into {path.parent}: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb", buffering=0) as file:
            yield cast(BinaryIO, file), name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _write(file: BinaryIO, data: memoryview, path: Path) -> None:
    try:
        while data:
            data = data[file.write(data) :]
    except OSError as error:
        raise LocalError(f"cannot write {path}: {error.strerror}") from None


def _finish(file: BinaryIO, partial: str, path: Path) -> None:
    """Sync the file to disk, then give it its name."""
    try:
        os.fchmod(file.fileno(), 0o666 & ~_umask())
        os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise LocalError(f"cannot write {path}: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:512]
