"""Table 3 of the paper: the bytes that a running worker stores for keys and numbers of its QPs."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.e2e.conftest import WAIT
from tests.e2e.test_matrix import CELLS, GCM, MODES, open_ends
from tests.keying import Protection, key, until_running

QPS = 10
PD_KEYS = 48 + 16  # K_PD16 | K_PD32, K_PDmem

# Bytes per QP with AES-128-GCM: keys; packet numbers and IVs. The table of docs/architecture.md.
TABLE = {
    ("basic", "owner"): (4 * 16, 2 * 8 + 2 * 12),
    ("pd", "owner"): (16, 2 * 8),
    ("pd", "shared"): (0, 2 * 8),
    ("mem", "owner"): (4 * 16, 2 * 8 + 2 * 12),
    ("pd+mem", "owner"): (16, 2 * 8),
    ("pd+mem", "shared"): (0, 2 * 8),
}


@pytest.mark.parametrize(("mode", "policy"), CELLS)
def test_state_per_qp(own_site, mode, policy):
    how = Protection(GCM, MODES.index(mode), policy == "shared")
    name = mode.replace("+", "_")
    with open_ends(own_site, "table" if how.group else "") as ends, ExitStack() as stack:
        for _ in range(QPS):
            _, _, at_client, at_server = stack.enter_context(ends.qps())
            key(at_client, at_server, how)
            until_running(at_client, at_server, WAIT)
        for ctx in (ends.a.ctx, ends.b.ctx):
            stats = ctx.stats()
            assert stats[f"qps_{name}"] == QPS
            measured = stats[f"key_bytes_{name}"], stats[f"nonce_bytes_{name}"]
            assert measured == tuple(QPS * size for size in TABLE[mode, policy])
            assert stats["legs"] == 1 and stats["key_bytes_legs"] == PD_KEYS
            others = [n for n in stats if n.startswith("qps_") and n != f"qps_{name}"]
            assert len(others) == 3 and not any(stats[n] for n in others)
