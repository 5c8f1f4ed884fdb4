"""A program that may not connect to the worker itself (agent.md 9). It reads one line of Python at
a time from stdin, runs it, and answers with a line of JSON: null, or what show() got, or the error.

Names: worker, agent, ctx, pd, srdma, show. Arguments: worker, agent, and "late" if the program
makes ctx and pd itself.
"""

from __future__ import annotations

import json
import sys

import srdma


def main(worker: str, agent: str, how: str = "") -> None:
    found: list[object] = []
    names: dict[str, object] = {
        "worker": worker, "agent": agent, "srdma": srdma, "show": found.append
    }  # fmt: skip
    if not how:
        run("ctx = srdma.Context(worker, agent=agent); pd = srdma.PD(ctx)", names, found)
    for line in sys.stdin:
        run(line, names, found)


def run(line: str, names: dict[str, object], found: list[object]) -> None:
    found.clear()
    answer: object = None
    try:
        exec(line, names)
        answer = found[0] if found else None
    except Exception as e:
        notes = " ".join(getattr(e, "__notes__", []))
        answer = {"error": f"{type(e).__name__}: {e} {notes}", "errno": getattr(e, "errno", None)}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
