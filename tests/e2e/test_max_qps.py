"""`--max-qps`: a worker at its limit reports it, and accepts another QP when one is closed."""

from __future__ import annotations

import pytest

import srdma
from srdma.embedded import Embedded
from srdma.errors import RefusedError
from srdma.qp import SecureQP


def test_qps_of_a_worker_are_limited():
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
