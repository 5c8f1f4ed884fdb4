"""srdma: secure reliable connections for RDMA, enforced by the NIC.

A Context is a worker; PDs are made from it, and regions, QPs, connections and listeners from a PD.
Closing an object closes everything that was made from it. Every exception is an `Error`. The
protocol is specified in docs/protocol.md, the interface to the worker in docs/local-interface.md.
"""

from srdma._engine.blocking import Message
from srdma.batch import Batch
from srdma.capability import Capability, CapabilityError, Right
from srdma.connection import Connection, Listener, connect, listen
from srdma.context import Context
from srdma.control import QPState
from srdma.errors import (
    BoundsError,
    BufferAccessError,
    ClosedError,
    DeviceError,
    Error,
    IntegrityError,
    LocalError,
    NoWorkerError,
    QueueFullError,
    RefusedError,
    RemoteError,
    Timeout,
    WCError,
    WorkerGone,
)
from srdma.identity import Credentials
from srdma.mr import MR, Access, RemoteMR
from srdma.options import Options
from srdma.pd import PD
from srdma.qp import SecureQP
from srdma.rendezvous import Rendezvous, rendezvous
from srdma.wc import WC, WCFlag, WCOpcode, WCStatus
from srdma.wr import SGE, RecvWR, SendFlag, SendWR, WROpcode

__all__ = [
    "MR",
    "PD",
    "SGE",
    "WC",
    "Access",
    "Batch",
    "BoundsError",
    "BufferAccessError",
    "Capability",
    "CapabilityError",
    "ClosedError",
    "Connection",
    "Context",
    "Credentials",
    "DeviceError",
    "Error",
    "IntegrityError",
    "Listener",
    "LocalError",
    "Message",
    "NoWorkerError",
    "Options",
    "QPState",
    "QueueFullError",
    "RecvWR",
    "RefusedError",
    "RemoteError",
    "RemoteMR",
    "Rendezvous",
    "Right",
    "SecureQP",
    "SendFlag",
    "SendWR",
    "Timeout",
    "WCError",
    "WCFlag",
    "WCOpcode",
    "WCStatus",
    "WROpcode",
    "WorkerGone",
    "connect",
    "listen",
    "rendezvous",
]
