"""`srdma doctor`: checks what this machine provides, and names a remedy for what is missing."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import ssl
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from importlib import metadata, util
from pathlib import Path
from typing import Annotated

import typer

from srdma._engine import host_device
from srdma._engine.host_device import INFINIBAND
from srdma.cli.doctor_host import agents
from srdma.cli.doctor_nic import nic, running_workers
from srdma.cli.finding import SYS, Finding, read
from srdma.cli.output import console, print_json
from srdma.embedded import find_worker
from srdma.errors import Error

PACKAGES = ("cryptography", "pyOpenSSL", "typer", "rich", "cbor2", "pyroute2")
WANTED_MEMLOCK = 64 << 20
WANTED_MTU = 4200  # of a network device, for RDMA packets of 4,096 bytes
PROC = Path("/proc")

MARKS = {"ok": "[green]ok     [/]", "note": "[yellow]note   [/]", "missing": "[red]missing[/]"}


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check what the agent of this policy needs."),
    ] = None,
    proxy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check what the proxy of this file needs.")
    ] = None,
) -> int:
    """Check what this machine supports.

    It checks devices, rxe, workers, limits, AES, OpenSSL and packages; with the file of an agent or
    a proxy, also what that needs. The exit code is 0 if the embedded NIC, and the process of the
    file, can run here.
    """
    findings = list(examine(config, proxy))
    if json:
        print_json([asdict(finding) for finding in findings])
    else:
        _print(findings)
    return any(finding.state == "missing" for finding in findings)


def _print(findings: Iterable[Finding]) -> None:
    out = console()
    for finding in findings:
        out.print(f"{MARKS[finding.state]} {finding.name:<16} ", end="")
        out.print(finding.detail, markup=False)
        if finding.remedy:
            out.print(f"{'':25}-> {finding.remedy}", markup=False)


def examine(config: Path | None, proxy: Path | None) -> Iterator[Finding]:
    """All findings; software and kernel first, then devices that need them."""
    yield from python_packages()
    yield native()
    yield openssl()
    yield aes(read(PROC / "cpuinfo"), platform.machine())
    yield worker_program()
    yield running_workers(bool(proxy or os.environ.get("SRDMA_AGENT")))
    yield from agents(proxy)
    if config:
        yield from nic(config)
    yield memfd()
    yield process_vm(read(PROC / "sys/kernel/yama/ptrace_scope"))
    yield memlock(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0], read(PROC / "self/status"))
    yield pyverbs()
    yield devices(INFINIBAND)
    yield from mtu(SYS / "class/net")
    yield rxe(SYS / "module/rdma_rxe", Path("/lib/modules"), os.uname().release)


# Software ----------------------------------------------------------------------


def python_packages() -> Iterator[Finding]:
    present = {}
    for package in PACKAGES:
        try:
            present[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield Finding(package, "missing", "not installed", f"pip install {package}")
    listed = ", ".join(f"{name} {version}" for name, version in present.items())
    yield Finding("python", "ok", f"{platform.python_version()} with {listed}")


def native() -> Finding:
    try:
        from srdma.native.suites import selftest, suites
    except ImportError as error:
        return Finding("native", "missing", f"srdma.native: {error}", "make native")
    names = [row["name"] for row in suites()]
    broken = [name for name in names if not selftest(name)]
    if broken:
        return Finding(
            "suites", "missing", f"self-test failed: {', '.join(broken)}", "report this as a bug"
        )
    return Finding("suites", "ok", ", ".join(names))


def openssl() -> Finding:
    from OpenSSL import SSL

    tls = SSL.OpenSSL_version(SSL.OPENSSL_VERSION).decode()
    detail = f"workers {ssl.OPENSSL_VERSION}; key exchange {tls}"
    if int(tls.split()[1].split(".")[0]) > 3 or tls.split()[1] >= "3.5":
        return Finding("openssl", "ok", f"{detail} (X25519MLKEM768)")
    return Finding(
        "openssl",
        "note",
        f"{detail}: without X25519MLKEM768, so X25519 is used",
        "pip install -U pyOpenSSL",
    )


def worker_program() -> Finding:
    try:
        path = find_worker()
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10)
    except (Error, OSError, subprocess.TimeoutExpired) as error:
        return Finding("srdma-offload", "missing", str(error), "make offload")
    if done.returncode:
        return Finding("srdma-offload", "missing", f"{path}: {done.stderr.strip()}", "make offload")
    return Finding("srdma-offload", "ok", f"{path}: {done.stdout.strip()}")


# Processor, kernel, limits -----------------------------------------------------


def aes(cpuinfo: str, machine: str) -> Finding:
    """Whether the CPU has instructions for AES and carry-less multiplication."""
    line = next((x for x in cpuinfo.splitlines() if x.startswith(("flags", "Features"))), ":")
    flags = set(line.split(":", 1)[1].split())
    wanted = {"aes", "pmull"} if machine == "aarch64" else {"aes", "pclmulqdq"}
    wide = sorted(
        flags & {"vaes", "vpclmulqdq", "avx512f", "avx2", "sve", "sha3", "sha_ni", "sha2"}
    )
    if wanted <= flags:
        return Finding("aes", "ok", f"in hardware: {', '.join(sorted(wanted) + wide)}")
    return Finding(
        "aes", "note", f"{machine} lacks {', '.join(sorted(wanted - flags))}: AES is slow here",
        "use suite chacha20-poly1305",
    )  # fmt: skip


def memfd() -> Finding:
    """Whether memfds can be sealed (Linux 5.1); the embedded NIC needs it."""
    import fcntl

    seal_shrink, seal_future_write = 2, 16  # linux/fcntl.h
    try:
        fd = os.memfd_create("srdma-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        return Finding(
            "memfd", "missing", f"memfd_create: {error.strerror}", "use Linux 5.1 or newer"
        )
    try:
        os.ftruncate(fd, 4096)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seal_shrink | seal_future_write)
    except OSError as error:
        return Finding("memfd", "missing", f"sealing: {error.strerror}", "use Linux 5.1 or newer")
    finally:
        os.close(fd)
    return Finding("memfd", "ok", "sealed shared memory works")


def process_vm(ptrace_scope: str) -> Finding:
    """Whether workers may access memory that pd.alloc() did not allocate (process_vm_readv)."""
    probe = ctypes.create_string_buffer(b"here")
    vector = (ctypes.c_size_t * 2)(ctypes.addressof(probe), 4)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.process_vm_readv(os.getpid(), vector, 1, vector, 1, 0) != 4:
        error = os.strerror(ctypes.get_errno())
        return Finding("process_vm", "note", f"process_vm_readv: {error}", "use pd.alloc()")
    scope = ptrace_scope.strip() or "absent"
    if scope in ("2", "3") and os.geteuid() != 0:
        return Finding(
            "process_vm", "note",
            f"Yama ptrace_scope {scope}: workers access only memory of pd.alloc()",
            "use pd.alloc(), or sysctl kernel.yama.ptrace_scope=1",
        )  # fmt: skip
    return Finding("process_vm", "ok", f"works (Yama ptrace_scope {scope})")


def memlock(limit: int, status: str) -> Finding:
    """The limit of memory that verbs can register; the embedded NIC registers none."""
    line = next((x for x in status.splitlines() if x.startswith("CapEff:")), "CapEff: 0")
    if int(line.split()[1], 16) >> 14 & 1:
        return Finding("memlock", "ok", "no limit (CAP_IPC_LOCK)")
    if limit == resource.RLIM_INFINITY or limit >= WANTED_MEMLOCK:
        shown = "no limit" if limit == resource.RLIM_INFINITY else f"{limit >> 20} MiB"
        return Finding("memlock", "ok", shown)
    return Finding(
        "memlock", "note", f"{limit >> 10} KiB: verbs cannot register more memory",
        "ulimit -l unlimited, or memlock in /etc/security/limits.conf",
    )  # fmt: skip


# RDMA --------------------------------------------------------------------------


def pyverbs() -> Finding:
    if util.find_spec("pyverbs") is None:
        return Finding(
            "pyverbs", "note", "not installed: hosts cannot use RDMA devices",
            "apt-get install python3-pyverbs, and a venv with --system-site-packages",
        )  # fmt: skip
    return Finding("pyverbs", "ok", "installed")


def devices(folder: Path) -> Finding:
    """RDMA devices and the state of their ports."""
    found, down = [], []
    for device in sorted(folder.glob("*")) if folder.is_dir() else []:
        states = [read(port / "state").strip() for port in sorted((device / "ports").glob("*"))]
        found.append(f"{device.name} ({', '.join(states) or 'no port'})")
        if not any(state.endswith("ACTIVE") for state in states):
            down.append(device.name)
    if down:
        return Finding(
            "rdma devices", "note", f"{', '.join(found)}: no port of {', '.join(down)} is active",
            "ip link set NETDEV up; check cable and switch",
        )  # fmt: skip
    if found:
        return Finding("rdma devices", "ok", ", ".join(found))
    return Finding(
        "rdma devices", "note", "none", "use the embedded NIC, or rxe (see the next line)"
    )


def mtu(net: Path) -> Iterator[Finding]:
    """The MTU of the network devices with RDMA. net: /sys/class/net."""
    netdevs = {gid.netdev for device in host_device.devices() for gid in host_device.gids(device)}
    known = {name: int(read(net / name / "mtu") or 0) for name in sorted(netdevs)}
    shown = ", ".join(f"{name} {size}" for name, size in known.items())
    if known and min(known.values()) < WANTED_MTU:
        yield Finding(
            "rdma mtu", "note", f"{shown}: packets of RDMA carry less than 4,096 bytes",
            f"ip link set NETDEV mtu {WANTED_MTU}, also at representors, bridges and the peers",
        )  # fmt: skip
    elif known:
        yield Finding("rdma mtu", "ok", shown)


def rxe(loaded: Path, modules: Path, release: str) -> Finding:
    """SoftRoCE: loaded, loadable, or available in the VM only."""
    if loaded.exists():
        return Finding("rxe", "ok", "rdma_rxe is loaded")
    if any((modules / release).glob("kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*")):
        return Finding(
            "rxe", "note", "rdma_rxe is installed but not loaded", "modprobe rdma_rxe (root)"
        )
    return Finding(
        "rxe",
        "note",
        f"kernel {release} has no module rdma_rxe",
        "make demo-rxe runs the demo in a VM",
    )
