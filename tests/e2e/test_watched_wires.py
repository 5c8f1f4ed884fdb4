"""`srdma verify-wire` watches real wires: UDP on the loopback device, and shared memory."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import srdma
from srdma.embedded import Embedded
from tests.e2e.conftest import A, B
from tests.e2e.logged import logged_connection, work
from tests.e2e.watch import ROOT, Watch
from tests.ports import free_port


def logs(folder: Path) -> list[str]:
    """Arguments; the files exist before the agents start."""
    words = []
    for name in "ab":
        (folder / f"{name}.log").touch(0o600)
        words += ["--key-log", str(folder / f"{name}.log")]
    return words


@ROOT
# RFC 5042 R5.4.1-1
def test_udp_wire_with_renewals_and_plain_traffic(pki: Path, tmp_path: Path) -> None:
    port = str(free_port())
    with Embedded() as nics:
        workers = [
            nics.launch(name, ["--wire-dev", "udp", "--wire-listen", f"127.0.0.{n}:{port}"])
            for n, name in ((1, "a"), (2, "b"))
        ]
        first = ["-i", "lo", "--port", port, *logs(tmp_path)]
        with (
            contextlib.closing(Watch(*first)) as watch,
            logged_connection(pki, tmp_path, workers) as (client, remote),
        ):
            work(client, remote)
            client.rekey()
            work(client, remote)
            code, report = watch.stop()
            assert code == 0, report
            late(port, tmp_path, client, remote)
    assert report["protected"] and report["plain"] == {} and report["lost"] == 0
    assert report["tags"] == {
        "verified": report["sth"], "repeated": 0, "wrong": 0, "unverifiable": 0,
    }  # fmt: skip
    (session,) = report["sessions"]
    assert session["identities"] == [A, B] and session["mode"] == "basic"
    assert all(epochs[-1] > 0 for epochs in session["epochs"])
    secret = next(
        line.split()[4]
        for line in (tmp_path / "a.log").read_text().splitlines()
        if line.startswith("SRDMA_SECRET")
    )
    assert secret not in json.dumps(report)


def late(port: str, folder: Path, client: srdma.Connection, remote: srdma.RemoteMR) -> None:
    """A second run begins in the middle of the session, and sees a plain packet."""
    with contextlib.closing(Watch("-i", "lo", "--port", port, *logs(folder))) as watch:
        work(client, remote)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            plain = bytes([0x0A, 0, 0xFF, 0xFF]) + bytes(24) + b"a plain WRITE" + bytes(7)
            stranger.sendto(plain, ("127.0.0.2", int(port)))
        code, report = watch.stop()
    assert code == 1 and report["plain"] == {"WRITE": 1}
    assert report["tags"]["verified"] == report["sth"] > 0


def test_shared_memory_wire(pki: Path, tmp_path: Path) -> None:
    with Embedded() as nics:
        folders = [nics.wire("wa"), nics.wire("wb")]
        taps = [f"--tap={folder}/{name}" for folder, name in zip(folders, "ab", strict=True)]
        with contextlib.closing(Watch(*taps, *logs(tmp_path))) as watch:
            workers = [
                nics.start(name, wire=wire, unprotected=True)
                for name, wire in (("a", "wa"), ("b", "wb"))
            ]
            with logged_connection(pki, tmp_path, workers, mode="pd+mem") as (client, remote):
                work(client, remote)
                client.rekey()
                work(client, remote)
            code, report = watch.stop()
    assert code == 0 and report["tags"]["verified"] == report["sth"] > 40
    assert report["sessions"][0]["mode"] == "pd+mem"


def test_level_none_is_plain(pki: Path, tmp_path: Path) -> None:
    with Embedded() as nics:
        folders = [nics.wire("wa"), nics.wire("wb")]
        taps = [f"--tap={folder}/{name}" for folder, name in zip(folders, "ab", strict=True)]
        with contextlib.closing(Watch(*taps)) as watch:
            workers = [
                nics.start(name, wire=wire, unprotected=True)
                for name, wire in (("a", "wa"), ("b", "wb"))
            ]
            with logged_connection(pki, tmp_path, workers, level="none") as (client, remote):
                work(client, remote)
            code, report = watch.stop()
    assert code == 1 and report["sth"] == 0 and report["plain"]["no STH"] > 40
