"""The link of row P14 (srdma_bench/link.py), and the rungs of the ladder over it."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from srdma.errors import LocalError
from srdma_bench.link import DEVICE, End, link
from srdma_bench.primitives import program, said
from tests.e2e.cable import why_not

DATAGRAMS = 47 * 64  # that a rung sends in a round, at least


def received(end: End) -> int:
    """The packets that came over the link to this end."""
    show = ["ip", "-n", end.netns, "-s", "-j", "link", "show", DEVICE]
    found = subprocess.run(show, check=True, capture_output=True, text=True).stdout
    return int(json.loads(found)[0]["stats64"]["rx"]["packets"])


def test_ends_need_no_discovery_of_neighbours() -> None:
    """It would delay the first datagrams of a new link."""
    if why := why_not():
        pytest.skip(why)
    with link() as (a, b):
        for end, other in ((a, b), (b, a)):
            show = ["ip", "-n", end.netns, "-j", "neigh", "show", "nud", "permanent"]
            found = subprocess.run(show, check=True, capture_output=True, text=True).stdout
            known = {row["dst"]: row["lladdr"] for row in json.loads(found)}
            assert known == {other.four: other.mac, other.six: other.mac}


@pytest.mark.parametrize("rung", ["datagrams train", "udp bare aead", "udp6 aead"])
def test_trains_are_cut_before_the_link(rung: str) -> None:
    if why := why_not():
        pytest.skip(why)
    with link() as (a, b):
        before = received(b)
        words = [str(program("ladder")), "--json", "--rounds", "1", "--rung", rung]
        out = json.loads(said([*words, "--end", a.text, "--end", b.text]))
        assert [found["name"] for found in out["rungs"]] == [rung]
        assert received(b) - before >= DATAGRAMS
    assert not os.path.exists(f"/run/netns/{a.netns}")


def test_refusals_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(LocalError, match="network namespaces need root"), link():
        pass
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(LocalError, match="install iproute2"), link():
        pass


def test_a_failure_of_ip_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    if why := why_not():
        pytest.skip(why)
    with link(), pytest.raises(LocalError, match=r"ip netns add srdma-bench-.*: .*exists"), link():
        pass
