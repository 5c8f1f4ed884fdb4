"""System agents for tests: `srdma agent` with a policy of one identity."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import WAIT


@dataclass
class Agent:
    """A running `srdma agent`."""

    policy: Path
    socket: Path
    process: subprocess.Popen[str]

    def audit(self) -> list[dict[str, object]]:
        """Ends the agent. Returns its audit lines."""
        self.process.terminate()
        _, err = self.process.communicate(timeout=WAIT)
        assert self.process.returncode == 0, err
        assert not self.socket.exists()
        return [json.loads(line) for line in err.splitlines()]

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def restart(self, how: signal.Signals) -> None:
        """Ends the agent by a signal, and starts another one with the same policy."""
        self.process.send_signal(how)
        self.process.communicate(timeout=WAIT)
        self.process = launch(self.policy)

    def change(self, old: str, new: str) -> None:
        text = self.policy.read_text()
        assert old in text
        self.policy.write_text(text.replace(old, new))


def start(folder: Path, name: str, worker: Path, key_log: Path | None = None) -> Agent:
    policy, path = folder / f"{name}.toml", folder / f"{name}.sock"
    policy.write_text(
        f'worker = "{worker}"\nsocket = "{path}"\nkey_log = {str(bool(key_log)).lower()}\n'
        f'[[identity]]\nname = "host-{name}"\npath = "{name}"\npeers = ["spiffe://test/*"]\n'
    )
    return Agent(policy, path, launch(policy, key_log))


def launch(policy: Path, key_log: Path | None = None) -> subprocess.Popen[str]:
    """An agent that has started. It may have adopted sessions before."""
    command = [sys.executable, "-m", "srdma", "agent", "--config", str(policy)]
    command += ["--key-log", str(key_log)] if key_log else []
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr
    while (line := json.loads(process.stderr.readline()))["event"] != "started":
        assert line["event"] == "adopted"
    return process
