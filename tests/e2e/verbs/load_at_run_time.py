"""Loads libibverbs at run time, as NCCL does, and shows what it found as JSON.

`libibverbs.so` first, then `libibverbs.so.1`; functions by name and version. `srdma run` starts it.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

VERSIONS = {
    "ibv_get_device_list": b"IBVERBS_1.1",
    "ibv_free_device_list": b"IBVERBS_1.1",
    "ibv_get_device_name": b"IBVERBS_1.1",
    "ibv_open_device": b"IBVERBS_1.1",
    "ibv_close_device": b"IBVERBS_1.1",
    "ibv_reg_mr_iova2": b"IBVERBS_1.8",
    "ibv_reg_dmabuf_mr": b"IBVERBS_1.12",
}


def _load() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libibverbs.so")
    except OSError:
        return ctypes.CDLL("libibverbs.so.1")


def _function(library: ctypes.CDLL, name: str, result: Any = ctypes.c_void_p) -> Callable[..., Any]:
    dlvsym = ctypes.CDLL(None).dlvsym
    dlvsym.restype = ctypes.c_void_p
    dlvsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)
    address = dlvsym(library._handle, name.encode(), VERSIONS[name])
    if not address:
        raise SystemExit(f"no {name} of {VERSIONS[name]!r}")
    return ctypes.CFUNCTYPE(result, ctypes.c_void_p)(address)


def _names(library: ctypes.CDLL) -> list[str]:
    """The devices, each of which is opened and closed."""
    found = {name: _function(library, name) for name in VERSIONS}
    get_name = _function(library, "ibv_get_device_name", ctypes.c_char_p)
    devices = found["ibv_get_device_list"](None)
    names, at = [], devices
    while device := ctypes.c_void_p.from_address(at).value:
        names.append(get_name(device).decode())
        context = found["ibv_open_device"](device)
        assert context, "it does not open"
        assert found["ibv_close_device"](context) in (0, None)
        at += ctypes.sizeof(ctypes.c_void_p)
    found["ibv_free_device_list"](devices)
    return names


def _mapped() -> list[str]:
    """The files of libibverbs in this process."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split()[-1] for line in lines if "libibverbs" in line})


if __name__ == "__main__":
    print(json.dumps({"devices": _names(_load()), "libraries": _mapped()}))
