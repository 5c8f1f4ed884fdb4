"""Runs the test-suite of pyverbs, and writes its results as JSON.

usage: python3 pyverbs_suite.py FOLDER FILE

FOLDER has the suite in a folder `tests`. Started by `srdma run`, with the system's Python: pyverbs
is a package of Debian, not of PyPI.
"""

from __future__ import annotations

import importlib
import json
import sys
import unittest
from pathlib import Path


def _results(folder: Path) -> dict[str, object]:
    sys.path[:0] = [str(folder), str(folder / "tests")]
    sys.argv[1:] = ["--dev", "srdma0"]
    importlib.import_module("args_parser").parser.parse_args()
    suite = unittest.TestLoader().loadTestsFromModule(importlib.import_module("tests"))
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    return {
        "run": result.testsRun,
        "failed": {test.id(): text for test, text in result.failures + result.errors},
        "skipped": {test.id(): reason for test, reason in result.skipped},
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(_results(Path(sys.argv[1]))))
