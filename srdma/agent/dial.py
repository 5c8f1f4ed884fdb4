"""TCP connections to a peer's agent."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from typing import Any

from srdma.keyex.fields import ExchangeError

# Codes of channel errors besides those of protocol.md 8.1: no such host; no connection.
NAME, UNREACHABLE = "name", "unreachable"


async def dial(host: str, port: int) -> socket.socket:
    """Connect to the first address of the host that answers. Raises ExchangeError."""
    where = f"{host}:{port}"
    if not 0 < port < 1 << 16:
        raise ExchangeError("config", f"{where}: a TCP port is a number from 1 to 65535")
    try:
        found = await _addresses(host, port)
    except OSError as error:
        raise ExchangeError(NAME, f"{where}: no such host: {error.strerror}") from None
    except ValueError as error:  # the name has no encoding
        raise ExchangeError(NAME, f"{where}: no such host: {error}") from None
    loop = asyncio.get_running_loop()
    failed = ExchangeError(UNREACHABLE, f"{where} has no address")
    for family, kind, protocol, _, address in found:
        sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
        try:
            await loop.sock_connect(sock, address)
            return sock
        except ConnectionRefusedError:
            sock.close()
            failed = ExchangeError(UNREACHABLE, f"no listener at {where}")
        except OSError as error:
            sock.close()
            failed = ExchangeError(UNREACHABLE, f"cannot reach {where}: {error.strerror or error}")
        except BaseException:
            sock.close()
            raise
    raise failed


async def _addresses(host: str, port: int) -> list[tuple[Any, ...]]:
    """As getaddrinfo(), which uses a thread, and a heap of its own, unless the host is a number."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
