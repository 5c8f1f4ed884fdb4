"""The runner of deliberate faults (.ci/mutants.py) in a small tree of its own."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / ".ci/mutants.py"

MAKEFILE = """\
build/tests/c/%: tests/c/%.c csrc/sum.c
\t@mkdir -p $(@D)
\t@$(CC) -o $@ $^
"""
FILES = {
    "Makefile": MAKEFILE,
    "csrc/sum.c": "int sum(int a, int b);\nint sum(int a, int b)\n{\n\treturn a + b;\n}\n",
    "tests/c/test_sum.c": "int sum(int, int);\nint main(void)\n{\n\treturn sum(2, 3) != 5;\n}\n",
    "tests/c/test_nothing.c": "int main(void)\n{\n\treturn 0;\n}\n",
    "tests/c/test_broken.c": "int main(void)\n{\n\treturn 1;\n}\n",
    "tests/c/test_setting.c": (
        "#include <stdlib.h>\nint sum(int, int);\nint main(void)\n"
        '{\n\treturn getenv("DEEP") && sum(2, 3) != 5;\n}\n'
    ),
    "tests/c/test_endless.c": (
        "int sum(int, int);\nint main(void)\n{\n\twhile (sum(2, 3) != 5)\n\t\t;\n\treturn 0;\n}\n"
    ),
}
HUNK = """\
@@ -2,4 +2,4 @@
 int sum(int a, int b)
 {
-\treturn a + b;
+\treturn a - b;
 }
"""


def patch(killer: str, hunk: str = HUNK) -> str:
    head = f"Fault: the sum is a difference\nKilled-by: {killer}\n"
    return f"{head}--- a/csrc/sum.c\n+++ b/csrc/sum.c\n{hunk}"


Outcome = tuple[int, str]
Runner = Callable[..., Outcome]


@pytest.fixture
def mutants(tmp_path: Path) -> Runner:
    """Runs the runner of a new tree with these patches; its exit code and output."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / ".ci").mkdir()
    (tmp_path / "tests/mutants").mkdir()
    script = tmp_path / ".ci/mutants.py"
    shutil.copy(SCRIPT, script)
    (tmp_path / ".gitignore").write_text("/build/\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)

    def run(patches: dict[str, str], *arguments: str, limit: int | None = None) -> Outcome:
        for name, text in patches.items():
            (tmp_path / f"tests/mutants/{name}.patch").write_text(text)
        if limit:
            script.write_text(script.read_text().replace("LIMIT = 60", f"LIMIT = {limit}"))
        command = [sys.executable, str(script), "--lanes", "1", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.stderr == "" or done.returncode == 2
        return done.returncode, done.stdout + done.stderr

    return run


def test_killed_mutant_gives_success(mutants: Runner) -> None:
    code, output = mutants({"difference": patch("test_sum")})
    assert code == 0
    assert "difference" in output
    assert "1 of 1 killed" in output


def test_second_run_finds_an_unchanged_tree(mutants: Runner) -> None:
    one = {"difference": patch("test_sum")}
    assert mutants(one)[0] == 0
    assert mutants(one)[0] == 0


def test_survivor_fails_the_run(mutants: Runner) -> None:
    code, output = mutants({"difference": patch("test_nothing"), "noticed": patch("test_sum")})
    assert code == 1
    assert "SURVIVED test_nothing" in output
    assert "the sum is a difference" in output
    assert "1 of 2 killed" in output


def test_environment_of_the_killer(mutants: Runner) -> None:
    assert mutants({"deep": patch("test_setting DEEP=1")})[0] == 0


def test_program_that_does_not_end_has_noticed(mutants: Runner) -> None:
    code, output = mutants({"difference": patch("test_endless")}, limit=1)
    assert code == 0
    assert "did not end within 1 s" in output


def test_program_that_fails_without_a_mutant_is_reported(mutants: Runner) -> None:
    code, output = mutants({"difference": patch("test_broken")})
    assert code == 1
    assert "test_broken" in output
    assert "FAILS WITHOUT A MUTANT" in output


def test_patch_that_does_not_apply_fails_the_run(mutants: Runner) -> None:
    stale = patch("test_sum", HUNK.replace("return a + b", "return b + a"))
    code, output = mutants({"stale": stale, "difference": patch("test_sum")})
    assert code == 1
    assert "does not apply" in output
    assert "1 of 2 killed" in output


def test_mutant_that_does_not_build_fails_the_run(mutants: Runner) -> None:
    code, output = mutants({"syntax": patch("test_sum", HUNK.replace("a - b", "a -"))})
    assert code == 1
    assert "does not build" in output


def test_unknown_program_fails_the_run(mutants: Runner) -> None:
    code, output = mutants({"difference": patch("test_absent")})
    assert code == 1
    assert "does not build" in output


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (patch("test_sum") + "--- a/Makefile\n+++ b/Makefile\n" + HUNK, "must change one file"),
        (patch("test_sum").replace("Killed-by", "Noticed-by"), "lacks"),
        (patch("test_sum").replace("Fault", "Title"), "lacks"),
    ],
)
def test_malformed_patch_is_refused(mutants: Runner, text: str, why: str) -> None:
    code, output = mutants({"malformed": text})
    assert code == 2
    assert why in output


def test_unknown_name_is_refused(mutants: Runner) -> None:
    code, output = mutants({"difference": patch("test_sum")}, "diference")
    assert code == 2
    assert "no such patch" in output


def test_tree_without_patches_is_refused(mutants: Runner) -> None:
    assert mutants({})[0] == 2


def test_shares_take_every_patch_once(mutants: Runner) -> None:
    patches = {name: patch("test_sum") for name in ("a", "b", "c")}
    outputs = [mutants(patches, "--share", f"{k}/2")[1] for k in range(2)]
    assert "2 of 2 killed" in outputs[0]
    assert "1 of 1 killed" in outputs[1]


def test_check_finds_a_patch_that_does_not_apply(mutants: Runner) -> None:
    patches = {"difference": patch("test_sum"), "old": patch("test_sum", HUNK.replace("a", "x"))}
    code, output = mutants(patches, "--check")
    assert code == 1
    assert "old: the patch does not apply" in output
    assert "difference" not in output


def test_check_runs_no_mutant(mutants: Runner) -> None:
    assert mutants({"useless": patch("test_nothing")}, "--check") == (0, "")
