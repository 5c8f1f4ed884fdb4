"""Searches machines of the stand for keys: private keys of identities, and the secrets that the
agents of the NICs wrote to their key logs. It runs outside the machines.

A NIC writes its key log to its console, because the log must not pass a host.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.memory import found, private_key
from tests.smartnic.control import KEY_LOG
from tests.smartnic.service import Shell

PATIENCE = 30  # seconds until a key log is on the console
S = re.compile(r"^SRDMA_SECRET \w+ [rt]x \w+ (\w+)", re.MULTILINE)
TLS = re.compile(r"^\w+_SECRET(?:_0)? \w{64} (\w+)", re.MULTILINE)


class Found(NamedTuple):
    """Keys in the memory of a machine. identities: those whose private keys were found. secrets:
    how many of the secrets that the NICs logged, by the kind of secrets()."""

    identities: list[str]
    secrets: dict[str, int]
    logged: dict[str, int]


def tell(nic: Shell, mark: str) -> None:
    """The NIC writes its key log to the console, with a mark behind it."""
    nic.run(f"{{ cat {KEY_LOG}; echo {mark}; }} >/dev/console")


def secrets(logs: Sequence[str]) -> dict[str, set[bytes]]:
    """The secrets that no host may have, from the key logs of both NICs: "S" of QPs, and "TLS" of
    connections between the agents. TLS connections of control links are in only one of the logs.
    """
    tls = [set(TLS.findall(log)) for log in logs]
    texts = {"S": set(S.findall("\n".join(logs))), "TLS": set.intersection(*tls)}
    return {kind: set(map(bytes.fromhex, found)) for kind, found in texts.items()}


class Machine(Protocol):
    """A machine of the stand."""

    @property
    def pid(self) -> int:
        """The process of its QEMU."""


class Search:
    """identities: the folder of identities.py; consoles: what the NICs wrote so far."""

    def __init__(self, identities: Path, consoles: Sequence[Callable[[], str]]) -> None:
        self._identities = identities
        self._consoles = consoles

    def answer(self, machine: Machine, mark: str) -> str:
        """Found, as JSON."""
        return json.dumps(self._found(machine.pid, mark)._asdict())

    def _found(self, pid: int, mark: str) -> Found:
        """Searches the memory of a machine's QEMU, which contains that of the machine, when the
        mark is on the consoles."""
        wanted = secrets([self._log(console, mark) for console in self._consoles])
        keys = {
            str(path.relative_to(self._identities).with_suffix("")): set(private_key(path))
            for path in self._identities.rglob("*.key")
        }
        hits = found(pid, set().union(*wanted.values(), *keys.values()))
        return Found(
            sorted(name for name, forms in keys.items() if forms & hits),
            {kind: len(hits & them) for kind, them in wanted.items()},
            {kind: len(them) for kind, them in wanted.items()},
        )

    def _log(self, console: Callable[[], str], mark: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while mark not in (text := console()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {mark} on the console of a NIC")
            time.sleep(0.1)
        return text
