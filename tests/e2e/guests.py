"""Programs of other users than the worker's (guest.py), and what none may do to another."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import srdma
from tests.e2e.conftest import WAIT, A, B, Host, run

ROOT = Path(__file__).parents[2]


class Guest:
    """A program of another user (guest.py)."""

    def __init__(
        self, worker: Path, agent: Path, uid: int, *how: str,
        wrapper: tuple[str, ...] = (), **env: str,
    ) -> None:  # fmt: skip
        command = [*wrapper, sys.executable, "-P", str(Path(__file__).with_name("guest.py"))]
        self._process = subprocess.Popen(
            [*command, str(worker), str(agent), *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=uid,
            group=uid,
            extra_groups=[],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | env,
        )
        self.first = None if how else self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "the program ended"
        return json.loads(line)

    def send(self, code: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(code + "\n")
        self._process.stdin.flush()

    def ask(self, code: str) -> Any:
        self.send(code)
        return self._answer()

    def does(self, code: str) -> None:
        answer = self.ask(code)
        assert answer is None, answer

    def fails(self, code: str, *texts: str) -> dict[str, Any]:
        answer = self.ask(code)
        assert isinstance(answer, dict) and "error" in answer, answer
        for text in texts:
            assert text in answer["error"], answer
        return answer

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def try_numbers(thief: Guest, owner: Guest) -> str:
    """The worker refuses the numbers and the token of another program's leg, and the requests that
    concern keys. Returns the token, in hex. The owner has a connection `c`."""
    qpn, leg = owner.ask("show([c.qp.qp_num, pd.leg])")
    token = owner.ask("show(pd.token.hex())")
    key = f"key(srdma.control.KeyRequest({qpn}, 16, bytes(8), bytes(16), 77))"
    attach = f"attach(bytes.fromhex({token!r}))"
    numbers = f"destroy({qpn})", f"wait({qpn}, 1.0)", f"dereg_mr({leg}, 1)"
    for call in (*numbers, key, attach, "agent()"):
        assert thief.fails(f"pd.control.{call}")["errno"] == errno.EPERM
    return str(token)


def steal(thief: Guest, token: str, host: Host, name: str = "host-a", identity: str = A) -> None:
    """The agent refuses the token of another user's leg in each request that has one. name: that of
    the thief's identity."""
    thief.does(f"type(pd).token = property(lambda self: bytes.fromhex({token!r}))")
    with srdma.listen(("127.0.0.1", 0), host.pd, identity="host-b", peer=identity) as listener:
        # refused before it calls the peer
        thief.fails(
            f"srdma.connect({listener.address!r}, pd, identity={name!r}, peer={B!r})",
            "the leg of this token is not of",
        )  # fmt: skip
        with pytest.raises(srdma.Timeout):
            listener.accept(0.2)
    thief.fails("pd.rotate()", "the leg of this token is not of")
    thief.does(f"l = srdma.listen(('127.0.0.1', 0), pd, identity={name!r}, peer={B!r})")
    address = tuple(thief.ask("show(l.address)"))
    call = run(srdma.connect, address, host.pd, identity="host-b", peer=identity)
    thief.fails(f"l.accept({WAIT})", "the leg of this token is not of")
    with pytest.raises(srdma.Error):
        call()
