"""Times of heartbeats on a leg over verbs, and the timer of the host for them."""

from __future__ import annotations

import os
import select

import pytest

from srdma._engine.heartbeat import Ticker
from srdma.native.constants import (
    LEG_ACK_TIMEOUT,
    LEG_BEAT_MS,
    LEG_LOOK_MS,
    LEG_RETRIES,
    LEG_SILENCE_MS,
)

SECOND = 1000  # ms
LONG = 1000.0  # seconds, longer than the test


def test_limits_of_the_device_survive_8_s_and_end_before_15_s():
    timeout = 4.096e-3 * 2**LEG_ACK_TIMEOUT  # ms
    assert LEG_RETRIES * timeout > 8 * SECOND
    assert LEG_BEAT_MS + (LEG_RETRIES + 1) * timeout < 15 * SECOND
    assert (LEG_RETRIES + 1) * timeout < LEG_SILENCE_MS
    assert LEG_BEAT_MS + LEG_SILENCE_MS + LEG_LOOK_MS < 15 * SECOND
    assert LEG_RETRIES < 7  # rxe takes 7 for no limit


def is_readable(ticker, seconds=0.0):
    return bool(select.select([ticker.fd], [], [], seconds)[0])


@pytest.fixture
def make():
    made = []

    def ticker(first, period):
        made.append(Ticker(first, period))
        return made[-1]

    yield ticker
    for ticker in made:
        ticker.close()
        assert not os.path.exists(f"/proc/self/fd/{ticker.fd}")


def test_ticker_becomes_readable_again_after_each_drain(make):
    ticker = make(0.02, 0.02)
    for _ in range(3):
        assert is_readable(ticker, 10)
        ticker.drain()
    ticker.drain()  # with nothing to take


def test_ticker_has_a_first_time_and_a_period(make):
    late, once = make(LONG, 0.001), make(0.001, LONG)
    assert is_readable(once, 10)
    once.drain()
    assert not is_readable(late) and not is_readable(once)


def test_restart_begins_with_the_first_time(make):
    ticker = make(0.02, LONG)
    for _ in range(3):
        assert is_readable(ticker, 10)
        ticker.drain()
        assert not is_readable(ticker)
        ticker.restart()
