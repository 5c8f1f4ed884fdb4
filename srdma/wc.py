"""Work completions, with the names and values of verbs.

Records: local-interface.md 2.2; reasons: protocol.md 13.1.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import NamedTuple

from srdma import errors
from srdma.native import constants, leg


class WCStatus(IntEnum):
    """Values of enum ibv_wc_status."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21


class WCOpcode(IntEnum):
    """The opcodes of enum ibv_wc_opcode that srdma-1 supports, and QP_EVENT."""

    SEND = constants.WC_SEND
    RDMA_WRITE = constants.WC_RDMA_WRITE
    RDMA_READ = constants.WC_RDMA_READ
    COMP_SWAP = constants.WC_COMP_SWAP
    FETCH_ADD = constants.WC_FETCH_ADD
    RECV = constants.WC_RECV
    RECV_RDMA_WITH_IMM = constants.WC_RECV_RDMA_WITH_IMM
    QP_EVENT = constants.WC_QP_EVENT  # the QP went to error; wr_id is 0


class WCFlag(IntFlag):
    """Flags of enum ibv_wc_flags."""

    WITH_IMM = 2


# Reasons that the peer did not cause; every other reason is a RemoteWCError.
_CLASSES: dict[str, type[errors.WCError]] = {
    "KEY_LIMIT": errors.IntegrityWCError,
    "FORGERY_LIMIT": errors.IntegrityWCError,
    "LOCAL_DMA": errors.DeviceWCError,
    "RECLAIMED": errors.DeviceWCError,
} | dict.fromkeys(
    (
        "FLUSHED",
        "LOCAL_KEY",
        "BAD_DESCRIPTOR",
        "MESSAGE_TOO_LONG",
        "QUEUE_FULL",
        "QP_STATE",
        "BAD_CAPABILITY",
    ),
    errors.LocalWCError,
)


def reason_name(code: int) -> str:
    """Name of a reason of protocol.md 13.1, as "BAD_RKEY"."""
    return leg.reason(code)[0]


def reason_text(code: int) -> str:
    """Text of a reason: what was wrong and what to do."""
    return leg.reason(code)[1]


# Lookup tables: to construct an enum member by value takes longer than to poll a completion.
_STATUSES = tuple(WCStatus)
_OPCODES = {opcode.value: opcode for opcode in WCOpcode}
_FLAGS = {0: WCFlag(0), constants.RECORD_WITH_IMM: WCFlag.WITH_IMM}


class WC(NamedTuple):
    """One completion. vendor_err: a reason of protocol.md 13.1; 0: none.

    byte_len (length of the message) and imm_data are valid only if status is SUCCESS, imm_data
    only with WCFlag.WITH_IMM.
    """

    wr_id: int
    status: WCStatus
    opcode: WCOpcode
    vendor_err: int
    byte_len: int
    qp_num: int
    imm_data: int
    wc_flags: WCFlag

    @classmethod
    def from_record(cls, record: tuple[int, ...]) -> WC:
        """From a tuple of native.leg.Host.poll()."""
        wr_id, qpn, opcode, status, flags, vendor_err, byte_len, imm = record
        # A status that is not of verbs becomes GENERAL_ERR, the last one.
        named = _STATUSES[min(status, len(_STATUSES) - 1)], _OPCODES[opcode]
        return cls._make(
            (
                wr_id,
                *named,
                vendor_err,
                byte_len,
                qpn,
                imm,
                _FLAGS[flags & constants.RECORD_WITH_IMM],
            )
        )

    @property
    def reason(self) -> str:
        """Name of vendor_err; "NONE" for 0."""
        return reason_name(self.vendor_err)

    def __str__(self) -> str:
        head = f"{self.opcode.name} on QP 0x{self.qp_num:06x}: {self.status.name}"
        if self.status is WCStatus.SUCCESS and not self.vendor_err:
            return head
        return f"{head}, {self.reason}: {reason_text(self.vendor_err)}"

    def error(self, because: int = 0) -> errors.Error | None:
        """The exception for a failed work request, None for success.

        because: reason of the QP's error, 0 if not known or not in error. It decides the class
        of the exception if the request was only flushed.
        """
        if self.status is WCStatus.SUCCESS:
            return None
        text, cause = str(self), self.reason
        if because and because != self.vendor_err:
            text += f" ({reason_name(because)}: {reason_text(because)})"
            if cause in ("FLUSHED", "QP_STATE"):
                cause = reason_name(because)
        if cause == "WORKER_GONE":
            return errors.WorkerGone(text, self)
        return _CLASSES.get(cause, errors.RemoteWCError)(text, self)

    def raise_for_status(self) -> None:
        """Raise error() unless the work request succeeded."""
        error = self.error()
        if error is not None:
            raise error
