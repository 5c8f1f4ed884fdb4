"""Reporting for the tests in virtual machines: a line and time per test, a
time limit, and measured figures."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from tests.rxe.figures import figures

LIMIT = 300  # seconds for each of a test's three phases; an emulated machine may be slow

start = time.monotonic()


@contextmanager
def limited(phase: str, item: pytest.Item) -> Iterator[None]:
    """Fails the phase of a test that hangs, and names it, so that the next test can run."""

    def late(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"{phase} of {item.nodeid} did not end within {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with limited("the set-up", item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with limited("the run", item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with limited("the end", item):
        return (yield)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Replaces the dots by a line per test."""
    return ("passed" if report.when == "call" else "", "", "") if report.passed else None


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or report.when == "call":
        seconds = time.monotonic() - start
        print(f"{seconds:6.0f} s  {report.outcome}  {report.nodeid.removeprefix('tests/rxe/')}")
        if report.failed:  # printed at once, because a run that ends by time-out shows no summary
            print(report.longreprtext[-2000:])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for figure in figures:
        terminalreporter.write_line(figure)
