"""C and the Python reference in key modes with `pd` and `mem`: the same bytes and verdicts.

20,000 packets per mode, in all suites, levels and tag lengths, with both policies and key caches
that keep all, one or no context. Two connections share the workers' caches. In modes with `mem`
each end makes proofs, and returns the claims and covered bytes of received ones. Mode `basic` is in
test_differential.py.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from tests.differential import FORMS, Conversation, Workers, ends, random_params, random_workers
from tests.reference.protect import Mode
from tests.reference.suites import Level

pytestmark = pytest.mark.slow

PACKETS = 20_000  # per mode
CONTEXTS = (0, 1, 1024)
CONNECTIONS = 2
PROTECTED = [form for form in FORMS if form[1] != Level.NONE]


@pytest.mark.parametrize("mode", [Mode.PD, Mode.MEM, Mode.PD | Mode.MEM], ids=str)
@pytest.mark.parametrize("form", PROTECTED, ids=str)
def test_random_packets(form: tuple[int, Level, int], mode: Mode) -> None:
    packets = PACKETS // len(PROTECTED) + 1
    rng = Random(f"modes {form} {mode}")
    contexts = rng.choice(CONTEXTS), rng.choice(CONTEXTS)
    workers = random_workers(rng, rng.getrandbits(1) == 1, contexts)
    talks = [
        Conversation(rng, form, ends(random_params(rng, form, mode), workers))
        for _ in range(CONNECTIONS)
    ]
    for _ in range(packets):
        rng.choice(talks).packet()
    counts = sum((talk.counts for talk in talks), start=Counter[str]())
    assert counts["accepted"] > packets * (0.8 if form[1] > Level.HEADER else 0.3)
    assert counts["replay"] > 0 and counts["damaged"] > packets * 0.3
    assert (counts["proofs"] > packets * 0.03) == bool(mode & Mode.MEM)
    if mode & Mode.PD:
        check_caches(workers, contexts)


def check_caches(workers: Workers, contexts: tuple[int, int]) -> None:
    # Received flows may also have contexts of three epochs, one of them with two secrets.
    flows = 2 * CONNECTIONS
    for cache, size in zip(workers.caches, contexts, strict=True):
        counts = cache.counts
        assert counts["kept"] <= min(size, flows + 3 * CONNECTIONS)
        assert counts["kept"] >= flows or size < flows
        assert counts["misses"] >= flows
        assert (counts["hits"] > 0) == (size > 0)
