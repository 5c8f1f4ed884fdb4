"""Attacks of the kit on plain RC QPs: the outcomes are those of the literature.

tests/e2e/test_attacks.py runs them on srdma.
"""

from __future__ import annotations

import pytest

from srdma.demo import rxe
from srdma_attack import table
from srdma_attack.attack import Attack, Settings, Target
from tests.rxe.figures import figures

ON_PLAIN = [attack for attack in table.ATTACKS if attack.plain]


@pytest.mark.parametrize("attack", ON_PLAIN, ids=lambda attack: attack.name)
def test_attack_on_plain_roce(attack: Attack) -> None:
    if why := rxe.unavailable():
        pytest.skip(why)
    assert attack.plain
    found = attack.plain(Settings())
    figures.append(f"{attack.name} on plain RoCE: {found.outcome.value} {found.note}")
    assert attack.as_expected(Target.PLAIN, found), found
