"""The identities of the stand. The program outside the machines makes them; a machine has those of
its control link, and a machine with agents has those of its programs.

    control/    hostN and nicN, the ends of control links
    programs/   host-a and host-b, of the programs of host 0 and host 1
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from srdma.demo.stage import make_identities
from srdma.identity import Credentials, create_ca, issue
from tests.smartnic import plan

PROGRAMS = "host-a", "host-b"
# Where the machines have them: a NIC from its firmware, a host from its scratch folder.
ON_NIC, ON_HOST = Path("/etc/identities"), Path("/run/identities")
SCRATCH = "identities"


def control_uri(kind: str, number: int) -> str:
    """kind: "host" or "nic"."""
    return f"spiffe://stand/control/{kind}{number}"


def make(folder: Path) -> None:
    make_identities(folder / "programs")
    create_ca(folder / "control", "stand")
    for number in range(plan.NICS):
        for kind in ("host", "nic"):
            issue(folder / "control", control_uri(kind, number), folder / f"control/{kind}{number}")


def names(kind: str, number: int, agent: str) -> list[str]:
    """The identities of a host or NIC. agent: the kind of the machines with agents."""
    own = [f"control/{kind}{number}"]
    return [*own, f"programs/{PROGRAMS[number]}"] if kind == agent else own


def files(folder: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """The files of these identities, by their paths below `folder`."""
    paths = {path for name in wanted for path in Credentials.files(folder / name)}
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.exists()}


def install(scratch: Path) -> None:
    """Puts the identities of this host in place."""
    shutil.copytree(scratch / SCRATCH, ON_HOST)
