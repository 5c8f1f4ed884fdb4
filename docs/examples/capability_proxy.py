"""An access-control proxy for a database. The proxy decides once which client may read which
records; the worker of the database enforces this for every packet. See docs/capabilities.md.

    python docs/examples/capability_proxy.py all

starts three workers and runs all roles. To run the roles by hand, with workers that reach each
other:

    capability_proxy.py server --worker W --identity certs/server
    capability_proxy.py proxy  --worker W --identity certs/proxy --server PORT
    capability_proxy.py client --worker W --identity certs/alice --server PORT --proxy PORT
    capability_proxy.py thief  --worker W --identity certs/mallory --server PORT --proxy PORT
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import srdma
from srdma import Access, Capability, Right
from srdma.embedded import Embedded
from srdma.identity import create_ca, issue

RECORD, RECORDS = 1024, 64
QPS = 4  # of each connection: a refused request ends its QP
EVERYBODY = "spiffe://example.org/*"
PROXY = "spiffe://example.org/proxy"
ACCESS_LIST = {"spiffe://example.org/alice": (3, 5)}  # the first record, and the number of records
LIFETIMES = (3600, 1)  # seconds, of the two capabilities that each client gets
TICK = 0.1  # maximum lag of a worker's clock, seconds
WAIT = 30


def say(text: str) -> None:
    print(text, flush=True)


def refused(reason: str, call: Callable[[], object]) -> None:
    """The call must be refused for this reason."""
    try:
        call()
    except srdma.Error as error:
        if reason not in str(error):
            raise
        say(f"refused: {error}")
    else:
        sys.exit(f"was not refused: {reason}")


def until_closed(connection: srdma.Connection) -> None:
    """The end that sent the last message closes first: then it has seen that the message arrived.
    The close of the other end might overtake the acknowledgment."""
    deadline = time.monotonic() + WAIT
    while connection.alive():
        if time.monotonic() > deadline:
            sys.exit("the peer did not close the connection")
        time.sleep(0.01)


# The database ------------------------------------------------------------------


def server(args: argparse.Namespace, pd: srdma.PD) -> None:
    access = Access.LOCAL_WRITE | Access.REMOTE_READ
    table = pd.alloc(RECORDS * RECORD, access, proof=True, block_size=RECORD)
    for n in range(RECORDS):
        text = f"record {n}".encode()
        table.buf[n * RECORD : n * RECORD + len(text)] = text

    options = {"identity": args.identity, "peer": EVERYBODY, "mode": "mem", "qps": QPS}
    with srdma.listen(("127.0.0.1", 0), pd, **options) as listener:
        say(f"listening at {listener.address[1]}")
        with listener.accept(WAIT) as proxy:
            if proxy.identity != PROXY:
                sys.exit(f"{proxy.identity} came before the proxy")
            proxy.qp.send(table.capability(rights=Right.READ).to_bytes())
        say("the proxy has an open capability for the whole table")
        for _ in ("alice", "mallory"):
            say(f"connected: {listener.accept(WAIT).identity}")

        say("asleep until Enter")
        input()
        table.revoke(3 * RECORD, RECORD)
        say("revoked record 3; Enter revokes the rest")
        input()
        table.revoke()
        say("revoked the whole table; Enter ends")
        input()


# The proxy ---------------------------------------------------------------------


def proxy(args: argparse.Namespace, pd: srdma.PD) -> None:
    options = {"identity": args.identity, "mode": "mem", "qps": QPS}
    with srdma.connect(("127.0.0.1", args.server), pd, **options) as database:
        table = Capability.from_bytes(database.qp.recv(WAIT).data)
        until_closed(database)
    say(f"has {table!r}, and needs the database no more")
    with srdma.listen(("127.0.0.1", 0), pd, identity=args.identity, peer=EVERYBODY) as listener:
        say(f"listening at {listener.address[1]}")
        for _ in ("alice", "mallory"):
            with listener.accept(WAIT) as client:
                for token in grant(table, client.identity):
                    client.qp.send(token)


def grant(table: Capability, identity: str) -> list[bytes]:
    """Returns sealed capabilities for what the access list permits, or none.
    Contacts no other host."""
    if identity not in ACCESS_LIST:
        say(f"{identity} is not on the access list")
        return [b"" for _ in LIFETIMES]
    first, count = ACCESS_LIST[identity]
    records = table.narrow(first * RECORD, count * RECORD)
    say(f"grants {identity} {count} records from {first}, for {LIFETIMES} s")
    now = int(time.time())
    return [records.seal(holder=identity, expires=now + s).to_bytes() for s in LIFETIMES]


# Its clients -------------------------------------------------------------------


def ask(args: argparse.Namespace, pd: srdma.PD) -> tuple[bytes, bytes]:
    """Returns the two capabilities from the proxy: a long-lived one and one for a second."""
    with srdma.connect(("127.0.0.1", args.proxy), pd, identity=args.identity) as proxy:
        given = bytes(proxy.qp.recv(WAIT).data), bytes(proxy.qp.recv(WAIT).data)
        until_closed(proxy)
        return given


def to_database(args: argparse.Namespace, pd: srdma.PD) -> srdma.Connection:
    options = {"identity": args.identity, "mode": "mem", "qps": QPS}
    return srdma.connect(("127.0.0.1", args.server), pd, **options)


def record(qp: srdma.SecureQP, cap: Capability, n: int) -> str:
    """Reads the n-th record of the capability."""
    return qp.read(cap, n * RECORD, RECORD).rstrip(b"\0").decode()


def client(args: argparse.Namespace, pd: srdma.PD) -> None:
    cap, short = map(Capability.from_bytes, ask(args, pd))
    qps = to_database(args, pd).qps
    say(f"token: {cap}")
    say("ready; Enter reads")
    input()

    count = cap.length // RECORD
    say(f"reads {[record(qps[0], cap, n) for n in range(count)]}")
    first = cap.narrow(0, RECORD)
    say(f"narrowed to one record: {record(qps[0], first, 0)!r}")
    say("the second record, by the narrowed one:")
    refused("does not fit into the capability", lambda: record(qps[0], first, 1))
    say("a write:")
    refused("grants READ, not WRITE", lambda: qps[0].write(b"mine", cap))
    say("the record behind the last one, by address and rkey alone:")
    behind = srdma.RemoteMR(cap.address + cap.length, cap.rkey, RECORD)
    refused("PROOF_REQUIRED", lambda: qps[1].read(behind))
    say("after the expiry of the short one:")
    assert short.expires is not None
    time.sleep(max(short.expires - time.time(), 0) + TICK)
    refused("PROOF_EXPIRED", lambda: record(qps[2], short, 0))

    say("Enter tries what was revoked")
    input()
    refused("PROOF_RANGE", lambda: record(qps[3], cap, 0))
    say(f"the rest is as it was: {record(qps[0], cap, 1)!r}")
    say("Enter tries again")
    input()
    refused("PROOF_WRONG", lambda: record(qps[0], cap, 1))


def thief(args: argparse.Namespace, pd: srdma.PD) -> None:
    """Has an identity that the database accepts, and a token of another client."""
    if ask(args, pd) != (b"", b""):
        sys.exit("the proxy granted a capability to the thief")
    say("got nothing from the proxy")
    qps = to_database(args, pd).qps
    say("ready; give a token")
    stolen = Capability.parse(input())
    refused("PROOF_WRONG", lambda: record(qps[0], stolen, 0))


# All roles --------------------------------------------------------------------


class Player:
    """One of the processes. Prints its output."""

    def __init__(self, name: str, *words: object) -> None:
        self.name = name
        command = [sys.executable, __file__, *map(str, words)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def until(self, text: str) -> str:
        """Waits for its next line with this text. Returns the rest of that line."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            say(f"{self.name:>8}: {line.rstrip()}")
            if text in line:
                return line.partition(text)[2].strip()
        raise SystemExit(f"{self.name} ended before it said {text!r}")

    def tell(self, line: str = "") -> None:
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def looks(self) -> tuple[str, int]:
        """Returns its state (T: stopped) and the CPU time that it has used."""
        with open(f"/proc/{self._process.pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return fields[0], int(fields[11]) + int(fields[12])

    def end(self) -> None:
        rest, _ = self._process.communicate()
        for line in rest.splitlines():
            say(f"{self.name:>8}: {line}")
        if self._process.returncode:
            raise SystemExit(f"{self.name} failed")

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


def everything(args: argparse.Namespace) -> None:
    signal.signal(signal.SIGALRM, lambda *_: sys.exit("the example did not end in time"))
    signal.alarm(2 * WAIT)
    with ExitStack() as stack:
        nics = stack.enter_context(Embedded())
        create_ca(nics.folder, "example.org")

        def start(role: str, who: str, nic: str, *words: object) -> Player:
            prefix = nics.folder / who
            issue(nics.folder, f"spiffe://example.org/{who}", prefix)
            player = Player(who, role, "--worker", nic, "--identity", prefix, *words)
            stack.callback(player.kill)
            return player

        db, edge, desk = (str(nics.start(name).control) for name in ("db", "edge", "desk"))
        server = start("server", "server", db)
        to_server = ("--server", server.until("listening at "))
        proxy = start("proxy", "proxy", edge, *to_server)
        where = (*to_server, "--proxy", proxy.until("listening at "))
        alice = start("client", "alice", desk, *where)
        token = alice.until("token: ")
        proxy.until("grants")
        mallory = start("thief", "mallory", desk, *where)
        proxy.until("is not on the access list")
        mallory.until("ready")
        alice.until("ready")
        act(server, alice, mallory, token)
        for player in (mallory, alice, server, proxy):
            player.end()
    say("every step held")


def act(server: Player, alice: Player, mallory: Player, token: str) -> None:
    server.until("asleep")
    server.stop()
    before = server.looks()
    alice.tell()
    alice.until("Enter tries what was revoked")
    mallory.tell(token)
    mallory.until("refused")
    if before[0] != "T" or server.looks() != before:
        sys.exit("the server was not stopped throughout")
    say("the process of the server was stopped (SIGSTOP) all the time")
    server.resume()

    server.tell()
    server.until("revoked record 3")
    alice.tell()
    alice.until("Enter tries again")
    server.tell()
    server.until("revoked the whole table")
    alice.tell()
    alice.until("refused")
    server.tell()


def main() -> None:
    roles = {"server": server, "proxy": proxy, "client": client, "thief": thief}
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("role", choices=[*roles, "all"])
    parser.add_argument("--worker", help="control socket of the local worker")
    parser.add_argument("--identity", help="PREFIX of PREFIX.pem and PREFIX.key")
    parser.add_argument("--server", type=int, help="port of the server")
    parser.add_argument("--proxy", type=int, help="port of the proxy")
    args = parser.parse_args()
    if args.role == "all":
        everything(args)
        return
    with srdma.Context(args.worker) as ctx, srdma.PD(ctx) as pd:
        roles[args.role](args, pd)


if __name__ == "__main__":
    main()
