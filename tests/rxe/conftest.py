"""For the tests in virtual machines: what they measured is in the summary."""

from __future__ import annotations

import pytest

from tests.rxe.figures import figures


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for figure in figures:
        terminalreporter.write_line(figure)
