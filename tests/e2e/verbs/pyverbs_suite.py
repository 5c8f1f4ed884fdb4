"""Runs the test-suite of pyverbs, and writes its results as JSON.

usage: python3 pyverbs_suite.py FOLDER FILE

FOLDER has the suite in a folder `tests`. Started by `srdma run`, with the system's Python: pyverbs
is a package of Debian, not of PyPI.
"""

from __future__ import annotations

import importlib
import ipaddress
import json
import sys
import unittest
from pathlib import Path
from typing import Any

DEVICE = "srdma0"


def _address() -> str:
    """The GID of the worker as an IP address."""
    with importlib.import_module("pyverbs.device").Context(name=DEVICE) as context:
        gid = ipaddress.IPv6Address(context.query_gid(1, 0).gid)
    return str(gid.ipv4_mapped or gid)


def _give_address(address: str) -> None:
    """Tests of RDMA-CM look in sysfs for the network interface of the device, and take its address.
    srdma0 has no such interface."""

    def get_ip_mac(test: Any, dev: str, port: int, index: int) -> None:
        test.args.append([dev, port, index, address, None])

    importlib.import_module("tests.base").RDMATestCase._get_ip_mac = get_ip_mac


def _results(folder: Path) -> dict[str, object]:
    sys.path[:0] = [str(folder), str(folder / "tests")]
    sys.argv[1:] = ["--dev", DEVICE]
    importlib.import_module("args_parser").parser.parse_args()
    _give_address(_address())
    suite = unittest.TestLoader().loadTestsFromModule(importlib.import_module("tests"))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return {
        "run": result.testsRun,
        "failed": {test.id(): text for test, text in result.failures + result.errors},
        "skipped": {test.id(): reason for test, reason in result.skipped},
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(_results(Path(sys.argv[1]))))
