"""Completions: names of verbs, reasons, and the class of a failure."""

from __future__ import annotations

import pytest

from srdma import errors
from srdma.native import leg as _leg
from srdma.wc import WC, WCFlag, WCOpcode, WCStatus
from srdma.wr import SGE, RecvWR, SendFlag, SendWR, WROpcode

QPN = 0xABC


def wc(status: int, reason: int, opcode: int = 1) -> WC:
    return WC.from_record((7, QPN, opcode, status, 0, reason, 100, 0))


def test_success():
    done = WC.from_record((7, QPN, 129, 0, 1, 0, 100, 0xDEADBEEF))
    assert (done.wr_id, done.qp_num, done.byte_len, done.imm_data) == (7, QPN, 100, 0xDEADBEEF)
    assert done.opcode is WCOpcode.RECV_RDMA_WITH_IMM
    assert done.status is WCStatus.SUCCESS
    assert done.wc_flags == WCFlag.WITH_IMM
    assert done.error() is None
    done.raise_for_status()
    assert str(done) == "RECV_RDMA_WITH_IMM on QP 0x000abc: SUCCESS"


@pytest.mark.parametrize(
    ("status", "reason", "kind", "text"),
    [
        (10, 1, errors.RemoteWCError, "REM_ACCESS_ERR, BAD_RKEY: no memory region of the target"),
        (20, 20, errors.RemoteWCError, "RESP_TIMEOUT_ERR, DEADLINE: .*may have been executed"),
        (19, 26, errors.IntegrityWCError, "FATAL_ERR, KEY_LIMIT"),
        (5, 40, errors.LocalWCError, "WR_FLUSH_ERR, FLUSHED"),
        (19, 41, errors.WorkerGone, "FATAL_ERR, WORKER_GONE: the local worker ended"),
        (4, 42, errors.LocalWCError, "LOC_PROT_ERR, LOCAL_KEY"),
        (4, 43, errors.DeviceWCError, "LOC_PROT_ERR, LOCAL_DMA"),
        (99, 99, errors.RemoteWCError, "GENERAL_ERR, reason 99"),
    ],
)
def test_failures(status, reason, kind, text):
    failed = wc(status, reason)
    with pytest.raises(kind, match=text) as e:
        failed.raise_for_status()
    assert e.value.wc is failed


def test_flushed_request_reports_why_the_qp_ended():
    error = wc(5, 40).error(because=24)
    assert isinstance(error, errors.RemoteWCError)
    assert "WR_FLUSH_ERR" in str(error)
    assert "WIRE_LOST: the connection between the two workers was lost" in str(error)
    assert isinstance(wc(5, 40).error(because=41), errors.WorkerGone)


def test_every_reason_has_a_verbs_status_and_a_class():
    for code in range(48):
        name, text = _leg.reason(code)
        if not name.startswith("reason "):
            assert text
            assert isinstance(wc(19, code).error(), errors.Error)


def test_values_equal_those_of_verbs():
    enums = pytest.importorskip("pyverbs.enums", reason="pyverbs is not installed")
    for member in WCStatus:
        assert getattr(enums, f"IBV_WC_{member.name}") == member
    for opcode in WCOpcode:
        if opcode is not WCOpcode.QP_EVENT:
            assert getattr(enums, f"IBV_WC_{opcode.name}") == opcode
    for wr_opcode in WROpcode:
        assert getattr(enums, f"IBV_WR_{wr_opcode.name}") == wr_opcode
    for flag in (SendFlag.FENCE, SendFlag.SIGNALED):
        assert getattr(enums, f"IBV_SEND_{flag.name}") == flag


# Work requests -----------------------------------------------------------------


def test_work_request_lengths():
    assert SendWR().length == 0
    assert SendWR(data=b"abc").length == 3
    assert SendWR(sg=[SGE(0, 9, 1)]).length == 9
    assert SendWR(sg=[SGE(0, 9, 1), SGE(0, 0, 1), SGE(70, 3, 2)]).length == 12


def test_illegal_work_requests():
    sge = SGE(0, 1, 1)
    for make in (SendWR, RecvWR):
        assert len(make(sg=[sge] * 28).sg) == 28
        with pytest.raises(errors.LocalError, match="29 SGEs: give a work request at most 28"):
            make(sg=[sge] * 29)
    with pytest.raises(errors.LocalError, match="both SGEs and data"):
        SendWR(sg=[sge], data=b"x")
    with pytest.raises(errors.LocalError, match="READs and atomics have no data"):
        SendWR(opcode=WROpcode.RDMA_READ, data=b"x")
