"""Other programs of the victim's machine.

A worker counts no system call that the kernel refuses: `refused_by_kernel` and
`registrations_refused` are what the attacker sees.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Iterator

from srdma.control import MRRequest
from srdma_attack.attack import Finding, KitError, Settings, outcome
from srdma_attack.lab import RIGHTS, WAIT, lab
from tests.daemon import PAGE, Kind, RefusedError, memfd, reg_mr
from tests.neighbours import neighbour

NOBODY = 65534  # uid and gid of another user
ADDRESS = 0x10000

# Tries to open what belongs to the processes named by its arguments, and the control sockets that
# follow "--". Prints how many attempts failed, and what succeeded.
_INTRUDER = """
import os, socket, sys
split = sys.argv.index("--")
paths = [f"/proc/{pid}/{name}" for pid in sys.argv[1:split] for name in ("mem", "environ", "maps")]
paths += [f"/proc/{pid}/fd/{fd}" for pid in sys.argv[1:split] for fd in range(256)]
failed, opened = 0, []
for path in paths:
    try:
        os.close(os.open(path, os.O_RDWR if path.endswith("mem") else os.O_RDONLY))
        opened.append(path)
    except OSError:
        failed += 1
for path in sys.argv[split + 1:]:
    try:
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(path)
        opened.append(path)
    except OSError:
        failed += 1
print(failed, *opened)
"""


def alias(settings: Settings) -> Finding:
    """Lets its own peers write memory that another program exposes to its peers."""
    with lab(settings) as it, memory() as file, neighbour(it.server.worker.control) as intruder:
        request = MRRequest(it.server.pd.leg, RIGHTS, ADDRESS, PAGE)
        it.server.pd.control.reg_mr(request, file)
        leg, _ = intruder.open()
        refused = 0
        for rights in (RIGHTS, RIGHTS & ~4):  # with and without REMOTE_READ
            try:
                intruder.request(Kind.REG_MR, reg_mr(leg, rights), [file])
            except RefusedError as refusal:
                refused += refusal.status == errno.EBUSY
        return Finding(outcome(refused < 2), {"registrations_refused": refused})


@contextlib.contextmanager
def memory() -> Iterator[int]:
    """A memfd of one page."""
    file = memfd(PAGE)
    try:
        yield file
    finally:
        os.close(file)


def inject_as_another_user(settings: Settings) -> Finding:
    """Opens the legs, the memory and the control sockets of a host and its worker, as a program of
    another user (NeVerMore)."""
    if os.geteuid():
        raise KitError("a program of another user is started by root only: run as root")
    return intrude(settings, NOBODY)


def intrude(settings: Settings, user: int) -> Finding:
    """The same as a program of this user."""
    with lab(settings) as it:
        pair = it.pair()
        workers = it.client.worker, it.server.worker
        victims = [str(pid) for pid in (os.getpid(), *(worker.pid for worker in workers))]
        sockets = [str(worker.control) for worker in workers]
        done = subprocess.run(
            [sys.executable, "-c", _INTRUDER, *victims, "--", *sockets],
            user=user, group=user, extra_groups=[], capture_output=True, text=True,
            timeout=WAIT, cwd="/",
        )  # fmt: skip
        failed, *opened = done.stdout.split()
        return Finding(
            outcome(bool(opened) or not pair.works()), {"refused_by_kernel": int(failed)}
        )
