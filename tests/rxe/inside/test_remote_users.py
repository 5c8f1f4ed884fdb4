"""Programs of two users of a host, and of two hosts of a NIC, with legs over rxe. Each has an
identity of its own, and none sees another's QPs, regions or secrets."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import srdma
from srdma.demo.rxe_stage import RxeStage
from srdma.errors import RemoteWCError
from srdma.identity import issue
from tests.e2e.agents import start
from tests.e2e.conftest import A, B, Host, run
from tests.e2e.guests import Guest, steal, try_numbers
from tests.e2e.nic import make_files, nic_of

OWNER, OTHER = 65534, 65533  # uids
C = "spiffe://test/host-c"  # identity of OTHER
LISTEN = 'listen = ["127.0.0.1:7000-7009"]'
NAME = '[[identity]]\nname = "host-c"\n'
WAIT = 120
RIGHTS = "srdma.Access.LOCAL_WRITE | srdma.Access.REMOTE_WRITE"


@dataclass
class Scene:
    """Programs of the NIC of worker a: `owner` is one of OWNER on the host left; `others` are one
    of OTHER there, and one of OWNER on the host right. peer: a host of worker b."""

    owner: Guest
    others: dict[str, Guest]
    peer: Host

    def connect(self, guest: Guest, name: str, identity: str) -> srdma.Connection:
        """The guest names its end `c`."""
        with srdma.listen(
            ("127.0.0.1", 0), self.peer.pd, identity="host-b", peer=identity, timeout=WAIT
        ) as listener:
            accepted = run(listener.accept, WAIT)
            options = f"identity={name!r}, peer={B!r}, timeout={WAIT}"
            guest.does(f"c = srdma.connect({listener.address!r}, pd, {options})")
            return accepted()


@pytest.fixture(scope="module")
def scene(stage: RxeStage) -> Iterator[Scene]:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/run")))
        folder.chmod(0o711)
        make_files(folder)
        issue(folder, C, folder / "c")
        nic = stack.enter_context(nic_of(folder, "a", stage.secure.a, left=LISTEN, right=LISTEN))
        nic.agent.change('identities = ["host-a"]', 'identities = ["host-a", "host-c"]')
        add(nic.agent.policy, 'path = "c"\n')
        nic.agent.reload()
        left, right = (nic.proxy(name, users=(OWNER,)) for name in ("left", "right"))
        add(left.policy, f"users = [{OTHER}]\n")
        left.reload()
        guests = []
        for proxy, uid in ((left, OWNER), (left, OTHER), (right, OWNER)):
            guest = Guest(stage.secure.a, proxy.socket, uid)
            stack.callback(guest.kill)
            assert guest.first is None
            guests.append(guest)
        agent = start(folder, "b", stage.secure.b)
        stack.callback(agent.kill)
        ctx = stack.enter_context(srdma.Context(stage.secure.b, agent=agent.socket, timeout=WAIT))
        pd = stack.enter_context(srdma.PD(ctx))
        others = {"of another user": guests[1], "of another host": guests[2]}
        yield Scene(guests[0], others, Host(ctx, pd))


def add(file: Path, more: str) -> None:
    """Adds the identity of OTHER to a policy or to the file of a proxy."""
    file.write_text(file.read_text() + NAME + more)


@pytest.mark.parametrize(
    ("who", "name", "identity"),
    [("of another user", "host-c", C), ("of another host", "host-a", A)],
)
def test_program_sees_nothing_of_another(scene: Scene, who: str, name: str, identity: str) -> None:
    owner, thief, host = scene.owner, scene.others[who], scene.peer
    owner.does(f"m = pd.alloc(64, {RIGHTS}, scope='pd'); m.buf[:] = bytes(64)")
    remote = srdma.RemoteMR.parse(owner.ask("show(str(m.remote()))"))
    with scene.connect(owner, "host-a", A) as server, scene.connect(thief, name, identity) as its:
        assert (server.identity, its.identity) == (A, identity)
        with pytest.raises(RemoteWCError, match="REM_ACCESS"):
            its.qp.write(b"through the thief", remote, timeout=WAIT)
        steal(thief, try_numbers(thief, owner), host, name, identity)
        server.qp.write(b"unharmed", remote, timeout=WAIT)
        assert owner.ask("show(bytes(m.buf[:8]).decode())") == "unharmed"
        owner.does("c.close(); m.close()")


def test_identity_of_another_user(scene: Scene) -> None:
    thief = scene.others["of another user"]
    call = f"srdma.connect(('127.0.0.1', 1), pd, identity='host-a', peer={B!r})"
    thief.fails(call, "grants no identity 'host-a'", str(OTHER))
