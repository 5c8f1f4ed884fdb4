"""Client of a worker's control socket (local-interface.md 3)."""

from srdma.control.client import TIMEOUT, Control
from srdma.control.messages import (
    CapabilityRequest,
    Direction,
    Hello,
    HostKind,
    Kept,
    KeptQP,
    KeyRequest,
    Keys,
    Kind,
    LegInfo,
    Limits,
    MRRequest,
    Proof,
    QPInfo,
    QPRequest,
    QPState,
    Rotation,
)
from srdma.control.sockets import peer_of, socket_path, thread_path

__all__ = [
    "TIMEOUT",
    "CapabilityRequest",
    "Control",
    "Direction",
    "Hello",
    "HostKind",
    "Kept",
    "KeptQP",
    "KeyRequest",
    "Keys",
    "Kind",
    "LegInfo",
    "Limits",
    "MRRequest",
    "Proof",
    "QPInfo",
    "QPRequest",
    "QPState",
    "Rotation",
    "peer_of",
    "socket_path",
    "thread_path",
]
