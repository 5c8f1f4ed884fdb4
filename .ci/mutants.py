"""Shows that the tests notice deliberate faults: tests/mutants/*.patch, one fault each.

    .ci/mutants.py [--share K/N] [--lanes N] [NAME...]

A patch changes one file of the product. Its first lines say what the fault is and which test
program must fail:

    Fault: an ack is sealed under the packet number of the last packet
    Killed-by: simulation/test_simulation SRDMA_SEEDS=1000

Each lane is a copy of the tree with a build of its own, without link-time optimisation, in which
one file at a time changes. A mutant is killed when its program exits with a failure. It fails this
run when the patch does not apply, when it changes more than one file, when the result does not
build, or when the program passes. The programs must pass without a mutant, too.

--share K/N takes every Nth patch from the Kth on (K from 0).
"""

import argparse
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "tests/mutants"
TREES = ROOT / "build/mutants"
LIMIT = 300  # seconds of one test program
MAKE = ["make", "--no-print-directory", "-s", "LTO=", "WHOLE=", "MAKEFLAGS=", "BUILD=build"]


class UnusableError(Exception):
    """The patch or the tree cannot be used: the message says why."""


@dataclass(frozen=True)
class Mutant:
    """One deliberate fault and the program that must notice it."""

    path: Path
    fault: str
    program: str  # below tests/c
    settings: dict[str, str]  # environment of the program

    @property
    def name(self) -> str:
        return self.path.stem


def read_mutant(path: Path) -> Mutant:
    """Reads the head of a patch; raises UnusableError."""
    text = path.read_text(encoding="utf-8")
    head = dict(
        line.split(": ", 1) for line in text.split("\n--- ", 1)[0].splitlines() if ": " in line
    )
    if "Fault" not in head or "Killed-by" not in head:
        raise UnusableError(f"{path.name}: lacks 'Fault: ...' or 'Killed-by: ...' before the diff")
    if sum(line.startswith("+++ ") for line in text.splitlines()) != 1:
        raise UnusableError(f"{path.name}: must change one file")
    program, *settings = head["Killed-by"].split()
    return Mutant(path, head["Fault"], program, dict(s.split("=", 1) for s in settings))


def run(command: list[str], cwd: Path, env: dict[str, str], limit: float) -> tuple[int, str]:
    """Exit code (124: the limit passed) and the output of a command."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return 124, str(late)
    return done.returncode, done.stdout


class Lane:
    """A copy of the tree in which one mutant at a time is built and run."""

    def __init__(self, number: int) -> None:
        self.tree = TREES / f"lane{number}"

    def copy(self) -> None:
        """Brings the copy up to date with the tree; the files that are equal keep their times."""
        listed = subprocess.run(
            ["git", "ls-files", "-z", "Makefile", "csrc", "host", "offload", "tests/c", "bench"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        names = {name for name in listed.split("\0") if name and (ROOT / name).exists()}
        for old in self.tree.rglob("*.[ch]"):
            name = str(old.relative_to(self.tree))
            if not name.startswith("build/") and name not in names:
                old.unlink()
        for name in names:
            source, copy = ROOT / name, self.tree / name
            if not copy.exists() or copy.read_bytes() != source.read_bytes():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)

    def build(self, programs: list[str]) -> None:
        """Builds test programs; raises UnusableError with the compiler's words."""
        targets = [f"build/tests/c/{program}" for program in programs]
        code, output = run([*MAKE, *targets], self.tree, {}, 1200)
        if code:
            raise UnusableError(f"does not build:\n{output[-2000:]}")

    def passes(self, program: str, settings: dict[str, str]) -> tuple[bool, str]:
        """Whether the program exits with 0, and its output."""
        jobs = {"SRDMA_JOBS": "1"}
        code, output = run([f"build/tests/c/{program}"], self.tree, jobs | settings, LIMIT)
        return code == 0, output

    def patch(self, mutant: Mutant, *options: str) -> None:
        """Applies or, with -R, takes back the patch; raises UnusableError."""
        command = ["patch", "-p1", "-s", "-f", "-F0", "-i", str(mutant.path), *options]
        code, output = run(command, self.tree, {}, 60)
        if code:
            raise UnusableError(f"the patch does not apply to this tree:\n{output}")

    def kill(self, mutant: Mutant) -> tuple[bool, str]:
        """Builds and runs the mutant: whether it was noticed, and the first words of it."""
        self.patch(mutant, "--dry-run")
        self.patch(mutant)
        try:
            self.build([mutant.program])
            passed, output = self.passes(mutant.program, mutant.settings)
        finally:
            self.patch(mutant, "-R")
        words = [
            line
            for line in output.splitlines()
            if line.strip() and not line.startswith(("[ RUN", "[       OK", "[=====", "[  PASSED"))
        ]
        return not passed, words[0].strip() if words else ""


class Run:
    """All mutants of a run, shared out to the lanes."""

    def __init__(self, mutants: list[Mutant], lanes: int) -> None:
        self.mutants, self.lanes = mutants, [Lane(n) for n in range(lanes)]
        self.todo: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
        self.failures: list[str] = []
        self.printing = threading.Lock()

    def say(self, name: str, text: str) -> None:
        with self.printing:
            print(f"  {name:<34} {text}", flush=True)

    def fail(self, name: str, text: str) -> None:
        self.failures.append(name)
        self.say(name, text)

    def work(self, lane: Lane) -> None:
        """One lane's thread: a copy, a build, then mutants until none is left."""
        try:
            lane.copy()
            lane.build(sorted({m.program for m in self.mutants}))
        except UnusableError as error:
            self.fail(lane.tree.name, str(error))
            return
        while True:
            try:
                mutant = self.todo.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            try:
                killed, words = lane.kill(mutant)
            except UnusableError as error:
                self.fail(mutant.name, f"UNUSABLE: {error}")
                continue
            took = f"{time.monotonic() - began:.0f} s"
            if killed:
                self.say(mutant.name, f"killed, {took}: {words[:90]}")
            else:
                self.fail(mutant.name, f"SURVIVED {mutant.program}, {took}: {mutant.fault}")

    def check_programs(self) -> None:
        """The programs must pass when nothing is wrong, with as few seeds as 20."""
        for program in sorted({m.program for m in self.mutants}):
            passed, output = self.lanes[0].passes(program, {"SRDMA_SEEDS": "20"})
            if not passed:
                self.fail(program, f"fails without a mutant:\n{output[-2000:]}")

    def go(self) -> int:
        """Runs all mutants; the exit code."""
        for mutant in self.mutants:
            self.todo.put(mutant)
        threads = [threading.Thread(target=self.work, args=(lane,)) for lane in self.lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = self.todo.qsize()
        if not left:
            self.check_programs()
        bad = len(self.failures) + left
        print(f"mutants: {len(self.mutants) - bad} of {len(self.mutants)} killed")
        return 1 if bad else 0


def main() -> int:
    """Exit code 0: all chosen mutants were killed; 2: the command line is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--share", default="0/1", metavar="K/N")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    share, shares = (int(n) for n in args.share.split("/"))
    paths = sorted(PATCHES.glob("*.patch"))
    unknown = set(args.names) - {path.stem for path in paths}
    if unknown or not paths:
        parser.error(f"no such patch in {PATCHES}: {', '.join(sorted(unknown)) or '*.patch'}")
    if args.names:
        paths = [path for path in paths if path.stem in args.names]
    try:
        mutants = [read_mutant(path) for path in paths[share::shares]]
    except UnusableError as error:
        print(f"  {error}")
        return 1
    return Run(mutants, min(args.lanes, len(mutants))).go()


if __name__ == "__main__":
    sys.exit(main())
