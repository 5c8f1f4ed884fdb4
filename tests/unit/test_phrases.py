"""The list of riddling phrases that `make lint` refuses (.ci/phrases.py)."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/phrases.py"


def lint(tmp_path: Path, name: str, text: str) -> subprocess.CompletedProcess[str]:
    """Runs the linter on a file with this text."""
    path = tmp_path / name
    path.write_text(text)
    command = [sys.executable, str(SCRIPT), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.c", "int x;\n/* Who asks twice\n * asked in vain. */\n", 2),
        ("a.h", "int x; /* time. What came before it is gone */\n", 1),
        ("a.py", '"""Fine.\n\nWho waits, sleeps.\n"""\n', 3),
        ("a.py", "x = 1\n# Nothing here.\n# One that has been asked in vain.\n", 2),
        ("a.md", "# Title\n\nA sentence. What was lost is sent again.\n", 3),
        ("a.md", "| a | b |\n|---|---|\n| c | Whoever sends it |\n", 3),
    ],
)
def test_riddle_is_refused_with_its_line(tmp_path: Path, name: str, text: str, line: int) -> None:
    done = lint(tmp_path, name, text)
    assert done.returncode == 1
    assert f"{name}:{line}:" in done.stdout


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.c", '/* The sender retransmits lost packets. */\nchar *s = "What";\n'),
        ("a.py", '"""Reads one packet."""\nx = "Who goes there"\n'),
        ("a.md", "What is a leg? A connection.\n\n```\nWho knows\n```\n"),
    ],
)
def test_plain_text_is_accepted(tmp_path: Path, name: str, text: str) -> None:
    done = lint(tmp_path, name, text)
    assert (done.returncode, done.stdout) == (0, "")
