"""The key exchange as a separate process: `python -m srdma.keyex` (protocol.md 8).

    srdma.keyex --tcp-fd N --control-fd M

No other host process holds the traffic secrets. They go from TLS to the local worker in KEYS, in
key mode `pd` from the local worker to the peer inside TLS, and nowhere else. Their copies end with
this process, which leaves no core dump and cannot be traced. It lives as long as the TLS
connection.

stdin: CBOR maps, each after its length (4 bytes, big-endian). The end of stdin requests the close.
Keys of the first map: role ("client" or "server"), cert, key, ca (PEM), peer (patterns of allowed
identities), suites ([[id, level, tag length], ...], in order of preference), modes ([key mode,
...], in order of preference), group (trust group of the leg, "" for none), leg (its number), qps
([{qpn, eid, pn, mtu, window, reads, random, wire}, ...]), data, timeout (seconds for all steps up
to `ready`), every (seconds between exchanges of new secrets, 0: no periodic ones), limit (seconds
for one of these exchanges). The control fd is already attached to the leg. Maps after `ready`:
{"do": "renew", wish} requests new secrets (8.5); wish is the number of the request, from 1.

stdout: CBOR maps, each after its length: {"event": "peer", identity, data, suite, mode,
trust_group, group (of TLS)}, {"event": "ready"}, {"event": "renewed", count (number of the
exchange), wish (highest request that it completes; exchanges without a request are not reported)},
{"event": "error", code, text}, {"event": "closed"}.

Exit code: 0 closed, 1 failed (an error event has the reason), 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import resource
import secrets
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, cast

import cbor2

from srdma.control import Control, QPState
from srdma.errors import DeviceError, Error, Timeout, WorkerGone
from srdma.identity import Credentials
from srdma.keyex.exchange import (
    WAITING,
    Agreed,
    Derive,
    Event,
    Exchange,
    Install,
    Parameters,
    Role,
    Send,
)
from srdma.keyex.exchange_renew import Renewal
from srdma.keyex.fields import ExchangeError
from srdma.keyex.messages import End, ErrorMessage, Offer, Suite, decode, encode
from srdma.keyex.policy import check_identity, check_suite
from srdma.keyex.renew import NEVER, Renewing, Times
from srdma.keyex.secrets import NewSecrets, Secrets, unless_ended
from srdma.keyex.tls import Channel, PeerClosed, Truncated
from srdma.native.constants import REASON_PEER_CLOSED, REASON_WIRE_LOST
from srdma.wc import reason_name, reason_text

LENGTH = 4
CONFIG_MAX = 1 << 20
WISHES_MAX = 1 << 16  # bytes of requests that may wait unread
FAREWELL = 1.0  # seconds for an ERROR to reach the peer
PR_SET_DUMPABLE = 4
STDIN, STDOUT = 0, 1


class Stopped(Exception):  # noqa: N818 - an event, not a fault
    """The parent closed stdin, which requests the close."""


def harden() -> None:
    """Forbid core dumps and tracing by processes of the same user."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE)")


class Config:
    """The parent's configuration, checked like the message of a peer. Raises ExchangeError."""

    def __init__(self, fields: dict[str, Any]) -> None:
        try:
            self.role = cast(Role, fields["role"])
            self.credentials = Credentials(fields["cert"], fields["key"], fields["ca"])
            self.allowed = _patterns(fields["peer"])
            self.suites = tuple(Suite(*entry) for entry in fields["suites"])
            self.modes = tuple(fields["modes"])
            self.group = fields["group"]
            self.qps = [dict(qp) for qp in fields["qps"]]
            self.randoms = [qp.pop("random") for qp in self.qps]
            self.ends = tuple(End(**qp) for qp in self.qps)
            self.data = bytes(fields["data"])
            self.leg = int(fields["leg"])
            self.timeout = float(fields["timeout"])
            self.times = Times(float(fields["every"]), float(fields["limit"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ExchangeError("config", f"the configuration is malformed: {error}") from None
        if self.role not in ("client", "server"):
            raise ExchangeError("config", f"role {self.role!r}: it must be client or server")
        self.credentials.check()
        for suite in self.suites:
            check_suite(suite)
        random = secrets.token_bytes(32)
        decode(encode(Offer(self.suites, self.modes, self.group, random, self.ends, self.data)))

    def random(self) -> bytes:
        """The random of this end, 32 bytes: that of the first QP, made by the worker."""
        return bytes(self.randoms[0])


def _patterns(value: object) -> list[str]:
    """Check the type: a single string would pass as a list of its characters."""
    if not isinstance(value, list) or not all(isinstance(p, str) for p in value):
        raise TypeError("peer is not a list of patterns")
    return value


class Program:
    """One run: TLS, key exchange, worker, then renewals until one side ends the connection."""

    def __init__(self, config: Config, tcp: socket.socket, control: Control) -> None:
        self._config = config
        self._deadline = time.monotonic() + config.timeout
        self._waiting_for = "the peer's TLS handshake"
        self._control = control
        self._channel = Channel(tcp, config.role, config.credentials, self._wait_tls)
        self._identity = self._group = ""
        self._parent: tuple[int, ...] = (STDIN,)  # descriptors whose end stops this program
        self._exchange: Exchange | None = None
        self._secrets: Secrets | None = None
        self._renewing: Renewing | None = None
        self._unparsed = bytearray()  # bytes of the parent that are not yet parsed
        # The thread that waits for the worker writes to this pipe.
        self._news, self._news_writer = os.pipe()
        self._worker_error: ExchangeError | None = None

    def run(self) -> int:
        """Run the exchange, then serve renewals until the end. Returns the exit code."""
        try:
            self._agree()
            report("ready")
            self._linger()
        except (PeerClosed, Stopped) as end:
            self._channel.close()
            if isinstance(end, PeerClosed) and not (self._exchange and self._exchange.done):
                return fail(
                    "closed", f"the peer closed while this end waited for {self._waiting_for}"
                )
            if isinstance(end, PeerClosed) and not isinstance(end, Truncated):
                self._end(REASON_PEER_CLOSED)
            report("closed")
            return 0
        except Error as error:
            return self._fail(error)
        finally:
            if self._exchange:
                self._exchange.forget()
            if self._renewing:
                self._renewing.forget()
        return 0

    def _fail(self, error: Error) -> int:
        if not isinstance(error, ExchangeError):
            what = "gone" if isinstance(error, WorkerGone) else "worker"
            error = ExchangeError(what, str(error))
        self._deadline = time.monotonic() + FAREWELL
        self._parent = ()
        if self._renewing:
            if error.code == "gone":
                self._end(REASON_WIRE_LOST)
            elif not (error.from_peer and self._renewing.quiet):
                self._expire()
        if error.from_peer:
            self._channel.close()
            return fail(error.code, f"the peer reports: {error.text}")
        code = fail(error.code, error.text)
        self._channel.abort(encode(ErrorMessage(error.code, error.told)))
        return code

    # Up to `ready` -----------------------------------------------------------

    def _agree(self) -> None:
        self._identity, self._group = self._channel.handshake()
        check_identity(self._identity, self._config.allowed)
        self._exchange = exchange = Exchange(self._config.role, self._parameters())
        self._secrets = Secrets(
            self._control, self._channel.export, exchange, self._config.ends, self._identity
        )
        self._act(exchange.start())
        while not exchange.done:
            self._waiting_for = WAITING.get(exchange.state, "")
            if (message := self._channel.receive()) is not None:
                self._act(exchange.receive(message))
            elif self._news in self._wait([self._channel.fileno(), self._news]):
                self._on_worker(exchange)

    def _parameters(self) -> Parameters:
        config = self._config
        own, peer = self._channel.certificate_hashes()
        both = (own, peer) if config.role == "client" else (peer, own)
        return Parameters(
            suites=config.suites,
            modes=config.modes,
            group=config.group,
            random=config.random(),
            ends=config.ends,
            data=config.data,
            certificates=both,
        )

    def _act(self, events: list[Event]) -> None:
        assert self._exchange is not None and self._secrets is not None
        for event in events:
            match event:
                case Send(data):
                    self._channel.send(data)
                case Agreed():
                    self._report_peer(event)
                case Derive(form):
                    self._act(self._exchange.derived(self._secrets.derive(form)))
                case Install(handover):
                    self._secrets.install(handover)
                    self._act(self._exchange.keyed())
                    threading.Thread(target=self._wait_running, daemon=True).start()

    def _report_peer(self, agreed: Agreed) -> None:
        report(
            "peer",
            identity=self._identity,
            data=agreed.data,
            suite=list(agreed.suite),
            mode=agreed.mode,
            trust_group=agreed.group,
            group=self._group,
        )

    def _wait_running(self) -> None:
        """Runs in a thread: wait until the worker reports RTS for every QP, or an error."""
        try:
            for end in self._config.ends:
                # The main thread's deadline is earlier and gives the better error text.
                left = self._deadline - time.monotonic() + FAREWELL
                state, reason = self._control.wait(end.qpn, left)
                if state is not QPState.RTS:
                    raise ExchangeError(
                        "worker",
                        f"QP {end.qpn:#08x} went to error: {reason_name(reason)}, "
                        f"{reason_text(reason)}",
                    )
        except ExchangeError as error:
            self._worker_error = error
        except Error as error:
            self._worker_error = ExchangeError("worker", str(error))
        os.write(self._news_writer, b"!")

    def _on_worker(self, exchange: Exchange) -> None:
        os.read(self._news, 1)
        if self._worker_error:
            raise self._worker_error
        self._act(exchange.running())

    # After `ready` -----------------------------------------------------------

    def _linger(self) -> NoReturn:
        """Renew secrets until the peer, the worker or the parent ends the connection."""
        assert self._exchange is not None and self._secrets is not None
        config = self._config
        renewing = self._renewing = Renewing(
            Renewal(self._exchange, self._identity),
            NewSecrets(self._secrets, config.leg),
            (self._channel, config.credentials),
            config.times,
            lambda count, wish: report("renewed", count=count, wish=wish),
        )
        self._deadline = NEVER  # each exchange has a deadline of its own (Times.limit)
        while True:
            message = self._channel.receive()
            if message is not None:
                renewing.receive(message)
            for wish in take_wishes(self._unparsed):
                renewing.wish(wish)
            renewing.step()
            until = 0.0 if message is not None else renewing.wake
            self._wait([self._channel.fileno()], hangup=self._control.fileno(), until=until)

    def _expire(self) -> None:
        """EXPIRE all QPs: no exchange can renew their keys any more (8.5)."""
        with contextlib.suppress(DeviceError, Timeout):  # the worker may have ended as well
            for end in self._config.ends:
                with unless_ended():
                    self._control.expire(end.qpn)

    def _end(self, reason: int) -> None:
        """END all QPs: the peer closed the connection or reported its end (section 7)."""
        with contextlib.suppress(DeviceError, Timeout):
            for end in self._config.ends:
                with unless_ended():
                    self._control.end(end.qpn, reason)

    # Waiting -----------------------------------------------------------------

    def _wait_tls(self, writable: bool) -> None:
        fd = self._channel.fileno()
        self._wait([] if writable else [fd], [fd] if writable else [])

    def _wait(
        self,
        readable: Sequence[int],
        writable: Sequence[int] = (),
        hangup: int = -1,
        until: float = NEVER,
    ) -> set[int]:
        """Wait until a descriptor is ready, or until the time `until`. Returns the ready ones.

        Raises Stopped if the parent closed stdin, ExchangeError at the deadline or if the worker
        behind `hangup` ended. Times are time.monotonic() seconds.
        """
        poll = select.poll()
        for fd in (*self._parent, *readable):
            poll.register(fd, select.POLLIN)
        for fd in writable:
            poll.register(fd, select.POLLOUT)
        if hangup >= 0:
            poll.register(hangup, 0)
        now = time.monotonic()
        left, pause = self._deadline - now, min(self._deadline, until) - now
        ready = {fd for fd, _ in poll.poll(None if pause == NEVER else max(pause, 0) * 1000)}
        if hangup in ready:  # checked first: the parent may close stdin for the same reason
            raise ExchangeError("gone", "the local worker ended")
        if STDIN in ready:
            self._read_parent()
        # left: the deadline also holds for a peer that sends without a pause.
        if (not ready and until > self._deadline) or left <= 0:
            raise ExchangeError(
                "timeout",
                f"the key exchange did not complete in {self._config.timeout:g} s, waiting for "
                f"{self._waiting_for}",
            )
        return ready

    def _read_parent(self) -> None:
        if not (data := os.read(STDIN, 4096)):
            raise Stopped
        self._unparsed += data
        if len(self._unparsed) > WISHES_MAX:
            raise ExchangeError(
                "config",
                f"{len(self._unparsed)} bytes of requests are pending: at most {WISHES_MAX} may be",
            )


# The pipes to the parent -----------------------------------------------------


def report(event: str, **fields: Any) -> None:
    """Write one event to the parent. Raises Stopped if the parent has ended."""
    raw = cbor2.dumps({"event": event, **fields}, canonical=True)
    try:
        os.write(STDOUT, len(raw).to_bytes(LENGTH, "big") + raw)
    except OSError:
        raise Stopped from None


def fail(code: str, text: str) -> int:
    report("error", code=code, text=text)
    return 1


def take_wishes(unparsed: bytearray) -> Iterator[int]:
    """Remove all complete requests from `unparsed`; yields their numbers."""
    while len(unparsed) >= LENGTH:
        size = LENGTH + int.from_bytes(unparsed[:LENGTH], "big")
        if len(unparsed) < size <= WISHES_MAX:
            return
        try:
            match cbor2.loads(bytes(unparsed[LENGTH:size])):
                case {"do": "renew", "wish": int(wish), **rest} if not rest:
                    yield wish
                case _:
                    raise ValueError
        except (cbor2.CBORDecodeError, ValueError):
            raise ExchangeError(
                "config", "a malformed request: it must be {'do': 'renew', 'wish': n}"
            ) from None
        del unparsed[:size]


def read_config() -> Config:
    size = int.from_bytes(_read_exactly(LENGTH), "big")
    if size > CONFIG_MAX:
        raise ExchangeError(
            "config", f"the configuration has {size} bytes: at most {CONFIG_MAX} are permitted"
        )
    try:
        fields = cbor2.loads(_read_exactly(size))
    except cbor2.CBORDecodeError:
        raise ExchangeError("config", "the configuration is not CBOR") from None
    if not isinstance(fields, dict):
        raise ExchangeError("config", "the configuration is not a CBOR map")
    return Config(fields)


def _read_exactly(size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (part := os.read(STDIN, size - len(data))):
            raise Stopped
        data += part
    return data


def open_socket(fd: int) -> socket.socket:
    try:
        return socket.socket(fileno=fd)
    except OSError as error:
        raise ExchangeError("config", f"file descriptor {fd}: {error.strerror}") from None


def main() -> int:
    harden()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes stdin
    parser = argparse.ArgumentParser(prog="srdma.keyex", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tcp-fd", type=int, required=True)
    parser.add_argument("--control-fd", type=int, required=True)
    options = parser.parse_args()
    try:
        config = read_config()
        tcp, control = (open_socket(fd) for fd in (options.tcp_fd, options.control_fd))
        return Program(config, tcp, Control(control)).run()
    except Stopped:
        return 0
    except Error as error:
        return fail(getattr(error, "code", "config"), str(error))
