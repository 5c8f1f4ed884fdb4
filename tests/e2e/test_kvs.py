"""The key-value store over srdma: correct under load, and unaffected by invalid requests."""

from __future__ import annotations

import contextlib
import json
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srdma import PD, Connection, Context, RemoteMR, connection
from srdma.demo.stage import HostProcess
from srdma.errors import DeviceError, IntegrityError, LocalError
from srdma_bench.device import UDP
from srdma_bench.kvs.store import KvsServer, Mix, Store
from srdma_bench.native import kvs as _kvs
from srdma_bench.native.kvs import SLOT_LEN, key, sealed
from srdma_bench.stand import Settings, Shape, Stand
from tests.e2e.conftest import WAIT

AEAD = Shape("aead", "aes-128-gcm")
SLOTS, KEYS, CAPACITY = 8, 10, 12
GET, PUT, BYE = 1, 2, 3
OK, NOT_FOUND, FULL, BAD = range(4)
SQ = 64


@pytest.fixture(scope="module")
def stand() -> Iterator[Stand]:
    with Stand(settings=Settings(unprotected=True)) as stand:
        yield stand


@pytest.fixture(scope="module")
def server(stand: Stand) -> Iterator[KvsServer]:
    with KvsServer(stand) as server:
        yield server


@pytest.mark.parametrize(
    ("shape", "mix", "store"),
    [
        (AEAD, Mix("a"), Store(2000, connections=5, depth=7)),
        (Shape("aead", "chacha20-poly1305", "pd+mem"), Mix("d"), Store(500, 3, 4)),
        (Shape("packet", "hmac-sha256", "mem"), Mix("put", 0), Store(100, 2, 1)),
        (Shape("none"), Mix("b"), Store(1, connections=4, depth=16)),
    ],
)
def test_answers_are_correct_under_load(
    server: KvsServer, shape: Shape, mix: Mix, store: Store
) -> None:
    with server.connect(shape, store) as kvs:
        assert kvs.check(mix, seconds=0.3) > store.keys
        result = kvs.measure(mix, seconds=0.05)
        assert (result.level, result.mix, result.keys) == (shape.level, mix.name, store.keys)
        assert result.requests > 0 and 0 < result.p50_us <= result.p99_us
        assert (result.packets > 4) == (shape.level != "none")
        with pytest.raises(LocalError, match="measure\\(\\) came before check"):
            kvs.check(mix, seconds=0)


def test_each_run_has_other_keys(server: KvsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round has other keys, but two stores that are compared get the same keys in the same
    round."""
    thrown: list[tuple[int, ...]] = []

    def trace(mix: str, *words: Any, real: Any = _kvs.Trace) -> Any:
        thrown.append(words)
        return real(mix, *words)

    monkeypatch.setattr(_kvs, "Trace", trace)
    store = Store(1000, connections=2)
    with server.connect(AEAD, store) as one, server.connect(Shape("none"), store) as other:
        for _ in range(3):
            for kvs in (one, other):
                assert kvs.measure(Mix("a"), seconds=0.02).requests > 0
    assert thrown[0::2] == thrown[1::2]
    assert len({*thrown}) == 3


def test_missing_keys_are_an_error(server: KvsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A miss is faster than a hit. A run in which every key should exist but GETs miss therefore
    raises an error."""

    def forgetful(do: str, real: Any = server._host.ask, **words: Any) -> dict[str, Any]:
        return real(do, **words | ({"keys": 1} if do == "listen" else {}))

    monkeypatch.setattr(server._host, "ask", forgetful)
    with server.connect(AEAD, Store(1000, connections=2)) as kvs:
        assert kvs.measure(Mix("d"), seconds=0.02).misses > 0
        with pytest.raises(
            IntegrityError, match="GETs found nothing, although the store has every key"
        ):
            kvs.measure(Mix("get", 0), seconds=0.02)


def test_signal_ends_a_run(server: KvsServer) -> None:
    """The signal arrives while the run is in C code."""

    class EnoughError(Exception):
        pass

    def enough(*_: Any) -> None:
        raise EnoughError

    before = signal.signal(signal.SIGALRM, enough)
    try:
        with pytest.raises(EnoughError), server.connect(AEAD, Store(1000, connections=2)) as kvs:
            trace = _kvs.Trace("a", 1000, 1000, 0.9, 1)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            kvs._run(trace, 60_000_000_000)
        assert 0 < kvs._client.counts["ns"] < 60e9
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    with server.connect(AEAD, Store(1000, connections=2)) as kvs:
        assert kvs.measure(Mix("a"), seconds=0.02).requests > 0


def test_clients_that_fail_to_connect(server: KvsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's process continues with the next clients."""
    store, options = Store(100, connections=1), Shape.options

    def mistaken(shape: Shape, identities: Path, own: str, peer: str) -> dict[str, Any]:
        found = options(shape, identities, own, peer)
        return found | ({"peer": "spiffe://demo/nobody"} if own == "a" else {})

    with monkeypatch.context() as m:
        m.setattr(Shape, "options", mistaken)
        with pytest.raises(IntegrityError, match="allowed"), server.connect(AEAD, store):
            pass
    with server.connect(AEAD, store) as kvs:
        assert kvs.measure(Mix("a"), seconds=0.02).requests > 0


def test_wrong_answer_is_reported_with_the_seed(
    server: KvsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(_kvs.History):
        def check(self, keys: int) -> tuple[int, int, int, int]:
            return 7, 1, 2, 3

    monkeypatch.setattr(_kvs, "History", Wrong)
    why = pytest.raises(IntegrityError, match=r"a GET of key 7 .* the requests' seed is \d+$")
    with server.connect(AEAD, Store(100, connections=1)) as kvs, why:
        kvs.check(Mix("a"), seconds=0)


def test_answers_are_correct_over_udp() -> None:
    with (
        Stand(UDP) as stand, KvsServer(stand) as server,
        server.connect(AEAD, Store(1000, connections=4, depth=16)) as kvs,
    ):  # fmt: skip
        assert kvs.check(Mix("a"), seconds=0.3) > 1000


def test_new_keys_until_the_store_is_full(server: KvsServer) -> None:
    """Mix d puts new keys. When the store is full, it uses existing keys."""
    store = Store(100, connections=2, depth=8)
    with server.connect(AEAD, store) as kvs:
        kvs.check(Mix("d", 0), seconds=0)
        assert server.state(kvs)["keys"] == store.capacity
        assert server.state(kvs)["full"] == 0


# Clients that violate the protocol ------------------------------------------------------


class Rude:
    """A client of the store that fills its slots by hand."""

    def __init__(self, there: Connection, where: RemoteMR) -> None:
        self.qp, self._where = there.qp, where
        self.sequence = 1

    def write(self, opcode: int, *, number: int = 0, length: int | None = None, zero: int = 0,
              spoil: bool = False) -> None:  # fmt: skip
        """Writes a request into the next slot."""
        said = (32 if opcode == PUT else 0) if length is None else length
        slot = bytearray(32) + key(number) + bytes(8)
        slot += struct.pack("=IBBH", self.sequence, opcode, said, zero)
        whole = bytearray(sealed(slot))
        whole[40] ^= spoil  # a byte of the key
        at = (self.sequence - 1) % SLOTS * SLOT_LEN
        self.qp.write(bytes(whole), self._where, at, timeout=WAIT)

    def answer(self) -> tuple[int, int]:
        """Returns the status and the value's length in the next response."""
        data = bytes(self.qp.recv(WAIT).data)
        sequence, status, length = struct.unpack_from("=IBB", data)
        assert sequence == self.sequence
        self.sequence += 1
        return status, length

    def ask(self, opcode: int, **how: Any) -> tuple[int, int]:
        self.write(opcode, **how)
        return self.answer()


@contextlib.contextmanager
def rude(stand: Stand, host: HostProcess) -> Iterator[tuple[Rude, int]]:
    """Yields the client and its number in the server's process."""
    heard = host.ask(
        "listen", worker=str(stand.b.control), keys=KEYS, capacity=CAPACITY, slots=SLOTS,
        proof=False, options=AEAD.options(stand.identities, "b", "a") | {"qps": 1},
    )  # fmt: skip
    with Context(stand.a.control) as ctx, PD(ctx) as pd:
        options = AEAD.options(stand.identities, "a", "b") | {"qps": 1}
        host.request("open", serial=heard["serial"], sq=SQ)
        with connection.connect(tuple(heard["address"]), pd, **options) as there:
            (memory,) = host.answer()["memory"]
            yield Rude(there, RemoteMR.from_bytes(memory)), heard["serial"]


@pytest.fixture
def host() -> Iterator[HostProcess]:
    with contextlib.closing(HostProcess("srdma_bench.kvs.host")) as host:
        host.wait_until_up()
        yield host


def test_store_is_filled_or_an_error_is_raised(stand: Stand, host: HostProcess) -> None:
    with pytest.raises(DeviceError, match="the store took 12 of 13 keys"):
        host.ask(
            "listen", worker=str(stand.b.control), keys=CAPACITY + 1, capacity=CAPACITY,
            slots=SLOTS, proof=False, options={},
        )  # fmt: skip


def test_invalid_requests_are_refused_and_harm_no_client(stand: Stand, host: HostProcess) -> None:
    with rude(stand, host) as (client, serial):
        for opcode in (0, BYE + 1, 255):
            assert client.ask(opcode) == (BAD, 0)
        for length in (1, 31, 33, 255):
            assert client.ask(PUT, length=length) == (BAD, 0)
            assert client.ask(GET, length=length) == (BAD, 0)
        assert client.ask(GET, zero=1) == (BAD, 0)
        assert client.ask(GET, number=KEYS - 1) == (OK, 32)
        assert client.ask(GET, number=KEYS) == (NOT_FOUND, 0)
        assert host.ask("state", serial=serial)["bad"] == 12
        assert client.ask(BYE) == (OK, 0)
        host.ask("end", serial=serial)


def test_partly_written_request_waits_until_it_is_whole(stand: Stand, host: HostProcess) -> None:
    with rude(stand, host) as (client, serial):
        client.write(GET, number=1, spoil=True)
        client.qp.write(b"\0" * 8, client._where, SLOT_LEN, timeout=WAIT)
        assert host.ask("state", serial=serial)["gets"] == 0
        assert client.ask(GET, number=1) == (OK, 32)
        assert host.ask("state", serial=serial)["gets"] == 1
        assert client.ask(BYE) == (OK, 0)
        host.ask("end", serial=serial)


def test_full_store_refuses_new_keys_only(stand: Stand, host: HostProcess) -> None:
    with rude(stand, host) as (client, serial):
        for number in range(KEYS, CAPACITY):
            assert client.ask(PUT, number=number) == (OK, 0)
        assert client.ask(PUT, number=CAPACITY) == (FULL, 0)
        assert client.ask(GET, number=CAPACITY) == (NOT_FOUND, 0)
        for number in range(CAPACITY):
            assert client.ask(PUT, number=number) == (OK, 0)
            assert client.ask(GET, number=number) == (OK, 32)
        assert client.ask(BYE) == (OK, 0)
        state = host.ask("state", serial=serial)
        assert (state["keys"], state["full"]) == (CAPACITY, 1)
        host.ask("end", serial=serial)


def test_client_that_closes_without_bye(stand: Stand, host: HostProcess) -> None:
    with rude(stand, host) as (other, serial):
        with rude(stand, host) as (gone, lost):
            assert gone.ask(GET) == (OK, 32)
        host.ask("end", serial=lost)  # joins the server's thread for that client
        assert other.ask(GET) == (OK, 32)
        assert other.ask(BYE) == (OK, 0)
        host.ask("end", serial=serial)


# The command ---------------------------------------------------------------------------


def bench_kvs(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "srdma", "bench", "kvs", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)


QUICK = ["--keys", "1000", "-D", "0.05", "--rounds", "2"]


def test_command_compares() -> None:
    done = bench_kvs(*QUICK, "--compare", "--check", "--json")
    assert done.returncode == 0, done.stderr
    *checked, a, b, c, d, ratio = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["checked"] for row in checked] == ["none", "aes-128-gcm, aead, basic"]
    assert [row["level"] for row in (a, b, c, d)] == ["none", "none", "aead", "aead"]
    assert all(row["rate"] > 0 and row["cpu_server"] > 0 for row in (a, b, c, d))
    assert ratio["rate_ratio"]["rounds"] == ratio["worker_cpu_ratio"]["rounds"] == 2


def test_text_output() -> None:
    done = bench_kvs(*QUICK, "--level", "packet", "--mode", "pd")
    assert done.returncode == 0, done.stderr
    assert "worker A" in done.stdout and "aes-128-gmac" in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--mix", "e"], "mix 'e': give one of a, b, c, d, get, put"),
        (["--theta", "1"], "theta 1.0: give 0 (uniform) or more, and less than 1"),
        (["--keys", "0"], "0 keys: give 1 to"),
        (["--depth", "0"], "a depth of 0: give 1 to 1024"),
        (["--connections", "257"], "257 connections do not fit a leg at depth 8: give 1 to 256"),
        (["--seconds", "0"], "--seconds 0.0: give more than 0"),
        (["--level", "none", "--compare"], "omit --suite, --mode and --compare"),
        (["--keys", "3900000", "--check", "--level", "none"], "with --check give at most 2097152"),
    ],
)
def test_command_error_tells_permitted_values(words: list[str], text: str) -> None:
    done = bench_kvs(*words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert text in " ".join(done.stderr.split())
