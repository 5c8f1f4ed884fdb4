"""Machine 0 with its worker, and host B in machine 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from srdma.embedded import Worker
from tests.rxe.tcp_host import TcpHost
from tests.rxe.two import end

PATIENCE = 170  # seconds until the other machine is up; its first boot may hang
SLOW = 60  # seconds for a response


@pytest.fixture(scope="session")
def worker() -> Iterator[Worker]:
    with end.worker(0) as worker:
        yield worker


@pytest.fixture(scope="session")
def far(worker: Worker) -> tuple[TcpHost, Any]:
    """Host B, and the path of its worker."""
    host_b = TcpHost(end.address(1), PATIENCE, SLOW)
    path = host_b.answer()["worker"]
    host_b.answer()  # it is ready
    return host_b, path
