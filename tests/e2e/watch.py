"""`srdma verify-wire` in the background of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.conftest import WAIT

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="capturing needs root")


class Watch:
    """A running `srdma verify-wire --json`."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "srdma", "verify-wire", "--json", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        assert json.loads(self._process.stdout.readline()) == {"watching": True}

    def stop(self) -> tuple[int, dict[str, Any]]:
        """Ctrl-C. Returns the exit code and the report."""
        self._process.send_signal(signal.SIGINT)
        out, _ = self._process.communicate(timeout=WAIT)
        return self._process.returncode, json.loads(out)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
