"""TCP connections to a peer's agent."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

from srdma.agent.names import Addresses, LookUp, looked_up
from srdma.keyex.fields import ExchangeError

IP_BIND_ADDRESS_NO_PORT = 24  # Linux: connect() chooses the port, so that many can be in use
BOUND = 1.0  # seconds of an attempt from the address of the port: it may have no way back
# Codes of channel errors besides those of protocol.md 8.1: no such host; no connection.
NAME, UNREACHABLE = "name", "unreachable"


async def dial(
    host: str, port: int, source: str = "", look_up: LookUp = looked_up
) -> socket.socket:
    """Connect to the first address of the host that answers. Raises ExchangeError.

    source: the IP address of this end, if the peer answers there soon: it finds this agent's port
    at the address from which the connection comes (protocol.md 8.7).
    """
    where = f"{host}:{port}"
    if not 0 < port < 1 << 16:
        raise ExchangeError("config", f"{where}: a TCP port is a number from 1 to 65535")
    try:
        found = await _addresses(host, port, look_up)
    except OSError as error:
        raise ExchangeError(NAME, f"{where}: no such host: {error.strerror}") from None
    except ValueError as error:  # the name has no encoding
        raise ExchangeError(NAME, f"{where}: no such host: {error}") from None
    loop = asyncio.get_running_loop()
    failed = ExchangeError(UNREACHABLE, f"{where} has no address")
    for family, kind, protocol, _, address in found:
        for own in _sources(source, family):
            sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
            try:
                if own:
                    sock.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
                    sock.bind((own, 0))
                async with asyncio.timeout(BOUND if own else None):
                    await loop.sock_connect(sock, address)
                return sock
            except ConnectionRefusedError:
                sock.close()
                failed = ExchangeError(UNREACHABLE, f"no listener at {where}")
            except OSError as error:  # or TimeoutError of BOUND
                sock.close()
                text = f"cannot reach {where}: {error.strerror or error}"
                failed = ExchangeError(UNREACHABLE, text)
            except BaseException:
                sock.close()
                raise
    raise failed


def _sources(source: str, family: int) -> tuple[str, ...]:
    """Addresses of this end, in the order in which they are tried; "": the system chooses it."""
    if not source or ipaddress.ip_address(source).is_unspecified:
        return ("",)
    return (source, "") if (":" in source) == (family == socket.AF_INET6) else ("",)


async def _addresses(host: str, port: int, look_up: LookUp) -> Addresses:
    """As getaddrinfo(), which uses a thread, and a heap of its own, unless the host is a number."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return await look_up(host, port)
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
