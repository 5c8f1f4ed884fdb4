"""Shows that the C tests notice deliberate faults: tests/mutants/*.patch, one fault each.

    .ci/mutants.py [--check] [--share K/N] [--lanes N] [NAME...]

A patch changes one file of the product. Its first lines state the fault and the test program that
must fail, with environment variables if it needs them:

    Fault: an ACK is sealed under the packet number of the next packet
    Killed-by: session/test_session

Mutants run in parallel lanes. A lane is a copy of the tree with its own build, without link-time
optimisation, and has one mutant at a time. A mutant is killed if its program exits with a failure
or does not end. The run fails if a patch does not apply, changes more than one file, does not build
or survives, or if a program fails without a mutant.

--share K/N takes every Nth patch from the Kth on (K from 0). --check only checks that each patch
applies to the tree: `make lint` does, since a run of a share does not show a patch of another one.
"""

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PATCHES = ROOT / "tests/mutants"
TREES = ROOT / "build/mutants"
SOURCES = ["include", "csrc", "host", "offload", "control", "verbs", "rdmacm", "tests/c", "bench"]
COPIED = ["Makefile", *SOURCES]
LIMIT = 60  # seconds of one test program
MAKE = ["make", "--no-print-directory", "-s", "LTO=", "WHOLE="]
# The environment of a `make mutants` would change the builds of the lanes: override it.
ALONE = {"MAKELEVEL": "1", "MAKEFLAGS": "", "MFLAGS": "", "SRDMA_JOBS": "1"}
CHECK = {"SRDMA_SEEDS": "20"}  # the simulation without a mutant: short


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
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | ALONE | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            output = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # the program and its children
            return 124, f"did not end within {limit:.0f} s"
    return process.returncode, output


def apply(mutant: Mutant, tree: Path, *options: str) -> None:
    """Applies the patch to a tree or, with -R, takes it back; raises UnusableError."""
    command = ["patch", "-p1", "-s", "-f", "-F0", "-i", str(mutant.path), *options]
    code, output = run(command, tree, {}, 60)
    if code:
        raise UnusableError(f"the patch does not apply to this tree:\n{output}")


class Lane:
    """A copy of the tree in which one mutant at a time is built and run."""

    def __init__(self, number: int) -> None:
        self.tree = TREES / f"lane{number}"

    def copy(self) -> None:
        """Updates the copy from the tree. Equal files are not written, so that make skips them."""
        listed = subprocess.run(
            ["git", "ls-files", "-zco", "--exclude-standard", *COPIED],
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
        """Builds test programs; raises UnusableError with the compiler's output."""
        targets = [f"build/tests/c/{program}" for program in programs]
        code, output = run([*MAKE, *targets], self.tree, {}, 1200)
        if code:
            raise UnusableError(f"does not build:\n{output[-2000:]}")

    def passes(self, program: str, settings: dict[str, str]) -> tuple[bool, str]:
        """Builds and runs a program: whether it exits with 0, and its output."""
        self.build([program])
        code, output = run([f"build/tests/c/{program}"], self.tree, settings, LIMIT)
        return code == 0, output

    def kill(self, mutant: Mutant) -> tuple[bool, str]:
        """Builds and runs the mutant. Returns whether the program failed, and its first failure."""
        apply(mutant, self.tree, "--dry-run")
        apply(mutant, self.tree)
        try:
            passed, output = self.passes(mutant.program, mutant.settings)
        finally:
            apply(mutant, self.tree, "-R")
        return not passed, first_failure(output)


def first_failure(output: str) -> str:
    """The first line of a cmocka program's output that does not report a passed test."""
    passed = ("[ RUN", "[       OK", "[=====", "[  PASSED")
    lines = [line.strip() for line in output.splitlines() if not line.startswith(passed)]
    return next((line for line in lines if line), "")


class Run:
    """All mutants of a run, distributed to the lanes."""

    def __init__(self, mutants: list[Mutant], lanes: int) -> None:
        self.mutants = mutants
        self.programs = sorted({mutant.program for mutant in mutants})
        self.lanes = [Lane(number) for number in range(lanes)]
        self.todo: queue.SimpleQueue[Mutant | str] = queue.SimpleQueue()
        self.printing = threading.Lock()
        self.killed = self.failures = 0

    def say(self, name: str, text: str, *, failed: bool = False) -> None:
        with self.printing:
            self.failures += failed
            print(f"  {name:<34} {text}", flush=True)

    def try_mutant(self, lane: Lane, mutant: Mutant) -> None:
        began = time.monotonic()
        killed, failure = lane.kill(mutant)
        took = f"{time.monotonic() - began:.0f} s"
        if killed:
            self.killed += 1
            self.say(mutant.name, f"killed, {took}: {failure[:90]}")
        else:
            self.say(mutant.name, f"SURVIVED {mutant.program}, {took}: {mutant.fault}", failed=True)

    def check_program(self, lane: Lane, program: str) -> None:
        """A program that fails without a mutant would kill every mutant."""
        passed, output = lane.passes(program, CHECK)
        if not passed:
            self.say(program, f"FAILS WITHOUT A MUTANT:\n{output[-2000:]}", failed=True)

    def work(self, lane: Lane) -> None:
        """One lane's thread: a copy, a build, then programs and mutants until none is left."""
        try:
            lane.copy()
            lane.build(self.programs)
        except UnusableError as error:
            self.say(lane.tree.name, str(error), failed=True)
            return
        while True:
            try:
                task = self.todo.get_nowait()
            except queue.Empty:
                return
            try:
                if isinstance(task, Mutant):
                    self.try_mutant(lane, task)
                else:
                    self.check_program(lane, task)
            except UnusableError as error:
                name = task.name if isinstance(task, Mutant) else task
                self.say(name, f"UNUSABLE: {error}", failed=True)

    def go(self) -> int:
        """Runs all mutants; the exit code."""
        for task in [*self.programs, *self.mutants]:
            self.todo.put(task)
        threads = [threading.Thread(target=self.work, args=(lane,)) for lane in self.lanes]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"mutants: {self.killed} of {len(self.mutants)} killed")
        return 1 if self.failures or self.killed < len(self.mutants) else 0


def chosen(names: list[str], share: str) -> list[Path]:
    """The patches of a command line; raises UnusableError."""
    paths = sorted(PATCHES.glob("*.patch"))
    unknown = set(names) - {path.stem for path in paths}
    if unknown or not paths:
        raise UnusableError(f"no such patch in {PATCHES}: {', '.join(sorted(unknown)) or '*'}")
    if names:
        paths = [path for path in paths if path.stem in names]
    first, step = (int(number) for number in share.split("/"))
    return paths[first::step]


def check(mutants: list[Mutant]) -> int:
    """Checks that each patch applies to the tree; the exit code."""
    failures = 0
    for mutant in mutants:
        try:
            apply(mutant, ROOT, "--dry-run")
        except UnusableError as error:
            failures += 1
            print(f"  {mutant.name}: {error}")
    return 1 if failures else 0


def main() -> int:
    """Exit code 0: all chosen mutants were killed, or apply; 2: the command line is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--share", default="0/1", metavar="K/N")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("names", nargs="*", metavar="NAME")
    args = parser.parse_args()
    try:
        mutants = [read_mutant(path) for path in chosen(args.names, args.share)]
    except (UnusableError, ValueError) as error:
        print(f"  {error}")
        return 2
    if args.check:
        return check(mutants)
    return Run(mutants, min(args.lanes, len(mutants))).go()


if __name__ == "__main__":
    sys.exit(main())
