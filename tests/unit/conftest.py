"""Fixtures of the unit tests: a PD at a worker that a test plays itself."""

from __future__ import annotations

import pytest

import srdma
from tests.fake_worker import FakeWorker


@pytest.fixture
def worker(tmp_path):
    worker = FakeWorker(tmp_path / "w.sock")
    yield worker
    worker.close()


@pytest.fixture
def ctx(worker):
    with srdma.Context(worker.path) as ctx:
        yield ctx


@pytest.fixture
def pd(ctx):
    with srdma.PD(ctx, ring=64) as pd:
        yield pd
