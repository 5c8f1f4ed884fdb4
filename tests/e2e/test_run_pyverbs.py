"""The test-suite of pyverbs over `srdma run`, between QPs of the same worker (docs/run.md 6.2)."""

from __future__ import annotations

import fnmatch
import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import test_run
from tests.e2e.test_run import Hosts

SUITE = Path("/usr/share/doc/rdma-core/tests")  # of Debian's package rdma-core
PYTHON = "/usr/bin/python3"
RUNNER = Path(__file__).parent / "verbs" / "pyverbs_suite.py"
DOCS = Path(__file__).resolve().parents[2] / "docs/run.md"
LIMIT = 300  # seconds

pytestmark = test_run.pytestmark
run_hosts = test_run.hosts


def _has_pyverbs() -> bool:
    found = subprocess.run([PYTHON, "-c", "import pyverbs.device"], capture_output=True)
    return found.returncode == 0


def _unpack(folder: Path) -> None:
    """The package has the large files of the suite compressed."""
    for file in SUITE.iterdir():
        if file.suffix == ".gz":
            (folder / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
        else:
            shutil.copy(file, folder)


@pytest.fixture(scope="module")
def results(run_hosts: Hosts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if not SUITE.exists() or not _has_pyverbs():
        pytest.skip(f"no {SUITE} or no pyverbs: apt-get install rdma-core python3-pyverbs")
    folder, out = tmp_path_factory.mktemp("suite"), tmp_path_factory.mktemp("results") / "json"
    (folder / "tests").mkdir()
    _unpack(folder / "tests")
    process = run_hosts.start("a", [PYTHON, str(RUNNER), str(folder), str(out)])
    text, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, text
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def _reasons() -> list[str]:
    """The reasons of skipped tests that docs/run.md lists, as patterns."""
    section = DOCS.read_text().split("### 6.2 ")[1].split("\n## ")[0]
    return re.findall(r"^\| `(.+?)` \|", section, re.MULTILINE)


def test_no_test_fails(results: dict[str, Any]) -> None:
    assert not results["failed"], "\n".join(results["failed"].values())


def test_each_skipped_test_has_a_reason_of_the_documentation(results: dict[str, Any]) -> None:
    patterns = _reasons()
    assert len(patterns) > 10
    unknown = {
        reason
        for reason in results["skipped"].values()
        if not any(fnmatch.fnmatch(reason, pattern) for pattern in patterns)
    }
    assert not unknown


def test_the_suite_did_run(results: dict[str, Any]) -> None:
    assert results["run"] - len(results["skipped"]) - len(results["failed"]) >= 100
