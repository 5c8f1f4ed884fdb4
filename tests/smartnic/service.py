"""Shell scripts on the machines of the stand: on others by their service (firmware/run)."""

from __future__ import annotations

import base64
import http.client
import shlex
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass

from tests.smartnic.plan import SERVICE_PORT

PATIENCE = 60  # seconds for a script, and for the end of a program; emulated machines are slow
LOGS = "/run"


class ScriptError(Exception):
    """A script failed; the text has its output."""


class Shell(ABC):
    """A machine that runs scripts."""

    @abstractmethod
    def run(self, script: str, timeout: float = PATIENCE) -> str:
        """The output of a script. Raises ScriptError if its exit code is not 0, and OSError if the
        machine does not answer."""

    def write(self, path: str, data: bytes) -> None:
        """Writes a file; base64 because a script is text."""
        text = base64.encodebytes(data).decode()
        self.run(f"base64 -d >{shlex.quote(path)} <<'END'\n{text}END\n")

    def start(self, name: str, *words: str) -> Program:
        """Starts a program in the background; `name` is that of its log."""
        log = f"{LOGS}/{name}.log"
        pid = self.run(f"setsid {shlex.join(words)} >{log} 2>&1 </dev/null & echo $!")
        return Program(self, int(pid), log)


class Here(Shell):
    """This machine."""

    def run(self, script: str, timeout: float = PATIENCE) -> str:
        words = ["sh", "-c", script]
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout
        )
        if done.returncode:
            raise ScriptError(f"exit code {done.returncode} of {script!r}: {done.stdout}")
        return done.stdout


class Service(Shell):
    """A machine with the service at an address."""

    def __init__(self, address: str, port: int = SERVICE_PORT) -> None:
        self._place = address, port

    def run(self, script: str, timeout: float = PATIENCE) -> str:
        connection = http.client.HTTPConnection(*self._place, timeout=timeout)
        try:
            connection.request("POST", "/cgi-bin/run", script.encode())
            answer = connection.getresponse()
            output = answer.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(f"{self._place}: {error!r}") from error
        finally:
            connection.close()
        code = answer.headers["X-Exit"]
        if code != "0":
            raise ScriptError(f"{self._place}: exit code {code} of {script!r}: {output}")
        return output

    def answers(self, timeout: float = 5) -> bool:
        try:
            self.run("true", timeout)
        except OSError:
            return False
        return True

    def wait_until_up(self, timeout: float = PATIENCE) -> None:
        deadline = time.monotonic() + timeout
        while not self.answers():
            assert time.monotonic() < deadline, f"no service at {self._place}"
            time.sleep(0.5)


@dataclass(frozen=True)
class Program:
    """A program in the background of a machine."""

    shell: Shell
    pid: int
    log_path: str

    def alive(self) -> bool:
        found = self.shell.run(f"kill -0 {self.pid} 2>/dev/null && echo yes; true")
        return found == "yes\n"

    def log(self) -> str:
        return self.shell.run(f"cat {self.log_path}")

    def kill(self, sign: str = "TERM") -> None:
        """Sends a signal that ends the program, and waits for its end."""
        wait = f"while kill -0 {self.pid}; do sleep 0.1; done"
        self.shell.run(f"kill -{sign} {self.pid}; {wait}; true")
