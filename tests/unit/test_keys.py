"""The lines of key logs, written and read (srdma/keyex/keylog.py, srdma/inspect/keys.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from srdma.errors import LocalError
from srdma.inspect import keys
from srdma.inspect.keys import KeyLog
from srdma.keyex import keylog
from srdma.keyex.keylog import Secret, Session

A, B = "spiffe://test/a", "spiffe://test/b"
GENERATION = bytes(range(8))
S = b"\x5a" * 16
CLIENT = Session(
    0xABCDEF, GENERATION, 0, 1, 3, 16, 2, b"a" * 16, 1 << 23, 0x123, b"b" * 16, 9 << 20, A, B
)
SERVER = Session(
    0x123, GENERATION, 1, 1, 3, 16, 2, b"b" * 16, 9 << 20, 0xABCDEF, b"a" * 16, 1 << 23, B, A
)


def secret_line(session: Session, direction: str, value: bytes) -> str:
    return f"SRDMA_SECRET {session.qpn:06x} {direction} {GENERATION.hex()} {value.hex()}\n"


def log(path: Path, *lines: str) -> Path:
    path.touch(0o600)
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("peer", [B, "", "spiffe://x/ \n%-é"])
def test_a_session_is_read_as_it_was_written(peer: str) -> None:
    session = CLIENT._replace(peer_identity=peer)
    name, *words = session.line().split(" ")
    assert name == "SRDMA_SESSION" and Session.of_fields(words) == session


def test_the_module_writes_what_the_reader_reads(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(keylog, "_fd", -1)
    keylog.session(CLIENT)  # no log: nothing happens
    path = tmp_path / "log"
    keylog.begin(path)
    try:
        keylog.tls(b"CLIENT_TRAFFIC_SECRET_0 00 11")
        keylog.session(CLIENT)
        keylog.secret(CLIENT.qpn, "tx", GENERATION, bytearray(S))
        keylog.secret(CLIENT.qpn, "rx", GENERATION, bytes(16))
    finally:
        os.close(keylog._fd)
    found = KeyLog([path])
    assert not found.warnings and len(found) == 1
    (way,) = found.ways(CLIENT.peer_qpn)
    assert way.secrets == [S] and way.direction == 0 and way.pn == CLIENT.pn
    assert way.sender == (CLIENT.eid, CLIENT.qpn)
    assert found.ways(CLIENT.qpn)[0].secrets == []
    assert found.ways(77) == []
    found.close()


def test_two_logs_of_one_session_are_joined(tmp_path: Path) -> None:
    """Each agent knows one direction only in key mode pd. A secret that both know counts once."""
    other = b"\xa5" * 16
    paths = [
        log(tmp_path / "a", CLIENT.line() + "\n", secret_line(CLIENT, "tx", S)),
        log(
            tmp_path / "b",
            SERVER.line() + "\n",
            secret_line(SERVER, "tx", other),
            secret_line(SERVER, "rx", S),
        ),
    ]
    for order in (paths, paths[::-1]):
        found = KeyLog(order)
        assert len(found) == 1
        assert found.ways(SERVER.qpn)[0].secrets == [S]
        assert found.ways(CLIENT.qpn)[0].secrets == [other]
        assert found.known(found.ways(CLIENT.qpn)[0]).identities == [A, B]


def test_a_log_may_grow(tmp_path: Path) -> None:
    path = log(tmp_path / "log")
    found = KeyLog([path])
    assert len(found) == 0 and not found.refresh()
    line = CLIENT.line() + "\n"
    for part in (line[:30], line[30:], secret_line(CLIENT, "tx", S)):
        with open(path, "a") as file:
            file.write(part)
        assert found.refresh() == (part != line[:30])
    assert found.ways(CLIENT.peer_qpn)[0].secrets == [S]


def test_a_secret_without_its_session_is_ignored(tmp_path: Path) -> None:
    assert len(KeyLog([log(tmp_path / "log", secret_line(CLIENT, "tx", S))])) == 0


def test_a_log_that_others_can_read_is_warned_about(tmp_path: Path) -> None:
    path = log(tmp_path / "log")
    path.chmod(0o640)
    (warning,) = KeyLog([path]).warnings
    assert f"chmod 600 {path}" in warning


def test_a_log_must_be_a_regular_file_that_can_be_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(LocalError, match="not a regular file"):
        KeyLog([fifo])
    with pytest.raises(LocalError, match=r"cannot read the key log .*: No such file"):
        KeyLog([tmp_path / "none"])


def changed(**values: object) -> str:
    return CLIENT._replace(**values).line() + "\n"


BAD = [
    "SRDMA_SESSION\n",
    CLIENT.line() + " more\n",
    changed(suite=0x99),
    changed(level=4),
    changed(mode=4),
    changed(role=2),
    changed(eid=b"short"),
    CLIENT.line().replace("abcdef", "xyz") + "\n",
    "SRDMA_SECRET 000001 tx 00\n",
    "SRDMA_SECRET 000001 up 00 5a5a5a\n",
    "SRDMA_SECRET 000001 tx 00 secret-text\n",
    "SRDMA_SECRET zz tx 00 5a5a5a\n",
]  # fmt: skip


@pytest.mark.parametrize("line", BAD)
def test_a_line_that_is_not_of_a_log_is_an_error_without_its_text(tmp_path, line: str) -> None:
    path = log(tmp_path / "log", "# comment\n", line)
    with pytest.raises(LocalError, match=f"{path}:2: not a line of a key log") as caught:
        KeyLog([path])
    assert "5a5a5a" not in str(caught.value) and "secret-text" not in str(caught.value)


def test_a_line_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match=":1: the line is too long"):
        KeyLog([log(tmp_path / "log", "x" * 20_000)])


def test_sessions_are_bounded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(keys, "SESSIONS_MAX", 1)
    with pytest.raises(LocalError, match="more than 1 sessions"):
        KeyLog([log(tmp_path / "log", CLIENT.line() + "\n", changed(qpn=1))])


def test_a_secret_is_not_shown() -> None:
    assert repr(S) not in repr(keys.Way(CLIENT, (b"", 1), (b"", 2), 0, 1, [S]))
    assert Secret.of_fields(["1", "tx", "00", S.hex()]).value == S
