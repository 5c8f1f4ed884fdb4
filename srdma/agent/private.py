"""The private agent of a Context (agent.md 1): a child process."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from srdma.control import forked
from srdma.errors import DeviceError

GRACE = 2.0  # seconds that the agent may take to end


class PrivateAgent:
    """A child process that serves the connections and listeners of one Context."""

    def __init__(self) -> None:
        """Raises DeviceError if the process cannot be started."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        forked.drop(self._door)
        command = [sys.executable, "-P", "-m", "srdma.agent", "--door-fd", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[theirs.fileno()],
                env=_environment(),
            )
        except OSError as e:
            self._door.close()
            self._log.close()
            raise DeviceError(f"cannot start the agent: {e}") from e
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def open(self) -> socket.socket:
        """A new channel; the caller owns the socket. Raises DeviceError if the agent has ended."""
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._door, [b"c"], [theirs.fileno()])
        except OSError as e:
            ours.close()
            raise DeviceError(f"the agent ended unexpectedly: {self.last_words()}") from e
        finally:
            theirs.close()
        forked.drop(ours)
        return ours

    def last_words(self) -> str:
        """The end of its stderr, or its exit code."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return text[-2000:] or f"exit code {self._process.returncode}"

    def close(self) -> None:
        """Close the door, so that the agent ends; kill it after GRACE seconds."""
        self._door.close()
        try:
            self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


def _environment() -> dict[str, str]:
    """This program's environment, with the folder of this package first in PYTHONPATH.

    Variables that make OpenSSL log secrets or make Python read commands from stdin are removed.
    """
    folder = str(Path(__file__).absolute().parents[2])
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    kept = {k: v for k, v in os.environ.items() if k not in ("SSLKEYLOGFILE", "PYTHONINSPECT")}
    return {**kept, "PYTHONPATH": path}
