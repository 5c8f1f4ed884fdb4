"""`--table-memory` bounds the memory of tables that QPs allocate when they first need them."""

from __future__ import annotations

from pathlib import Path

import pytest

from srdma import Access
from srdma.embedded import Embedded
from srdma.errors import DeviceWCError
from tests.e2e.conftest import WAIT, Joiner, Site

DEEP = 4096  # queue depth; with 448 bytes of inline data for each request, the table exceeds a MiB


def test_memory_of_tables_is_bounded(join: Joiner, pki: Path) -> None:
    """A QP that needs more table memory than the limit fails. A later QP that needs less works."""
    with Embedded() as nics:
        a = nics.start("a", options=["--table-memory", "1"])
        site = Site(a, nics.start("b"), nics)
        hosts = [join.host(worker, ring=4 * DEEP) for worker in (site.a, site.b)]
        deep, usual = join.connect(*hosts, sq=DEEP), join.connect(*hosts)
        with hosts[1].pd.alloc(8, Access.LOCAL_WRITE | Access.REMOTE_WRITE, scope="pd") as target:
            with pytest.raises(DeviceWCError, match="LOCAL_DMA"):
                deep.client.qp.write(b"too deep", target.remote(), timeout=WAIT)
            usual.client.qp.write(b"it fits.", target.remote(), timeout=WAIT)
            assert bytes(target.buf) == b"it fits."
        join.close()
