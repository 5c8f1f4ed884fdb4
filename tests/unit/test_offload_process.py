"""Memory of host processes that a running worker copies (local-interface.md 4.4)."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.daemon import BINARY, PAGE, Kind, Worker, memfd, reg_mr, until, worker
from tests.neighbours import PAGES, absent_memory, neighbour

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

READ = 4
NOBODY = 65534
COPIES = 32  # of a process, under way at the same time


def test_memory_that_blocks_ends_its_leg_and_disturbs_no_neighbour(a: Worker) -> None:
    client = a.client()
    mine, _ = client.open()
    with absent_memory(a.control) as (hostile, address):
        if not address:
            pytest.skip("the kernel refuses userfaultfd")
        leg, _ = hostile.open()
        body = reg_mr(leg, READ, PAGES * PAGE, address=address)
        tag = hostile.send(Kind.REG_MR, body)
        fd = memfd(PAGE)
        assert client.number(Kind.REG_MR, reg_mr(mine), [fd])
        os.close(fd)
        assert client.alive() and hostile.alive()
        kind, answered, status, said, _ = hostile.receive()  # 3 to 5 s later
        assert (kind, answered, status) == (Kind.REG_MR, tag, errno.ECONNRESET)
        assert b"leg ended" in said
        assert "did not answer in time" in hostile.refused(errno.EPERM, Kind.REG_MR, body)
        leg, _ = hostile.open()
        assert "did not answer for 4 s" in hostile.refused(
            errno.EBUSY, Kind.REG_MR, body[:0] + reg_mr(leg, READ, PAGES * PAGE, address=address)
        )
    assert client.alive()
    assert a.stop() == 0


def test_requests_that_wait_for_a_copy_that_blocks(a: Worker) -> None:
    """All learn that the leg ended, also those whose probes had no place among the copies."""
    with absent_memory(a.control) as (hostile, address):
        if not address:
            pytest.skip("the kernel refuses userfaultfd")
        leg, _ = hostile.open()
        body = reg_mr(leg, READ, PAGES * PAGE, address=address)
        tags = {hostile.send(Kind.REG_MR, body) for _ in range(COPIES + 8)}
        for _ in [*tags]:
            kind, answered, status, said, _ = hostile.receive()  # 3 to 5 s later
            assert (kind, status) == (Kind.REG_MR, errno.ECONNRESET), said
            assert b"leg ended" in said
            tags.remove(answered)
    assert a.stop() == 0


def test_worker_ends_while_a_copy_blocks(a: Worker) -> None:
    with absent_memory(a.control) as (hostile, address):
        if not address:
            pytest.skip("the kernel refuses userfaultfd")
        leg, _ = hostile.open()
        hostile.send(Kind.REG_MR, reg_mr(leg, READ, PAGES * PAGE, address=address))
        assert a.client().alive()
        assert a.stop() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_client_of_another_user_registers_memfds_only() -> None:
    """The worker would reach its memory by the worker's privileges, not by its own."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        with (
            worker(folder, "u", "--agent-uid", str(NOBODY)) as found,
            neighbour(found.control, f"import os; os.setuid({NOBODY})") as client,
        ):
            leg, _ = client.open()
            said = client.refused(errno.ESRCH, Kind.REG_MR, reg_mr(leg, READ, address=id(leg)))
            assert "does not know the process of this leg" in said and "pd.alloc()" in said
            assert client.number(Kind.REG_MR, reg_mr(leg), [memfd(PAGE)])


def test_memfd_only(tmp_path: Path) -> None:
    with worker(tmp_path, "m", "--memfd-only") as found:
        client = found.client()
        leg, _ = client.open()
        said = client.refused(errno.EPERM, Kind.REG_MR, reg_mr(leg, READ, address=id(leg)))
        assert "memfds only" in said and "pd.alloc()" in said
        assert client.number(Kind.REG_MR, reg_mr(leg), [memfd(PAGE)])


def test_threads_end_with_the_legs(a: Worker) -> None:
    tasks = Path(f"/proc/{a.process.pid}/task")
    before = len(list(tasks.iterdir()))
    memory = bytearray(PAGE)
    client = a.client()
    leg, _ = client.open()
    address = id(memory)
    client.number(Kind.REG_MR, reg_mr(leg, READ, 8, address=address))
    assert len(list(tasks.iterdir())) == before + 1
    client.close()
    until(lambda: len(list(tasks.iterdir())) == before)
