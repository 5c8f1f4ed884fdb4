"""The example of docs/capabilities.md runs, and the page shows its output."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PROGRAM = ROOT / "docs" / "examples" / "capability_proxy.py"
PAGE = ROOT / "docs" / "capabilities.md"
CHANGES = re.compile(r"\d{4,}|0x[0-9a-f]+|srdma-cap1:\S+")  # ports, keys, addresses, tokens


def test_every_step_holds():
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, PROGRAM, "all"],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] == "every step held"
    said = {CHANGES.sub("...", line.strip()) for line in done.stdout.splitlines()}
    shown = PAGE.read_text().partition("<!-- output:begin -->")[2].partition("<!-- output:end -->")
    lines = [CHANGES.sub("...", line.strip()) for line in shown[0].splitlines()]
    lines = [line for line in lines if line and line != "```"]
    assert len(lines) > 15
    assert [line for line in lines if line not in said] == []


def test_page_quotes_the_program():
    program = {line.strip() for line in PROGRAM.read_text().splitlines()}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    quoted = [line.strip() for block in blocks for line in block.splitlines()]
    assert len(quoted) > 5
    assert [line for line in quoted if line not in program] == []
