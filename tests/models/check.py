"""Searches the whole state space of each model, and for the error of each twin.

    python -m tests.models.check [--large] [MODEL ...]

A model must have no violated assertion and, where `cycles` is set, no cycle. A twin is a model with
an error, which the search must find. The output has the number of states of each model.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY_MB = 3000
DEPTH = 1_000_000
QUICK = "-O0"  # to compile a search that ends soon
INCOMPLETE = ("max search depth too small", "out of memory", "Search not completed")


@dataclass(frozen=True)
class Model:
    name: str
    twins: tuple[str, ...]  # each with further definitions that its error needs
    large: tuple[str, ...]  # definitions of the larger state space of `make soak`
    deadlocks: bool = True  # a state without a successor is an error, unless it is marked
    cycles: bool = False  # the model has no cycles: every run ends
    twin_cycles: tuple[str, ...] = ()  # twins whose error is a cycle


MODELS = (
    Model(
        "epochs",
        (
            "NUMBER_KEPT",
            "NOT_CONFIRMED",
            "WINDOW_BEFORE_TAG",
            "EPOCH_BEFORE_TAG",
            "WITHDRAWN_KEPT",
            "SENDER_FIRST",
        ),
        ("SEALS=7",),
    ),
    Model(
        "renewal",
        (
            "TAKES_AFTER_LOSS",
            "RESUMES_BEFORE_GIVEN",
            "ANSWERS_BEFORE_GIVEN",
            "NOT_WITHDRAWN",
            "GIVES_AT_ONCE",
            "COUNT_UNCHECKED",
            "COUNT_NOT_STORED",
            "NOT_TOLD",
        ),
        ("LOSSES=3",),
        cycles=True,
    ),
    Model(
        "delivery",
        ("ACKS_CONFIRM_NOTHING REQUESTS=5 LOSSES=2", "EXECUTED_AGAIN", "SILENCE_UNNOTICED"),
        ("REQUESTS=5", "LOSSES=2"),
        cycles=True,
        twin_cycles=("NO_RETRY", "SAME_NUMBER"),
    ),
    Model(
        "offer",
        ("HASH_UNCHECKED", "HASH_WITHOUT_RANDOM", "HASH_WITHOUT_OFFER"),
        (),
        deadlocks=False,
    ),
)


@dataclass(frozen=True)
class Search:
    """The result of one search."""

    errors: int
    states: int
    output: str

    @property
    def complete(self) -> bool:
        return not any(text in self.output for text in INCOMPLETE)


def search(
    model: Model, definitions: tuple[str, ...], cycles: bool = False, optimise: str = "-O2"
) -> Search:
    """cycles: search for cycles, not for violated assertions."""
    with tempfile.TemporaryDirectory() as folder:
        defined = [f"-D{text}" for text in definitions]
        run(["spin", "-a", *defined, str(HERE / f"{model.name}.pml")], folder)
        kind = "-DNP" if cycles else "-DSAFETY"
        flags = [optimise, "-w", kind, "-DNOFAIR", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MB}"]
        run(["gcc", *flags, "-o", "pan", "pan.c"], folder)
        options = [] if model.deadlocks else ["-E"]
        options += ["-l"] if cycles else []
        output = run(["./pan", f"-m{DEPTH}", *options], folder)
    errors = re.search(r"errors: (\d+)", output)
    states = re.search(r"(\d+) states, stored", output)
    if not errors or not states:
        sys.exit(f"models: pan gave no result for {model.name}:\n{output}")
    return Search(int(errors[1]), int(states[1]), output)


def run(command: list[str], folder: str) -> str:
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        sys.exit(f"models: {' '.join(command)}:\n{done.stdout}")
    return done.stdout


def check(model: Model, large: bool) -> list[str]:
    """Returns the failures."""
    definitions = model.large if large else ()
    failures = []
    for cycles in (False, True) if model.cycles else (False,):
        what = "cycles" if cycles else "assertions"
        found = search(model, definitions, cycles)
        print(f"  {model.name:10} {what:12} {found.states:>9} states", flush=True)
        if found.errors or not found.complete:
            failures.append(f"{model.name}, {what}: an error, or not the whole state space")
    if large:
        return failures
    twins = [(twin, False) for twin in model.twins] + [(twin, True) for twin in model.twin_cycles]
    for twin, cycles in twins:
        if not search(model, tuple(twin.split()), cycles, QUICK).errors:
            failures.append(f"{model.name}: the error of {twin} was not found")
    print(f"  {model.name:10} {len(twins)} twins refuted", flush=True)
    return failures


def main() -> None:
    parser = argparse.ArgumentParser(description="Check the models of tests/models by SPIN.")
    parser.add_argument("--large", action="store_true", help="larger state spaces, without twins")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    arguments = parser.parse_args()
    chosen = [m for m in MODELS if m.name in arguments.models or not arguments.models]
    failures = [text for model in chosen for text in check(model, arguments.large)]
    for text in failures:
        print(f"models: {text}", file=sys.stderr)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
