"""The rows of docs/rfc5042.md and the tags of code and tests (.ci/conformance.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = """# Title

Text with `code`, not a row.

* `R1-1` MUST, met: The worker checks
  it. Code: `csrc/a.c`. Tests: `tests/a.py`.
* `R1-2` MUST NOT, not met: It has no
  such check. Reason: it is a test.
* `A1.1` attack, met in part: An attack. Code: `csrc/a.c`. Tests: `tests/a.py`. Reason: `x` is.

## Review

* `A1` weakness: A weakness, with a comma. Tests: `tests/a.py`.
* `A2` weakness: Another one. Not stopped: [security.md](security.md), *By chance*.
"""
CODE = "/* RFC 5042 R1-1, A1.1 */\nint f(void) { return 0; }\n"
TESTS = "# RFC 5042 R1-1, A1.1; review A1\ndef test_f(): ...\n"
FILES = {
    "docs/rfc5042.md": PAGE,
    "docs/security.md": "* **By chance.** Text.\n",
    "csrc/a.c": CODE,
    "tests/a.py": TESTS,
}


def lint(root: Path, files: dict[str, str]) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    command = [sys.executable, str(ROOT / ".ci/conformance.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_tree_agrees() -> None:
    done = lint(ROOT, {})
    assert done.returncode == 0, done.stdout + done.stderr


def test_rows_and_tags_that_agree(tmp_path: Path) -> None:
    done = lint(tmp_path, FILES)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


FAULTS = [
    ("csrc/a.c", "R1-1, ", "", "R1-1: csrc/a.c has no tag RFC 5042 R1-1"),
    ("tests/a.py", "R1-1, ", "", "R1-1: tests/a.py has no tag RFC 5042 R1-1"),
    ("tests/a.py", "; review A1", "", "A1: tests/a.py has no tag review A1"),
    ("csrc/a.c", "R1-1,", "R1-1, R9-9,", "csrc/a.c: the tag RFC 5042 R9-9 names no row"),
    ("csrc/a.c", "R1-1,", "R1-11,", "csrc/a.c: the tag RFC 5042 R1-11 names no row"),
    ("tests/a.py", "review A1", "review A7", "tests/a.py: the tag review A7 names no row"),
    ("docs/rfc5042.md", "`csrc/a.c`. Tests", "`csrc/b.c`. Tests", "csrc/b.c does not exist"),
    ("docs/rfc5042.md", " Code: `csrc/a.c`.", "", "R1-1: no code"),
    ("docs/rfc5042.md", " Tests: `tests/a.py`.", "", "R1-1: no test"),
    ("docs/rfc5042.md", " Reason: it is a test.", "", "R1-2: not met without a reason"),
    ("docs/rfc5042.md", " Reason: `x` is.", "", "A1.1: met in part without a reason"),
    ("docs/rfc5042.md", "not met:", "not done:", "the state 'not done' is none of met,"),
    ("docs/rfc5042.md", "* `A1.1` attack,", "* `A1.1`", "A1.1: the state '?' is none of met,"),
    ("docs/rfc5042.md", "`R1-2`", "`R1-1`", "R1-1: two rows"),
    ("docs/rfc5042.md", "MUST", "must", "no row with a MUST"),
    ("docs/rfc5042.md", "comma. Tests: `tests/a.py`", "comma", "A1: neither a test nor a"),
    ("docs/security.md", "By chance", "By all", "A2: docs/security.md has no paragraph **By ch"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "fault"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_is_named(tmp_path: Path, name: str, old: str, new: str, fault: str) -> None:
    assert old in FILES[name]
    done = lint(tmp_path, FILES | {name: FILES[name].replace(old, new)})
    assert done.returncode == 1 and fault in done.stdout


def test_a_tag_in_code_is_no_tag(tmp_path: Path) -> None:
    """Only comments count: this file has strings that look like tags."""
    text = TESTS + 'X = "RFC 5042 R9-9"\n'
    assert lint(tmp_path, FILES | {"tests/a.py": text}).returncode == 0
