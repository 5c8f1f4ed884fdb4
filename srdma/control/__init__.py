"""Client of a worker's control socket (local-interface.md 3)."""

from srdma.control.client import TIMEOUT, Control, peer_of, socket_path, thread_path
from srdma.control.messages import (
    CapabilityRequest,
    Direction,
    Hello,
    HostKind,
    KeyRequest,
    Keys,
    Kind,
    LegInfo,
    MRRequest,
    QPInfo,
    QPRequest,
    QPState,
    Rotation,
)

__all__ = [
    "TIMEOUT",
    "CapabilityRequest",
    "Control",
    "Direction",
    "Hello",
    "HostKind",
    "KeyRequest",
    "Keys",
    "Kind",
    "LegInfo",
    "MRRequest",
    "QPInfo",
    "QPRequest",
    "QPState",
    "Rotation",
    "peer_of",
    "socket_path",
    "thread_path",
]
