"""The wheel of srdma carries the worker: `pip install .` alone gives a working `srdma demo`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WAIT = 300


@pytest.mark.slow
def test_demo_from_the_wheel(tmp_path: Path) -> None:
    # Setuptools would take what earlier versions of this tree left there.
    for stale in (ROOT / "build").glob("lib.*"):
        shutil.rmtree(stale)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*pip, "-w", str(tmp_path), str(ROOT)], capture_output=True, text=True, timeout=WAIT
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("srdma-*.whl")
    place = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    worker = place / "srdma/bin/srdma-offload"
    worker.chmod(0o755)  # pip does it, zipfile does not
    assert not (place / "tests").exists() and not (place / "srdma_bench").exists()
    env = {k: v for k, v in os.environ.items() if k not in ("SRDMA_OFFLOAD", "PATH")}
    env |= {"PYTHONPATH": str(place), "PATH": "/nowhere"}
    where = [sys.executable, "-c", "import srdma.embedded as e; print(e.find_worker())"]
    found = subprocess.run(where, capture_output=True, text=True, cwd=tmp_path, env=env, check=True)
    assert found.stdout.strip() == str(worker)
    demo = [sys.executable, "-m", "srdma", "demo"]
    shown = subprocess.run(
        demo, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=WAIT
    )
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "10 of 10 checks passed" in shown.stdout
