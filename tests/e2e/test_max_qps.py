"""`--max-qps`: a worker that has so many QPs says so, and takes another one when one is gone."""

from __future__ import annotations

import pytest

import srdma
from srdma.embedded import Embedded
from srdma.errors import RefusedError
from srdma.qp import SecureQP


def test_a_worker_has_so_many_qps():
    with (
        Embedded() as nics,
        srdma.Context(nics.start("a", options=["--max-qps", "2"]).control) as context,
        srdma.PD(context) as pd,
    ):
        first, _ = SecureQP(pd), SecureQP(pd)
        with pytest.raises(RefusedError, match="limit of 2 QPs"):
            SecureQP(pd)
        first.close()
        SecureQP(pd)
