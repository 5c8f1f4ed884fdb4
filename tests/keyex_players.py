"""Players for tests of the agent: a worker that only responds, and private agents with channels."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import selectors
import shutil
import signal
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import cbor2

from srdma.agent.private import PrivateAgent
from srdma.control import Kind
from srdma.identity import Credentials

HEADER = struct.Struct(">HHII")
KEYS = struct.Struct(">IBBBBBB2x8s16sIQIII64s256s32s32s48s")
KEY = struct.Struct(">IBB2x8s16sI")  # QPN, secret size, group, generation, peer
PROVE = struct.Struct(">IB3x32s32s")
KEEP = struct.Struct(">II1024s1024s")
ADOPTED = struct.Struct(">QIII6144s1024s")  # serial, leg, n, length, QPs, data
KEPT_QP = struct.Struct(">II16s")  # QPN, index 1 | peer QPN 3, peer endpoint id
HELLO = struct.Struct(">IIII64s64s64s32sII16s")
REKEY = struct.Struct(">IBB2x32s")
BUSY = 16
RTS, ERR = 3, 4
LEG = 1
HOST_A, HOST_B = "spiffe://test/host-a", "spiffe://test/host-b"
PATIENCE = 60.0  # seconds, for what must happen
END = {"event": "end"}  # stands for the end of a channel


class FakeWorker(threading.Thread):
    """Serves the control socket at `path`. It takes KEYS and REKEY, makes secrets for KEY, and
    answers WAIT as configured.

    Records: `keys`, the bodies of KEYS; `asked`, the bodies of KEY; `made`, the secrets; `rekeys`,
    the bodies of REKEY; `rotations`, the ages of ROTATE; `expired`, QPs; `ended`, QPs and reasons
    of END; `lives`, QPs and seconds of LIFE; `attached`, the tokens; `connections`, their number;
    `proofs`, the number of PROVE.
    `agents`, the flags of AGENT; `kept`, the bodies of KEEP.
    gone: QPs that have ended, for PROVE, REKEY and ADOPT. tokens: the legs of ATTACH, None for any.
    owner: user and account of the leg. others: AGENTs refused (EBUSY) because of another agent.
    processes and gid: in HELLO. foreign: QPs of other legs, for REKEY. away: new connections end
    at once, as those of a proxy without a link.

    refuse: text with which it refuses requests of the kind `refuses`, KEYS by default; refused: of
    this QP only. busy: direction -> number of REKEYs refused first (EBUSY). stuck: pairs of QPN and
    direction whose REKEYs are refused (EBUSY).
    """

    def __init__(
        self,
        *,
        state: int = RTS,
        refuse: str = "",
        refuses: Kind = Kind.KEYS,
        silent: bool = False,
    ) -> None:
        super().__init__(daemon=True)
        self._folder = Path(tempfile.mkdtemp(prefix="srdma-fake-"))
        self.path = self._folder / "w.sock"
        self.state, self.refuse, self.refuses, self.silent = state, refuse, refuses, silent
        self.refused: int | None = None
        self.keys: list[tuple[Any, ...]] = []
        self.asked: list[tuple[Any, ...]] = []
        self.made: list[bytes] = []
        self.owner = os.getuid(), b""
        self.group_key = os.urandom(48)
        self.status = 22  # of refused requests
        self.rekeys: list[tuple[Any, ...]] = []
        self.times: list[float] = []  # of the rekeys
        self.rotations: list[int] = []
        self.expired: list[int] = []
        self.expired_at = 0.0  # time of the last EXPIRE
        self.ended: list[tuple[int, ...]] = []
        self.lives: list[tuple[int, ...]] = []
        self.attached: list[bytes] = []
        self.connections = self.proofs = 0
        self.busy: dict[int, int] = {}
        self.stuck: set[tuple[int, int]] = set()
        self.gone: set[int] = set()
        self.tokens: set[bytes] | None = None
        self.agents: list[int] = []
        self.others = 0
        self.processes, self.gid = 1, b""
        self.foreign: set[int] = set()
        self.away = False
        self.kept: list[tuple[tuple[int, ...], bytes]] = []
        self._open: set[socket.socket] = set()
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(os.fspath(self.path))
        self._server.listen()
        self._stop_r, self._stop_w = os.pipe()
        self.start()

    def cut(self) -> None:
        """End all connections, as a link does. There is no other one while `away`."""
        self.away = True
        for conn in [*self._open]:
            with contextlib.suppress(OSError):  # the thread closed it
                conn.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            selector.register(self._stop_r, selectors.EVENT_READ)
            while self._serve(selector):
                pass
            for key in [*selector.get_map().values()]:
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()

    def _serve(self, selector: selectors.BaseSelector) -> bool:
        """Process what is readable. Returns False if the worker has to end."""
        for key, _ in selector.select():
            if key.fd == self._stop_r:
                return False
            conn = key.fileobj
            assert isinstance(conn, socket.socket)
            if conn is self._server:
                accepted = self._server.accept()[0]
                selector.register(accepted, selectors.EVENT_READ)
                self._open.add(accepted)
                self.connections += 1
                if self.away:
                    accepted.shutdown(socket.SHUT_RDWR)
            elif not self._request(conn):
                selector.unregister(conn)
                self._open.discard(conn)
                conn.close()
        return True

    def _request(self, conn: socket.socket) -> bool:
        message = b""
        with contextlib.suppress(ConnectionError):
            message = conn.recv(4096)
        if not message:
            return False
        kind, _, tag, _ = HEADER.unpack_from(message)
        body = message[HEADER.size :]
        if kind == Kind.KEYS:
            self.keys.append(KEYS.unpack(body))
        refused = self.refused in (None, *struct.unpack_from(">I", body.ljust(4, b"\0")))
        if self.refuse and kind == self.refuses and refused:
            self._answer(conn, kind, tag, self.status, self.refuse.encode())
        elif not self.silent or kind != Kind.WAIT:
            self._answer(conn, kind, tag, *self._do(Kind(kind), body))
        return True

    def _do(self, kind: Kind, body: bytes) -> tuple[int, bytes]:
        match kind:
            case Kind.HELLO:
                return 0, HELLO.pack(1, 0, 1, 1, b"", b"", b"w", b"", self.processes, 0, self.gid)
            case Kind.AGENT:
                if self.others:
                    self.others -= 1
                    return errno.EBUSY, b"another process has the role"
                self.agents += struct.unpack(">I", body)
            case Kind.KEEP:
                n, length, numbers, data = KEEP.unpack(body)
                self.kept.append((struct.unpack_from(f">{n}I", numbers), data[:length]))
            case Kind.ADOPT:
                return self._adopt(*struct.unpack(">Q", body))
            case Kind.ATTACH:
                if self.tokens is not None and body not in self.tokens:
                    return errno.EPERM, b"no leg has this token"
                self.attached.append(body)
                return 0, struct.pack(">II64s", LEG, *self.owner)
            case Kind.KEY:
                return 0, self._key(KEY.unpack(body))
            case Kind.WAIT:
                return 0, struct.pack(">II", self.state, 24)
            case Kind.REKEY:
                return self._rekey(REKEY.unpack(body)), b""
            case Kind.PROVE:
                return self._prove(*PROVE.unpack(body))
            case Kind.ROTATE:
                self.rotations.append(struct.unpack(">II", body)[1])
                return 0, struct.pack(">II", len(self.rotations), 0)
            case Kind.EXPIRE:
                self.expired.append(*struct.unpack(">I", body))
                self.expired_at = time.monotonic()
            case Kind.END:
                self.ended.append(struct.unpack(">II", body))
            case Kind.LIFE:
                self.lives.append(struct.unpack(">II", body))
        return 0, b""

    def _adopt(self, after: int) -> tuple[int, bytes]:
        """The next KEEP that has the newest data of QPs that have not ended."""
        for serial in range(after + 1, len(self.kept) + 1):
            numbers, data = self.kept[serial - 1]
            newer = {qpn for later, _ in self.kept[serial:] for qpn in later}
            found = b"".join(
                KEPT_QP.pack(qpn, index << 24 | keys[9], keys[8])
                for index, qpn in enumerate(numbers)
                if qpn not in newer | self.gone
                for keys in self.keys
                if keys[0] == qpn
            )
            if found:
                n = len(found) // KEPT_QP.size
                return 0, ADOPTED.pack(serial, LEG, n, len(data), found, data)
        return errno.ENOENT, b"there is no more"

    def _rekey(self, body: tuple[Any, ...]) -> int:
        if body[0] in self.foreign:
            return errno.EPERM
        if body[0] not in [keys[0] for keys in self.keys]:
            return errno.ENOTCONN
        if body[0] in self.gone:
            return errno.ENOTCONN
        if body[:2] in self.stuck:
            return BUSY
        if self.busy.get(body[1], 0):
            self.busy[body[1]] -= 1
            return BUSY
        self.rekeys.append(body)
        self.times.append(time.monotonic())
        return 0

    def _prove(self, qpn: int, check: int, context: bytes, proof: bytes) -> tuple[int, bytes]:
        """Proofs that another FakeWorker accepts if its QP has the same generation."""
        self.proofs += 1
        if qpn in self.gone:
            return errno.ENOTCONN, b"the QP has ended"
        keys = next((keys for keys in self.keys if keys[0] == qpn), None)
        if keys is None:
            return errno.ENOENT, b"no such QP"
        if not keys[3]:
            return errno.EPERM, b"the QP has level none, and no renewal key"
        role, generation = keys[1], keys[7]
        right = [hashlib.sha256(bytes([r]) + generation + context).digest() for r in (0, 1)]
        if check and proof != right[1 - role]:
            return errno.EBADMSG, b"the proof is not that of the peer"
        counts = [sum(made[:2] == (qpn, way) for made in self.rekeys) for way in (2, 1, 3)]
        made = bytes(32) if check else right[role]
        return 0, struct.pack(">II32s", counts[0], counts[1] - counts[2], made)

    def _key(self, asked: tuple[Any, ...]) -> bytes:
        self.asked.append(asked)
        self.made.append(os.urandom(asked[1]))
        return self.made[-1].ljust(32, b"\0") + (self.group_key if asked[2] else bytes(48))

    def _answer(
        self, conn: socket.socket, kind: int, tag: int, status: int, body: bytes = b""
    ) -> None:
        with contextlib.suppress(ConnectionError):  # a test ended the agent
            conn.send(HEADER.pack(kind, 0, tag, status) + body)

    def die(self) -> None:
        """End like a process: all connections close."""
        if self.is_alive():
            os.write(self._stop_w, b"!")
            self.join()

    def close(self) -> None:
        self.die()
        if self._folder.exists():
            os.close(self._stop_r)
            os.close(self._stop_w)
            shutil.rmtree(self._folder)


class Wire:
    """The program's end of a channel, of which a test sees every message."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        self.sock = sock

    def say(self, raw: bytes, fds: Sequence[int] = ()) -> None:
        message = len(raw).to_bytes(4, "big") + raw
        with contextlib.suppress(ConnectionError):  # the agent has closed it: its event says why
            self.sock.sendall(message[socket.send_fds(self.sock, [message], list(fds)) :])

    def tell(self, fields: Any, fds: Sequence[int] = ()) -> None:
        self.say(cbor2.dumps(fields), fds)

    def event(self) -> dict[str, Any]:
        """Returns the next event, END at the end of the channel."""
        try:
            size = int.from_bytes(self._exactly(4), "big")
            found = cbor2.loads(self._exactly(size))
        except (EOFError, ConnectionError):
            return END
        assert isinstance(found, dict)
        return found

    def events(self) -> list[dict[str, Any]]:
        """Returns all events up to the end of the channel."""
        return [*iter(self.event, END)]

    def hang_up(self) -> None:
        """Ask the agent to close what the channel stands for."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up, and wait until the agent has closed its end."""
        if self.sock.fileno() >= 0:
            self.hang_up()
            self.events()
            self.sock.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (part := self.sock.recv(size - len(data))):
                raise EOFError
            data += part
        return data


class Program:
    """A program without srdma: one private agent and the channels to it."""

    def __init__(self) -> None:
        self.agent = PrivateAgent()
        self._process = self.agent._process
        self._killed = False
        self._wires: list[Wire] = []

    @property
    def pid(self) -> int:
        return self._process.pid

    def open(self, settings: Any = None, listening: socket.socket | None = None) -> Wire:
        """Open a channel. settings: its first message, if any, with a socket beside it."""
        wire = Wire(self.agent.open())
        self._wires.append(wire)
        if settings is not None:
            wire.tell(settings, [listening.fileno()] if listening else [])
        return wire

    def kill(self) -> None:
        self._killed = True
        self._process.send_signal(signal.SIGKILL)

    def finish(self) -> None:
        """End the agent. No session may have ended it, or have made it write to stderr."""
        for wire in self._wires:
            wire.close()
        alive = self.agent.alive()
        self.agent._door.close()
        code = self._process.wait(PATIENCE)
        self.agent._log.seek(0)
        said = self.agent._log.read().decode()
        self.agent.close()
        assert self._killed or alive, said
        assert self._killed or code == 0, code
        assert said == "", said


class Listening(Program):
    """A program with a listener on 127.0.0.1."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        with socket.create_server(("127.0.0.1", 0), backlog=1024) as sock:
            self.address: tuple[str, int] = sock.getsockname()
            self.listener = self.open({"do": "listen", **settings}, sock)

    def dial(self, source: str = "") -> socket.socket:
        """Returns a TCP connection to the listener. source: its IP address."""
        return dial(self.address, source)


class Keyex:
    """A program with one connection.

    The server listens at `address`. The client connects to the address given, or to a listening
    socket of its own, from which other_end() takes the connection.
    """

    def __init__(
        self,
        config: dict[str, Any],
        worker: FakeWorker | None = None,
        address: tuple[str, int] | None = None,
    ) -> None:
        self.config = config
        self.worker = worker or FakeWorker()
        self._settings = {k: v for k, v in config.items() if k != "role"} | {
            "worker": str(self.worker.path),
            "token": os.urandom(16),
        }
        self._admitted: Future[Wire | dict[str, Any]] = Future()
        self._listening: socket.socket | None = None
        self.program: Program
        if config["role"] == "server":
            self.program = listening = Listening(
                {k: v for k, v in config.items() if k in ("cert", "key", "ca", "peer")}
            )
            self.address = listening.address
            self._thread = threading.Thread(target=self._accept, args=(listening.listener,))
            self._thread.start()
        else:
            if address is None:
                self._listening = socket.create_server(("127.0.0.1", 0))
                address = self._listening.getsockname()
            self.program = Program()
            settings = self._settings | {"do": "connect", "address": list(address)}
            self._admitted.set_result(self.program.open(settings))

    def _accept(self, listener: Wire) -> None:
        """Accept the first authorised peer; a refused one ends this end like an error."""
        event = listener.event()
        if event["event"] == "listening":
            event = listener.event()
        if event["event"] == "arrived":
            settings = self._settings | {"do": "accept", "arrival": event["arrival"]}
            self._admitted.set_result(self.program.open(settings))
        else:
            self._admitted.set_result(event)

    def other_end(self) -> socket.socket:
        """Returns the peer's end of a TCP connection."""
        if self._listening is None:
            return dial(self.address)
        return patient(self._listening.accept()[0])

    @property
    def wire(self) -> Wire:
        """The channel of the connection."""
        found = self._admitted.result(PATIENCE)
        assert isinstance(found, Wire), found
        return found

    def event(self) -> dict[str, Any]:
        """Returns the next event of the connection, or the only one of a listener that refused the
        peer; END after the last one."""
        found = self._admitted.result(PATIENCE)
        if isinstance(found, Wire):
            return found.event()
        self._admitted = Future()
        self._admitted.set_result(END)
        return found

    def events(self) -> list[dict[str, Any]]:
        """Returns all events up to the end of the connection."""
        return [*iter(self.event, END)]

    def wish(self, number: int) -> None:
        self.wire.tell({"do": "renew", "wish": number})

    def hang_up(self) -> None:
        self.wire.hang_up()

    def kill(self) -> None:
        self.program.kill()

    def finish(self) -> None:
        """Ends the program. Its agent must have outlived the connection without complaint."""
        if self.config["role"] == "server":
            assert isinstance(self.program, Listening)
            self.program.listener.hang_up()
            self._thread.join()
        if self._listening:
            self._listening.close()
        try:
            self.program.finish()
        finally:
            self.worker.close()


def dial(address: tuple[str, int], source: str = "") -> socket.socket:
    """Returns a TCP connection. source: its own IP address, if it matters."""
    return patient(
        socket.create_connection(address, source_address=(source, 0) if source else None)
    )


def patient(sock: socket.socket) -> socket.socket:
    """Limits each call of a blocking socket by the kernel, because OpenSSL uses it too."""
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(PATIENCE), 0))
    return sock


@contextlib.contextmanager
def finished(*programs: Keyex | Program) -> Iterator[None]:
    """Ends these programs at the end of the block, each of them whatever the others do."""
    with contextlib.ExitStack() as stack:
        for program in programs:
            stack.callback(program.finish)
        yield


@contextlib.contextmanager
def run_pair(
    client: Any, server: Any, workers: dict[str, FakeWorker] | None = None
) -> Iterator[tuple[Keyex, Keyex]]:
    """Runs two programs with these configurations, connected to each other, and ends them."""
    found = workers or {}
    right = Keyex(server, found.get("server"))
    with finished(right):
        left = Keyex(client, found.get("client"), right.address)
        with finished(left):
            yield left, right


def config(role: str, credentials: Credentials, **changes: Any) -> dict[str, Any]:
    """A configuration that works, with these changes: the settings of a connection, and `role`."""
    qp = {
        "qpn": 0x1234 if role == "client" else 0x5678,
        "eid": os.urandom(16),
        "pn": (1 << 23) + 7,
        "mtu": 4096,
        "window": 64,
        "reads": 16,
        "random": os.urandom(32),
        "wire": "nica" if role == "client" else "nicb",
    }
    values = {
        "role": role,
        "cert": credentials.cert,
        "key": credentials.key,
        "ca": credentials.ca,
        "peer": [],
        "suites": [[1, 3, 16], [7, 3, 16]],
        "modes": [0],
        "group": "",
        "qps": [qp, qp | {"qpn": qp["qpn"] + 1}],
        "data": b"from " + role.encode(),
        "timeout": 20.0,
        "every": 0.0,
        "limit": 20.0,
        "max_age": 86400.0,
    }
    return values | changes


def load(folder: Path, name: str) -> Credentials:
    return Credentials.load(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca/ca.pem")


def connecting(mine: Credentials) -> dict[str, Any]:
    """Settings of `connect`, to a worker and an address without a process."""
    settings = config("client", mine) | {"worker": "/none", "token": bytes(16)}
    return settings | {"do": "connect", "address": ["127.0.0.1", 1]}


def accepting(
    identities: Path, worker: FakeWorker, number: object, **changes: Any
) -> dict[str, Any]:
    """Settings of `accept`."""
    settings = config("server", load(identities, "b"), **changes)
    del settings["role"]
    return settings | {
        "do": "accept",
        "arrival": number,
        "worker": str(worker.path),
        "token": os.urandom(16),
    }


def until(works: Callable[[], bool]) -> None:
    """Wait until this returns True, 20 s at most."""
    end = time.monotonic() + 20
    while not works():
        assert time.monotonic() < end
        time.sleep(0.01)
