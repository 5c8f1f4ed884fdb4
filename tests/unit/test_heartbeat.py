"""Heartbeats of the host on a leg over verbs: when they are sent, and when the worker is lost."""

from __future__ import annotations

import os
import select

from srdma._engine.heartbeat import BEAT_S, SILENCE_S, Heartbeat, Ticker
from srdma.native.constants import LEG_ACK_TIMEOUT, LEG_RETRIES


def test_limits_of_the_device_survive_8_s_and_end_before_15_s():
    timeout = 4.096e-6 * 2**LEG_ACK_TIMEOUT
    assert LEG_RETRIES * timeout > 8
    assert BEAT_S + (LEG_RETRIES + 1) * timeout < 15
    assert (LEG_RETRIES + 1) * timeout < SILENCE_S
    assert BEAT_S + SILENCE_S < 15
    assert LEG_RETRIES < 7  # rxe takes 7 for no limit


def test_one_heartbeat_at_a_time_and_the_next_one_after_an_interval():
    beats = Heartbeat()
    assert beats.due(100.0)
    assert not beats.due(100.0 + BEAT_S)  # the first one is under way
    beats.acknowledged()
    assert not beats.due(100.0 + BEAT_S - 0.01)
    assert beats.due(100.0 + BEAT_S)


def test_worker_is_lost_only_by_a_heartbeat_without_an_ack():
    beats = Heartbeat()
    assert not beats.lost(1e9)
    assert beats.due(100.0)
    assert not beats.lost(100.0 + SILENCE_S - 0.01)
    assert beats.lost(100.0 + SILENCE_S)
    beats.acknowledged()
    assert not beats.lost(1e9)  # the program did not look at the leg for a long time


def test_ticker_becomes_readable_again_after_each_drain():
    ticker = Ticker(0.02)
    try:
        for _ in range(3):
            assert select.select([ticker.fd], [], [], 10)[0]
            ticker.drain()
        ticker.drain()  # with nothing to take
    finally:
        ticker.close()
    assert not os.path.exists(f"/proc/self/fd/{ticker.fd}")
