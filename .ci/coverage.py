"""Coverage of csrc/ by the C tests: `.ci/coverage.py BUILD`, after a build with --coverage has run.

Prints a row per folder, then what was not reached. Exit code 1 if fewer than 95 % of the lines of
csrc/ were executed, or if a branch of a file of STRICT was not taken.

A branch that no input can take is marked by a comment `unreachable: REASON` on its line or the line
above it. The failing side of an assert() is not counted: a caller in the product cannot cause it.
A mark whose branches were all taken is an error, so that marks do not outlive their reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES = 95.0  # per cent of the lines of csrc/
# Parse, verify and key derivation: every branch.
STRICT = (
    "csrc/crypto/cmac.c",
    "csrc/crypto/kdf.c",
    "csrc/session/open.c",
    "csrc/session/window.c",
    "csrc/wire/desc.c",
    "csrc/wire/wire.c",
)
MARK, ASSERT = "unreachable:", "assert("


@dataclass
class Source:
    """Executions of each line of a file, and of each branch of a line."""

    lines: Counter[int] = field(default_factory=Counter)
    branches: defaultdict[int, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, lines: list[dict]) -> None:
        """Adds what one object file says: a header is part of several."""
        for line in lines:
            number = line["line_number"]
            self.lines[number] += line["count"]
            for at, branch in enumerate(line["branches"]):
                self.branches[number][at] += branch["count"]

    @property
    def missed(self) -> list[int]:
        return sorted(number for number, count in self.lines.items() if not count)

    @property
    def reached(self) -> int:
        return len(self.lines) - len(self.missed)

    def judge(self, name: str) -> tuple[int, int, list[str]]:
        """Branches that count, those of them that were taken, and faults."""
        text = ["", *(ROOT / name).read_text(encoding="utf-8").splitlines()]
        total = taken = 0
        faults = []
        for number, counts in sorted(self.branches.items()):
            here = sum(1 for count in counts.values() if count)
            marked = MARK in text[number] or MARK in text[number - 1]
            if ASSERT in text[number]:
                continue
            if marked and here == len(counts):
                faults.append(f"{name}:{number}: is marked as {MARK} but was taken")
            if marked:
                continue
            total, taken = total + len(counts), taken + here
            if here < len(counts):
                missed = ", ".join(str(at) for at, count in sorted(counts.items()) if not count)
                faults.append(f"{name}:{number}: branch {missed} not taken: {text[number].strip()}")
        return total, taken, faults


def read(build: Path) -> dict[str, Source]:
    """The sources of csrc/ from the notes and counts of all object files."""
    sources: dict[str, Source] = defaultdict(Source)
    notes = sorted((build / "csrc").rglob("*.gcno"))
    if not notes:
        sys.exit(f"coverage: no *.gcno below {build}/csrc: build with --coverage (make coverage)")
    gcov = subprocess.run(
        ["gcov", "--json-format", "--stdout", "--branch-probabilities", *map(str, notes)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if gcov.returncode:
        sys.exit(f"coverage: gcov failed:\n{gcov.stderr}")
    for document in gcov.stdout.splitlines():
        for file in json.loads(document)["files"]:
            if file["file"].startswith("csrc/"):
                sources[file["file"]].add(file["lines"])
    return sources


def folder(name: str) -> str:
    return name.rsplit("/", 1)[0]


def percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def show(sources: dict[str, Source]) -> float:
    """Prints the table; the share of lines that were executed, in per cent."""
    total: Counter[str] = Counter()
    reached: Counter[str] = Counter()
    for name, source in sources.items():
        for key in (folder(name), "csrc"):
            total[key] += len(source.lines)
            reached[key] += source.reached
    for key in sorted(set(total) - {"csrc"}) + ["csrc"]:
        print(
            f"  {key:<24}{reached[key]:>6} of {total[key]:>5} lines "
            f"{percent(reached[key], total[key]):>6.1f} %"
        )
    return percent(reached["csrc"], total["csrc"])


def ranges(numbers: list[int]) -> str:
    """Line numbers as text: 3-5, 9."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def main() -> int:
    """Exit code 1: too few lines or branches."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--missed", action="store_true", help="also print the lines not executed")
    parser.add_argument("build", type=Path)
    args = parser.parse_args()
    sources = read(args.build)
    share = show(sources)
    if args.missed:
        for name, source in sorted(sources.items()):
            if source.missed:
                print(f"  {name}: {ranges(source.missed)}")
    faults = [] if share >= LINES else [f"{share:.1f} % of the lines of csrc/, less than {LINES} %"]
    for name in STRICT:
        total, taken, missing = sources[name].judge(name)
        print(f"  {name:<24}{taken:>6} of {total:>5} branches {percent(taken, total):>6.1f} %")
        faults += missing
    for fault in faults:
        print(f"  {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
