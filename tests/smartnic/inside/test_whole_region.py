"""64 MiB from host to host and back, while the keys change by the number of packets."""

from __future__ import annotations

import pytest

from tests.rxe.inside.conftest import REGION
from tests.rxe.inside.whole_region import there_and_back
from tests.smartnic.inside.conftest import EPOCH

pytestmark = pytest.mark.full
SUITES = ["aes-128-gcm", "hmac-sha256"]  # an AEAD suite and a MAC suite


@pytest.mark.parametrize("suite", SUITES)
def test_there_and_back(stage, connected, host_b, memory, suite):
    if stage.agent != "nic":
        pytest.skip("takes minutes, and the place of the agents is of no effect: --agent nic")
    for counts in there_and_back(connected, host_b, stage.secure.b, memory, suite, REGION):
        assert counts["rekeys_sent"] >= counts["packets_sealed"] // EPOCH - 1 > 0
