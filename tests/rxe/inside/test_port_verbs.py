"""The verbs port and the host end of a verbs leg, on rxe, with C programs at the other ends."""

import ctypes
import ipaddress
import select
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from srdma import errors
from srdma._engine import verbs
from srdma._engine.verbs import VerbsLeg
from srdma.demo import rxe
from srdma.native.constants import ACCESS_LOCAL_WRITE
from tests.rxe.inside.netem import CUT, netem

ROOT = Path(__file__).resolve().parents[3]
TOKEN = bytes([0x5A]) * 16
RING = 64
PIECE = 4096
WINDOW = 24
HOST = """
import sys, time
from srdma._engine.verbs import VerbsLeg
leg = VerbsLeg(sys.argv[1], sys.argv[2], bytes([0x5a]) * 16, 64)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def ends() -> Iterator[list[rxe.End]]:
    why = rxe.unavailable()
    if why is not None:
        pytest.skip(why)
    with rxe.pair("pv") as both:
        yield both


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("c")
    sources = ROOT / "tests/rxe/c"
    for name in ("verbs_wire", "verbs_leg"):
        command = ["cc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT}/csrc", f"-I{ROOT}/include"]
        command += ["-o", f"{out}/{name}"]
        command += [f"{sources}/{name}.c", f"{sources}/peer.c", f"{ROOT}/build/libsrdma-core.a"]
        subprocess.run([*command, "-lrdmacm", "-libverbs", "-lcrypto"], check=True)
    return out


class Program:
    """A process whose output is read line by line."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)

    def line(self, word: str) -> list[str]:
        assert self.process.stdout is not None
        fields = self.process.stdout.readline().split()
        assert fields[:1] == [word], fields
        return fields[1:]

    def ended(self) -> bool:
        return self.process.wait(20) == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def begin(*args: str) -> Program:
        running.append(Program(*args))
        return running[-1]

    yield begin
    for program in running:
        program.kill()


# --- wire ---


def test_wire_carries_datagrams_of_all_sizes_both_ways(ends, programs, start):
    listener = start(f"{programs}/verbs_wire", ends[0].device, "1000")
    (address,) = listener.line("address")
    assert address.startswith(ends[0].address + ":")
    connector = start(f"{programs}/verbs_wire", ends[1].device, "1000", address)
    connector.line("address")
    assert listener.line("received") == ["1000"]
    assert connector.line("received") == ["1000"]
    connector.kill()
    assert listener.line("down") == ["104"]  # ECONNRESET
    assert listener.ended()


def test_wire_within_one_device(ends, programs, start):
    listener = start(f"{programs}/verbs_wire", ends[0].device, "100")
    (address,) = listener.line("address")
    connector = start(f"{programs}/verbs_wire", ends[0].device, "100", address)
    connector.line("address")
    assert connector.line("received") == ["100"]
    assert listener.line("received") == ["100"]
    listener.kill()
    assert connector.line("down") == ["104"]


def test_wire_without_a_listener_goes_down(ends, programs, start):
    nobody = f"{ends[0].address}:9"
    connector = start(f"{programs}/verbs_wire", ends[1].device, "1", nobody)
    connector.line("address")
    assert connector.line("down") == ["111"]  # ECONNREFUSED


def test_wire_over_ipv6(ends, programs, start):
    # Within one device: rxe does not reach another device of this machine over IPv6.
    add = ["ip", "address", "add", "fd77::1/64", "dev", ends[0].netdev, "nodad"]
    subprocess.run(add, check=True)
    listener = start(f"{programs}/verbs_wire", f"{ends[0].device}@[fd77::1]:0", "100")
    (address,) = listener.line("address")
    assert address.startswith("[fd77::1]:")
    connector = start(f"{programs}/verbs_wire", f"{ends[0].device}@[fd77::1]:0", "100", address)
    connector.line("address")
    assert connector.line("received") == ["100"]
    assert listener.line("received") == ["100"]


def test_bring_up_errors_name_the_cause(ends, programs, start):
    listener = start(f"{programs}/verbs_wire", ends[0].device, "1")
    (taken,) = listener.line("address")
    for device, cause in (
        ("nix0", "no RDMA device nix0"),
        (f"{ends[0].device}@{taken}", f"listening on {taken}: Address already in use"),
        (f"{ends[0].device}@{ends[1].address}:0", f"is not an address of {ends[0].device}"),
        (f"{ends[0].device}@192.0.2.1:0", "listening on 192.0.2.1:0: "),
        (f"{ends[0].device}@{ends[0].address}", "is not IP:PORT"),
        (f"{ends[0].device}@[{ends[0].address}]:0", "is not IP:PORT"),
    ):
        done = subprocess.run(
            [f"{programs}/verbs_wire", device, "1"], capture_output=True, text=True
        )
        assert done.returncode == 1
        assert cause in done.stderr


def test_too_little_locked_memory_names_the_limit(ends, programs):
    # Root is exempt from the limit, so the capability has to be dropped first.
    command = f"ulimit -l 64; exec {programs}/verbs_wire {ends[0].device} 1"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "sh", "-c", command],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "ulimit -l" in done.stderr


# --- leg ---


class Host:
    """Memory, a leg, and jobs for verbs_leg, each of which copies a piece."""

    def __init__(self, leg: VerbsLeg, pieces: int) -> None:
        self.leg = leg
        self.pieces = pieces
        self.source = ctypes.create_string_buffer(pieces * PIECE)
        self.target = ctypes.create_string_buffer(pieces * PIECE)
        for i in range(pieces):
            self.source[i * PIECE : (i + 1) * PIECE] = bytes([i % 251]) * PIECE
        size = pieces * PIECE
        self.source_rkey = self.leg.reg(ctypes.addressof(self.source), size, 0)
        self.target_rkey = self.leg.reg(ctypes.addressof(self.target), size, ACCESS_LOCAL_WRITE)
        self.consumed = 0

    def post(self, number: int, rkey: int | None = None) -> bool:
        """Queues a job. False: the leg is full."""
        slot = self.leg.slot()
        if slot is None:
            return False
        at = number * PIECE
        struct.pack_into(
            ">QQIIQI",
            slot,
            0,
            number,
            ctypes.addressof(self.source) + at,
            self.source_rkey if rkey is None else rkey,
            PIECE,
            ctypes.addressof(self.target) + at,
            self.target_rkey,
        )
        self.leg.post(36)
        return True

    def post_one(self) -> None:
        assert self.post(0)
        self.leg.flush()

    def new_records(self) -> list[int]:
        """Returns the ids of the new records in the ring."""
        ids = []
        while True:
            record = bytes(self.leg.ring[self.consumed % RING * 32 :][:32])
            if int.from_bytes(record[28:], "big") != self.consumed + 1:
                return ids
            ids.append(int.from_bytes(record[:8], "big"))
            self.consumed += 1

    def wait(self) -> None:
        """Sleeps until the leg has records, and takes them."""
        assert self.leg.arm() or readable(self.leg, 20), "nothing arrived"
        self.leg.drain()

    def wait_closed(self) -> str:
        deadline = time.monotonic() + 60
        while self.leg.closed is None and time.monotonic() < deadline:
            select.select([self.leg], [], [], 1)
            self.leg.drain()
        assert self.leg.closed is not None
        return self.leg.closed


@pytest.fixture
def connect(ends) -> Iterator[Callable[..., Host]]:
    """Connects hosts. Their legs are closed at the end, because an open leg
    keeps the device in use."""
    legs = []

    def begin(end: int, address: str, pieces: int = 1) -> Host:
        legs.append(VerbsLeg(ends[end].device, address, TOKEN, RING))
        return Host(legs[-1], pieces)

    yield begin
    for leg in legs:
        leg.close()


@pytest.fixture
def worker(ends, programs, start) -> tuple[Program, str]:
    program = start(f"{programs}/verbs_leg", ends[0].device, str(RING))
    (address,) = program.line("address")
    return program, address


@pytest.mark.parametrize("end", [0, 1], ids=["same device", "other device"])
def test_leg_dma_both_ways_and_records(worker, connect, end):
    program, address = worker
    host = connect(end, address, pieces=300)
    ids, next_job = [], 0
    while len(ids) < host.pieces:
        while next_job < host.pieces and next_job - len(ids) < WINDOW and host.post(next_job):
            next_job += 1
        host.leg.flush()
        host.wait()
        ids += host.new_records()
        assert host.leg.closed is None
    assert ids == list(range(300))
    assert bytes(host.target) == bytes(host.source)
    host.leg.close()
    host.leg.close()
    assert program.line("up") == []
    assert program.line("down") == ["104", "failed", "0"]
    assert program.ended()


def test_polling_does_not_consume_the_wake_up_of_a_sleeper(worker, connect):
    """Two threads use one leg: one sleeps on its descriptor while the other polls."""
    _, address = worker
    host = connect(0, address)
    host.leg.arm()
    host.post_one()
    assert readable(host.leg, 20)
    host.leg.poll()
    assert host.new_records() == [0]
    assert readable(host.leg, 0)
    host.leg.drain()
    assert not readable(host.leg, 0)


def readable(leg: VerbsLeg, seconds: float) -> bool:
    return bool(select.select([leg], [], [], seconds)[0])


# review A20
def test_leg_is_admitted_once_and_by_its_token_only(ends, worker, connect):
    program, address = worker
    with pytest.raises(errors.DeviceError, match="no leg with this token and ring is expected"):
        VerbsLeg(ends[0].device, address, bytes(16), RING)
    with pytest.raises(errors.DeviceError, match="no leg with this token and ring is expected"):
        VerbsLeg(ends[0].device, address, TOKEN, 2 * RING)
    host = connect(0, address)
    program.line("up")
    with pytest.raises(errors.DeviceError, match="no leg with this token and ring is expected"):
        VerbsLeg(ends[0].device, address, TOKEN, RING)
    host.leg.close()
    program.line("down")


def test_bad_host_rkey_ends_the_leg_and_reports_all_dma(worker, connect):
    program, address = worker
    host = connect(0, address, pieces=8)
    for i in range(8):
        assert host.post(i, rkey=0 if i == 3 else None)
    host.leg.flush()
    program.line("up")
    status, _, failed = program.line("down")
    assert status in ("5", "104")  # EIO; or ECONNRESET, if the host's end was noticed first
    assert int(failed) >= 1  # the bad job; later ones may not have started
    assert program.ended()
    assert host.wait_closed()


def test_leg_ends_when_the_worker_is_killed(worker, connect):
    program, address = worker
    host = connect(0, address)
    program.line("up")
    program.kill()
    assert "DISCONNECTED" in host.wait_closed()


def test_leg_goes_down_when_the_host_is_killed(ends, worker, start):
    program, address = worker
    host = start(sys.executable, "-c", HOST, ends[1].device, address)
    host.line("up")
    program.line("up")
    host.kill()
    assert program.line("down") == ["104", "failed", "0"]
    assert program.ended()


def test_wire_listener_refuses_a_leg(ends, programs, start):
    listener = start(f"{programs}/verbs_wire", ends[0].device, "1")
    (address,) = listener.line("address")
    with pytest.raises(errors.DeviceError, match="this address is not for legs"):
        VerbsLeg(ends[0].device, address, TOKEN, RING)


def test_leg_listener_refuses_a_wire(ends, programs, start, worker, connect):
    program, address = worker
    connector = start(f"{programs}/verbs_wire", ends[0].device, "1", address)
    connector.line("address")
    assert connector.line("down") == ["111"]  # ECONNREFUSED
    connect(0, address)  # the leg still waits for its host
    program.line("up")


def test_request_over_another_device_finds_no_listener(ends, programs, start, worker):
    port = worker[1].rpartition(":")[2]
    with pytest.raises(errors.DeviceError, match="no worker listens"):
        VerbsLeg(None, f"{ends[1].address}:{port}", TOKEN, RING)
    connector = start(f"{programs}/verbs_wire", ends[0].device, "1", f"{ends[1].address}:{port}")
    connector.line("address")
    assert connector.line("down") == ["111"]


def test_leg_survives_a_stall(ends, worker, connect):
    """The link is cut for 7 s; removing the cut may take this machine another second."""
    host = connect(1, worker[1])
    with netem(ends, CUT):
        host.post_one()
        time.sleep(7)
        host.leg.drain()
        assert host.new_records() == []
    deadline = time.monotonic() + 60
    while not (ids := host.new_records()) and time.monotonic() < deadline:
        readable(host.leg, 1)
        host.leg.drain()
    assert ids == [0]
    assert bytes(host.target) == bytes(host.source)
    assert host.leg.closed is None


def test_idle_leg_ends_at_both_ends_when_the_link_is_lost(ends, worker, connect):
    program, address = worker
    host = connect(1, address)
    program.line("up")
    with netem(ends, CUT):
        assert "does not acknowledge" in host.wait_closed()
        status, _, failed = program.line("down")
        assert (status in ("5", "110"), failed) == (True, "0")  # EIO, ETIMEDOUT
        assert program.ended()


@pytest.fixture
def second_subnet(ends) -> Iterator[None]:
    """The first address of the far device is one of another subnet."""
    end = ends[1]
    own, other = f"{end.address}/24", "192.0.2.9/24"
    address(["del", own], end)
    address(["add", other], end)
    address(["add", own], end)
    yield
    address(["del", other], end)


def address(words: list[str], end: rxe.End) -> None:
    subprocess.run(["ip", "address", *words, "dev", end.netdev], check=True)


def test_source_address_of_a_device_with_two_subnets(second_subnet, worker, connect):
    program, at = worker
    host = connect(1, at)
    host.post_one()
    host.wait()
    assert host.new_records() == [0]
    program.line("up")


def test_device_of_the_route_is_the_default(ends, worker):
    program, at = worker
    leg = VerbsLeg(None, at, TOKEN, RING)
    try:
        assert leg.device == ends[0].device
        program.line("up")
    finally:
        leg.close()


def test_wrong_device_is_named(ends, worker):
    with pytest.raises(errors.DeviceError, match=f"'nix0' is no RDMA .*{ends[0].device}"):
        VerbsLeg("nix0", worker[1], TOKEN, RING)


def link_local(end: rxe.End) -> str:
    gid = Path("/sys/class/infiniband", end.device, "ports/1/gids/0").read_text().strip()
    return str(ipaddress.IPv6Address(gid))


@pytest.mark.parametrize("kind", ["global", "link-local"])
def test_leg_over_ipv6(ends, programs, start, kind):
    # Within one device: rxe does not reach another device of this machine over IPv6.
    if kind == "global":
        ip = "fd78::1"
        subprocess.run(
            ["ip", "address", "replace", f"{ip}/64", "dev", ends[0].netdev, "nodad"], check=True
        )
    else:
        ip = link_local(ends[0])
    program = start(f"{programs}/verbs_leg", f"{ends[0].device}@[{ip}]", str(RING))
    (at,) = program.line("address")
    assert at.startswith(f"[{ip}]:")
    leg = VerbsLeg(ends[0].device, at, TOKEN, RING)
    try:
        program.line("up")
        assert leg.device == ends[0].device
    finally:
        leg.close()


def test_no_worker_at_the_address(ends):
    with pytest.raises(errors.DeviceError, match="no worker listens"):
        VerbsLeg(ends[1].device, f"{ends[0].address}:9", TOKEN, RING)


def test_connecting_over_a_cut_wire_times_out(ends, worker, monkeypatch):
    monkeypatch.setattr(verbs, "CONNECT_SECONDS", 1.0)
    with netem(ends, CUT), pytest.raises(errors.Timeout, match="docs/rdma"):
        VerbsLeg(ends[1].device, worker[1], TOKEN, RING)
