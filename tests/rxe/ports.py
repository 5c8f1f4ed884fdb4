"""Network ports of a virtual machine, found by the MACs that QEMU gave them, and rxe devices."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from srdma.demo import rxe

SCRIPT = Path(__file__).with_name("ports.sh")


@dataclass(frozen=True)
class Port:
    """A network port. addresses: with prefix length; device: name of the rxe device on it."""

    name: str
    mac: str
    addresses: tuple[str, ...]
    device: str = "-"


def table(ports: Iterable[Port]) -> str:
    """The input of ports.sh."""
    return "".join(f"{' '.join([p.name, p.mac, p.device, *p.addresses])}\n" for p in ports)


def configure(ports: Iterable[Port]) -> None:
    """Configures ports of this machine, with the modules that they need. Needs root."""
    rxe.load()
    subprocess.run(["modprobe", "virtio_net"], check=True)
    subprocess.run(["sh", "-e", SCRIPT], input=table(ports), text=True, check=True)
