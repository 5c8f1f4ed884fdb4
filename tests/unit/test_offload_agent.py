"""The agent at a running worker: its role, proofs, and sessions that a restarted agent takes over
(protocol.md 8.6; local-interface.md 3.6, 3.8)."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from srdma.control import Control, Direction, KeptQP, sockets
from srdma.errors import LocalError, NoWorkerError, RefusedError
from tests.daemon import BINARY, RTS, Client, Kind, Qp, Worker, keys, u32, worker
from tests.reference.renewal import CLIENT, SERVER, proof, renewal_key

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

CONTEXT = bytes(range(32))
SECRETS = b"0" * 16, b"1" * 16  # those of keys()
NOBODY = 65534


class End:
    """A leg with connected QPs, and its client."""

    def __init__(self, found: Worker, qps: int = 1) -> None:
        self.client: Client = found.client()
        self.leg, self.token = self.client.open()
        self.qps: list[Qp] = [self.client.init(self.leg) for _ in range(qps)]


def connected(a: Worker, b: Worker, qps: int = 1) -> tuple[End, End]:
    one, two = End(a, qps), End(b, qps)
    for i in range(qps):
        for own, peer, role in ((two, one, 1), (one, two, 0)):
            own.client.request(Kind.KEYS, keys(own.qps[i], peer.qps[i], role))
        for own in (one, two):
            assert own.client.wait(own.qps[i].qpn) == (RTS, 0)
    return one, two


@pytest.fixture
def agent(a: Worker):
    """A connection that has no leg and no token."""
    control = Control.connect(a.control)
    yield control
    control.close()


def refusal(status: int, call: Callable[[], object]) -> str:
    with pytest.raises(RefusedError) as refused:
        call()
    assert refused.value.errno == status
    return str(refused.value)


def test_proofs_are_those_of_the_reference(a: Worker, b: Worker, agent: Control) -> None:
    one, two = connected(a, b)
    agent.agent()
    key = renewal_key(*SECRETS, b"generate")
    own, peer = proof(key, CLIENT, CONTEXT), proof(key, SERVER, CONTEXT)
    made = agent.prove(one.qps[0].qpn, CONTEXT)
    assert (made.tx, made.rx, made.proof) == (0, 0, own)
    assert agent.prove(one.qps[0].qpn, CONTEXT, peer).proof == bytes(32)
    for wrong in (own, bytes(31) + b"1", proof(key, SERVER, bytes(32))):
        said = refusal(
            errno.EBADMSG, lambda wrong=wrong: agent.prove(one.qps[0].qpn, CONTEXT, wrong)
        )
        assert "not that of the peer" in said
    assert "could not prove" in a.log()
    # without an agent any client of the leg may ask
    request = struct.pack(">IB3x32s32s", two.qps[0].qpn, 1, CONTEXT, own)
    assert two.client.request(Kind.PROVE, request)[0] == bytes(40)


def test_attached_agent_uses_its_legs_only(a: Worker, b: Worker, agent: Control) -> None:
    one, _ = connected(a, b)
    other, _ = connected(a, b)
    agent.agent(attached=True)
    agent.attach(one.token)
    agent.life(one.qps[0].qpn, 60)
    refusal(errno.EPERM, lambda: agent.life(other.qps[0].qpn, 60))
    for call in (lambda: agent.keep([one.qps[0].qpn], b"x"), agent.adopt):
        assert "for all legs" in refusal(errno.EPERM, call)
    assert "other flags" in refusal(errno.EISCONN, agent.agent)
    for flags in (2, 3, 1 << 31):
        request = struct.pack(">I", flags)
        assert "flags" in one.client.refused(errno.EINVAL, Kind.AGENT, request)


def test_proofs_of_wrong_length_are_local_errors(agent: Control) -> None:
    for context, given in ((CONTEXT[1:], b""), (CONTEXT, b"short")):
        with pytest.raises(LocalError, match="32 are needed"):
            agent.prove(1, context, given)


def test_withdrawn_secret(a: Worker, b: Worker, agent: Control) -> None:
    one, _ = connected(a, b)
    agent.agent()
    qpn = one.qps[0].qpn
    assert "no new secret" in refusal(errno.ENODATA, lambda: agent.rekey(qpn, Direction.WITHDRAW))
    agent.rekey(qpn, Direction.RX, 16, b"2" * 16)
    refusal(errno.EBUSY, lambda: agent.rekey(qpn, Direction.RX, 16, b"3" * 16))
    assert agent.prove(qpn, CONTEXT).rx == 1
    agent.rekey(qpn, Direction.WITHDRAW)
    assert agent.prove(qpn, CONTEXT).rx == 0
    agent.rekey(qpn, Direction.BOTH)
    agent.rekey(qpn, Direction.RX, 16, b"3" * 16)


def test_restarted_agent_takes_sessions_over(a: Worker, b: Worker) -> None:
    one, two = connected(a, b, 3)
    other, _ = connected(a, b)
    first = Control.connect(a.control)
    first.agent()
    first.keep([one.qps[0].qpn, 0, one.qps[2].qpn], b"a session")
    first.keep([other.qps[0].qpn], bytes(1024))
    first.close()

    second = Control.connect(a.control)
    refusal(errno.EPERM, second.adopt)
    until_agent(second)
    kept = second.adopt()
    assert kept is not None
    assert (kept.serial, kept.leg, kept.data) == (1, one.leg, b"a session")
    assert kept.qps == tuple(
        KeptQP(one.qps[i].qpn, i, two.qps[i].qpn, two.qps[i].eid) for i in (0, 2)
    )
    after = second.adopt(kept.serial)
    assert after is not None and (after.leg, after.data) == (other.leg, bytes(1024))
    assert second.adopt(after.serial) is None
    # it uses the QPs without a token
    second.life(kept.qps[0].qpn, 1000)
    assert second.wait(kept.qps[1].qpn, 1.0)[0] == RTS
    refused = one.client.refused(errno.EPERM, Kind.LIFE, u32(one.qps[0].qpn, 1))
    assert "from the agent of this worker only" in refused
    second.close()


def until_agent(control: Control) -> None:
    """The worker may notice the end of the former agent a little later."""
    for _ in range(1000):
        try:
            control.agent()
        except RefusedError as refused:
            assert refused.errno == errno.EBUSY
        else:
            return
    raise AssertionError("the role is not free")


def test_kept_data_are_wiped(a: Worker, b: Worker, agent: Control) -> None:
    one, _ = connected(a, b, 2)
    agent.agent()
    secret = b"-kept data only here-"
    agent.keep([qp.qpn for qp in one.qps], secret)
    agent.stats()  # a later request wipes the buffer of the former message
    try:
        assert a.copies(secret) == 1
        one.client.request(Kind.DESTROY, u32(one.qps[0].qpn))
        assert a.copies(secret) == 1
        assert agent.adopt() is not None
        one.client.request(Kind.DESTROY, u32(one.qps[1].qpn))
        agent.stats()
        assert a.copies(secret) == 0
    except PermissionError:
        pytest.skip("the worker is not dumpable: only root may read its memory")
    assert "only here" not in a.log()


def test_renewal_key_is_wiped(a: Worker, b: Worker) -> None:
    one, _ = connected(a, b)
    key = renewal_key(*SECRETS, b"generate")
    try:
        assert a.copies(key) == 1
        one.client.request(Kind.EXPIRE, u32(one.qps[0].qpn))
        assert a.copies(key) == 0
    except PermissionError:
        pytest.skip("the worker is not dumpable: only root may read its memory")


def test_keep_refusals(a: Worker, b: Worker, agent: Control) -> None:
    one, _ = connected(a, b)
    refusal(errno.EPERM, lambda: agent.keep([one.qps[0].qpn], b"x"))
    agent.agent()
    qpn = one.qps[0].qpn
    for qpns, data, status in (
        ([], b"x", errno.EINVAL),
        ([qpn], b"", errno.EINVAL),
        ([qpn, qpn], b"x", errno.EINVAL),
        ([0], b"x", errno.ENOTCONN),
        ([qpn ^ 1], b"x", errno.ENOTCONN),
        ([one.client.init(one.leg).qpn], b"x", errno.ENOTCONN),
    ):
        refusal(status, lambda qpns=qpns, data=data: agent.keep(qpns, data))
    for qpns, data in (([qpn] * 257, b"x"), ([qpn], bytes(1025))):
        with pytest.raises(LocalError, match="does not fit"):
            agent.keep(qpns, data)
    assert agent.adopt() is None


# --- users ----------------------------------------------------------------------------


def as_nobody(call: Callable[[], None]) -> str:
    """Runs the call as another user. Returns the text of its error, or an empty text."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            os.setresuid(NOBODY, NOBODY, NOBODY)
            call()
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(write_end, text.encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(pid, 0)
    text = os.read(read_end, 1000).decode()
    os.close(read_end)
    return text


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_option_reserves_the_keys(tmp_path: Path) -> None:
    with worker(tmp_path, "u", "--agent-uid", str(os.geteuid())) as found:
        assert mode_of(found.control) == 0o600
        one = End(found)
        body = keys(one.qps[0], one.qps[0], 1)
        assert "the agent of this worker only" in one.client.refused(errno.EPERM, Kind.KEYS, body)
        one.client.request(Kind.AGENT, bytes(4))
        one.client.request(Kind.KEYS, body)


def test_agent_of_another_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o711)
        with worker(folder, "u", "--agent-uid", str(NOBODY)) as found:
            assert mode_of(found.control) == 0o666

            def take_role() -> None:
                control = Control.connect(found.control, user=0)
                control.agent()

            assert as_nobody(take_role) == ""
            assert f"of user {NOBODY} is the agent" in found.log()
        with worker(folder, "v", "--agent-uid", str(NOBODY - 1)) as found:
            said = as_nobody(lambda: Control.connect(found.control).agent())
            assert said.startswith("WorkerGone")
            assert f"only user 0, user {NOBODY - 1} (--agent-uid) and root" in found.log()


@pytest.mark.parametrize(
    ("own", "worker_uid", "trusted", "accepted"),
    [
        (1000, 1000, None, True),
        (1000, 0, None, True),
        (0, 1000, None, True),
        (990, 1000, None, False),
        (990, 1000, 1000, True),
        (990, 1001, 1000, False),
        (990, 1001, 990, False),
    ],
)
def test_users_of_workers_that_are_trusted(
    monkeypatch: pytest.MonkeyPatch, own: int, worker_uid: int, trusted: int | None, accepted: bool
) -> None:
    monkeypatch.setattr(sockets, "peer_of", lambda sock: (1, worker_uid))
    monkeypatch.setattr(os, "geteuid", lambda: own)
    with socket.socket() as sock:
        if accepted:
            sockets.check_user(sock, Path("w.sock"), trusted)
            return
        with pytest.raises(NoWorkerError, match=f"of user {worker_uid}, this process is of user"):
            sockets.check_user(sock, Path("w.sock"), trusted)
