"""The clock of an agent (agent.md 10), with a clock that the test sets."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import time
from pathlib import Path

import pytest

from srdma.agent import clock as clocks
from srdma.agent.clock import (
    GRACE,
    PLAUSIBLE,
    SYNCHRONIZED,
    TRUSTED,
    ClockRule,
    SystemClock,
    Validity,
)
from srdma.agent.policy import Policy, PolicyError
from srdma.agent.settings import Identity
from srdma.identity import SKEW, Credentials, parse_certificates
from srdma.keyex.fields import ExchangeError
from srdma.keyex.tls import Truncated
from tests import keyex_players
from tests.exchange_players import offer
from tests.keyex_players import HOST_A, Keyex, Listening, config, finished, load, run_pair
from tests.thread_agent import ThreadAgent
from tests.tls_players import BlockingTLS

DAY = 86_400.0
POLICY = """
worker = "/run/w.ctl"
socket = "agent.sock"
[[identity]]
name = "host-a"
path = "a"
"""


class Hands(SystemClock):
    """A clock that a test sets; back: seconds that it is behind."""

    def __init__(self, back: float = 0.0) -> None:
        self.back, self.right, self.passed = back, True, 0.0

    def time(self) -> float:
        return time.time() - self.back + self.passed

    def monotonic(self) -> float:
        return time.monotonic() + self.passed

    def synchronized(self) -> bool:
        return self.right


@pytest.fixture
def own(identities: Path) -> Credentials:
    return load(identities, "a")


def refusal(rule: ClockRule, own: Credentials) -> str:
    with pytest.raises(ExchangeError) as error:
        rule.check(own)
    assert error.value.code == "clock"
    return error.value.text


# The rule -----------------------------------------------------------------------------


def test_clock_before_the_own_certificate(own: Credentials) -> None:
    begin = parse_certificates(own.cert, "cert")[0].not_valid_before_utc.timestamp()
    hands = Hands(time.time() - begin - 1)
    rule = ClockRule(clock=hands)
    rule.check(own)
    hands.back += 2
    assert "before the notBefore of the own certificate" in refusal(rule, own)
    hands.back = time.time()
    assert "1970-01-01 00:00 UTC is before" in refusal(rule, own)
    hands.back = 1e300
    assert "is before" in refusal(rule, own)
    ClockRule(TRUSTED, clock=hands).check(own)


def test_clock_before_the_files(
    own: Credentials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, gone = tmp_path / "policy", tmp_path / "none"
    file.touch()
    rule = ClockRule(files=(gone, file))
    rule.check(own)
    ahead = time.time() + SKEW.total_seconds() - 1
    os.utime(file, (ahead, ahead))
    rule.check(own)
    os.utime(file, (ahead + 60, ahead + 60))
    assert f"before {file} was written" in refusal(rule, own)
    monkeypatch.setattr(clocks, "__file__", str(file))
    assert f"before {file} was written" in refusal(ClockRule(), own)


def test_synchronization_is_demanded(own: Credentials) -> None:
    hands = Hands()
    rule = ClockRule(SYNCHRONIZED, clock=hands)
    rule.check(own)
    hands.right = False
    assert "not synchronized (adjtimex)" in refusal(rule, own)
    ClockRule(clock=hands).check(own)
    hands.right, hands.back = True, time.time()
    assert "is before" in refusal(rule, own)


@pytest.mark.parametrize(
    ("result", "status", "right"),
    [(0, 0x2001, True), (1, 0, True), (5, 0, False), (0, 0x40, False), (-1, 0, False)],
)
def test_answers_of_the_kernel(
    result: int, status: int, right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Library:
        def __init__(self, _: object) -> None:
            """The C library."""

        def adjtimex(self, state: object) -> int:
            found = state._obj  # type: ignore[attr-defined]
            assert found.modes == 0
            found.status = status
            return result

    monkeypatch.setattr("ctypes.CDLL", Library)
    assert SystemClock().synchronized() is right


def test_kernel_answers() -> None:
    """The state of this machine, whatever it is."""
    assert SystemClock().synchronized() in (True, False)


def test_policy(identities: Path, tmp_path: Path) -> None:
    file, hands = identities / "agent.toml", Hands()
    for name in ("ca.pem",):
        (identities / name).write_bytes((identities / "ca" / name).read_bytes())
    file.write_text(POLICY)
    policy = Policy(file, hands)
    used = policy.identity({"identity": "host-a", "peer": []}, os.getuid())
    hands.right = False
    used.clock.check(used.credentials)
    file.write_text('clock = "synchronized"' + POLICY)
    policy.load()
    assert "not synchronized" in refusal(used.clock, used.credentials)
    hands.back = DAY
    file.write_text('clock = "trusted"' + POLICY)
    policy.load()
    used.clock.check(used.credentials)
    file.write_text(POLICY)
    os.utime(file, (time.time() - 60, time.time() - 60))
    policy.load()
    hands.back = 60 + SKEW.total_seconds() + 1
    assert "before" in refusal(used.clock, used.credentials)
    for wrong in ('"ntp"', "true", "1", "[]"):
        file.write_text(f"clock = {wrong}{POLICY}")
        with pytest.raises(PolicyError, match="clock must be one of plausible, synchronized, "):
            policy.load()


# The life of secrets ------------------------------------------------------------------


def test_step_back_does_not_move_the_end() -> None:
    hands = Hands()
    validity, end = Validity(hands), dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1000)
    validity.checked(end)
    assert 999 < validity.left() - GRACE <= 1000
    hands.passed, hands.back = 100.0, DAY
    assert 899 < validity.left() - GRACE <= 900
    validity.checked(end)  # the same certificates
    assert 899 < validity.left() - GRACE <= 900
    validity.checked(end + dt.timedelta(seconds=50))  # newer ones
    assert 949 < validity.left() - GRACE <= 950
    hands.passed = 2000.0
    validity.checked(end)
    assert validity.left() < -600


def test_step_forward_moves_the_end() -> None:
    hands = Hands(DAY)
    validity = Validity(hands)
    end = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1000)
    validity.checked(end)
    hands.back = 0.0
    validity.checked(end)
    assert 999 < validity.left() - GRACE <= 1000


def test_without_certificates_there_is_no_end() -> None:
    assert Validity(Hands()).left() == float("inf")


# An agent -----------------------------------------------------------------------------


def hands_of(monkeypatch: pytest.MonkeyPatch, back: float = 0.0) -> Hands:
    """Agents of this test are in threads, and have this clock."""
    hands = Hands(back)
    monkeypatch.setattr(keyex_players, "PrivateAgent", lambda: ThreadAgent(hands))
    return hands


def test_renewal_after_a_step_back(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = hands_of(monkeypatch)
    client, server = (
        config(role, load(identities, name), max_age=2e9)
        for role, name in (("client", "a"), ("server", "b"))
    )
    with run_pair(client, server) as (a, b):
        for one in (a, b):
            assert [one.event()["event"], one.event()["event"]] == ["peer", "ready"]
        hands.back = 30 * DAY
        a.wish(1)
        assert a.event() == {"event": "renewed", "count": 1, "wish": 1}
        keyex_players.until(lambda: all(len(one.worker.lives) == 4 for one in (a, b)))
        for one in (a, b):
            first, second = (seconds for _, seconds in one.worker.lives[::2])
            assert first - 60 < second <= first


def test_client_with_a_wrong_clock(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands_of(monkeypatch, DAY)
    one = Keyex(config("client", load(identities, "a")))
    with finished(one):
        [event] = one.events()
        assert (event["event"], event["code"]) == ("error", "clock")
        assert not one.worker.keys
        listening = one._listening
        assert listening
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):  # it did not connect
            listening.accept()


def test_listener_with_a_wrong_clock(identities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hands = hands_of(monkeypatch, DAY)
    mine = load(identities, "a")
    with finished(server := Listening(vars(load(identities, "b")) | {"peer": [HOST_A]})):
        assert server.listener.event() == {"event": "listening"}
        for back in (DAY, 0.0):
            hands.back = back
            peer = BlockingTLS(server.dial(), "client", mine)
            with contextlib.closing(peer):
                if back:
                    with pytest.raises(Truncated):
                        peer.handshake()
                    assert server.listener.event()["code"] == "clock"
                else:
                    peer.handshake()
                    peer.send(offer())
                    assert server.listener.event()["event"] == "arrived"


def test_identity_of_a_private_agent() -> None:
    assert Identity(Credentials(b"", b"", b""), ()).clock.demand == PLAUSIBLE
