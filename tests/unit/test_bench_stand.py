"""Parts of a stand, without its processes."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from srdma.errors import IntegrityError
from srdma.keyex.offers import UNPROTECTED
from srdma.keyex.policy import suite_named
from srdma_bench.facts import facts
from srdma_bench.perf.counts import check_counts
from srdma_bench.perf.measure import Plan, Result
from srdma_bench.stand import Link, Settings, Shape, pin, placement


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ([3], ({3}, {3}, {3}, {3})),
        ([0, 1], ({0}, {0}, {1}, {1})),
        ([0, 1, 2], ({0}, {0}, {1}, {1})),
        ([0, 1, 2, 3], ({0}, {2}, {1}, {3})),
        (list(range(8)), ({0}, {2, 3, 4}, {1}, {5, 6, 7})),
    ],
)
def test_placement(cores, expected):
    placed = placement(cores)
    assert (placed.worker_a, placed.host_a, placed.worker_b, placed.host_b) == expected


def test_pin():
    before = os.sched_getaffinity(0)
    one = frozenset([min(before)])
    try:
        pin(os.getpid(), one)
        assert os.sched_getaffinity(0) == one
    finally:
        pin(os.getpid(), frozenset(before))


def test_options_of_settings():
    assert Settings().words() == []
    assert Settings(True, 0, "openssl").words() == [
        "--allow-unprotected", "--key-cache", "0", "--provider", "openssl",
    ]  # fmt: skip


def link(shape, suite, mode):
    return Link(shape, SimpleNamespace(there=SimpleNamespace(suite=suite, mode=mode)), None)


def test_negotiated_suite_and_mode_must_match():
    gcm = suite_named("aes-128-gcm")
    shape = Shape("aead", "aes-128-gcm", "pd")
    link(shape, gcm, "pd")
    link(Shape("none"), UNPROTECTED, "basic")
    for suite, mode in ((gcm, "basic"), (UNPROTECTED, "pd"), (suite_named("aes-256-gcm"), "pd")):
        with pytest.raises(
            IntegrityError, match=r"requested aes-128-gcm.* in mode pd, in force is"
        ):
            link(shape, suite, mode)


NAMES = (
    "packets_sealed", "packets_verified", "packets_unprotected_sent",
    "packets_unprotected_received", "proofs_made", "proofs_verified",
)  # fmt: skip
SECURE = dict.fromkeys(NAMES, 0) | {"packets_sealed": 100, "packets_verified": 100}
PROVED = SECURE | {"proofs_made": 100, "proofs_verified": 100}
PLAIN = dict.fromkeys(NAMES, 0) | {
    "packets_unprotected_sent": 100,
    "packets_unprotected_received": 100,
}
AEAD, MEM, NONE = Shape("aead", "aes-128-gcm"), Shape("aead", "aes-128-gcm", "mem"), Shape("none")
RESULT = Result(Plan("write_bw", 64), messages=100)


@pytest.mark.parametrize(
    ("shape", "a", "b"),
    [
        (AEAD, SECURE, SECURE),
        (AEAD, SECURE | {"packets_verified": 1}, SECURE),
        (MEM, PROVED, PROVED),
        (NONE, PLAIN, PLAIN),
        (NONE, PLAIN | {"packets_sealed": 20}, PLAIN),
    ],
)
def test_counts_that_hold(shape, a, b):
    check_counts(shape, RESULT, a, b)


@pytest.mark.parametrize(
    ("shape", "a", "b", "why"),
    [
        (AEAD, SECURE | {"packets_sealed": 99}, SECURE, "99 were counted as packets_sealed"),
        (AEAD, SECURE, SECURE | {"packets_verified": 99}, "packets_verified at the peer"),
        (AEAD, SECURE | {"packets_verified": 0}, SECURE, "0 were counted as packets_verified"),
        (AEAD, SECURE | {"packets_unprotected_sent": 21}, SECURE, "21 packets counted as"),
        (AEAD, PLAIN, PLAIN, "0 were counted as packets_sealed"),
        (MEM, PROVED | {"proofs_made": 9}, PROVED, "9 were counted as proofs_made"),
        (MEM, PROVED, PROVED | {"proofs_verified": 9}, "proofs_verified at the peer"),
        (NONE, SECURE, SECURE, "0 were counted as packets_unprotected_sent"),
        (NONE, PLAIN, PLAIN | {"packets_sealed": 21}, "at level none"),
    ],
)
def test_counts_that_do_not_match(shape, a, b, why):
    with pytest.raises(IntegrityError, match=why):
        check_counts(shape, RESULT, a, b)


def test_responses_are_counted():
    check_counts(AEAD, RESULT, SECURE, SECURE, answers=100)
    for a, b, why in (
        (SECURE | {"packets_verified": 99}, SECURE, "99 were counted as packets_verified$"),
        (SECURE, SECURE | {"packets_sealed": 99}, "99 were counted as packets_sealed at the peer"),
    ):
        with pytest.raises(IntegrityError, match=why):
            check_counts(AEAD, RESULT, a, b, answers=100)


def test_pings_of_idle_qps_are_allowed_in_a_long_run():
    odd = {"packets_unprotected_sent": 40}
    check_counts(AEAD, Result(RESULT.plan, messages=100, ns=int(6e9)), SECURE | odd, SECURE)
    check_counts(replace(AEAD, qps=6), RESULT, SECURE | odd, SECURE)
    with pytest.raises(IntegrityError, match="40 packets counted as"):
        check_counts(AEAD, RESULT, SECURE | odd, SECURE)


def test_facts():
    found = facts("embedded", "openssl")
    assert found.kernel and found.cpu and found.provider == "openssl"
    assert found.openssl.startswith("OpenSSL 3.")


def test_cores_of_the_affinity_mask():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert facts("embedded", "openssl").cores == 1
    finally:
        os.sched_setaffinity(0, before)


def test_each_build_has_its_own_fact(tmp_path, monkeypatch):
    """Two builds differ in this fact even if they are of the same commit, or of none."""
    worker, program = tmp_path / "srdma-offload", tmp_path / "bench" / "ladder"
    program.parent.mkdir()
    monkeypatch.setenv("SRDMA_OFFLOAD", str(worker))
    monkeypatch.setenv("BUILD", str(tmp_path))
    found = set()
    for one, other in (("a", "b"), ("a", "c"), ("b", "c"), ("b", "c")):
        for path, text in ((worker, one), (program, other)):
            path.write_text(text)
            path.chmod(0o755)
        found.add(facts("embedded", "openssl").build)
    assert len(found) == 3


def test_objects_are_not_part_of_the_build(tmp_path, monkeypatch):
    (tmp_path / "bench" / "kvs").mkdir(parents=True)
    monkeypatch.setenv("BUILD", str(tmp_path))
    before = facts("embedded", "openssl").build
    (tmp_path / "bench" / "ladder.o").write_text("an object")
    assert facts("embedded", "openssl").build == before
