"""Walls of the data plane: .ci/includes refuses a climbing include, and a part of a QP cannot be
written from outside its folder."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHECK = ROOT / ".ci" / "includes"


def check(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECK), str(root)], capture_output=True, text=True, check=False
    )


def tree(tmp_path: Path, files: dict[str, str]) -> Path:
    """A tree of two folders, of which high/ may include low/."""
    base = {"csrc/layers.txt": "low:\nhigh: low\n", "csrc/low/low.h": "", "csrc/high/high.h": ""}
    for name, text in (base | files).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_the_tree_has_no_wrong_include() -> None:
    done = check(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_downward_include_is_accepted(tmp_path: Path) -> None:
    root = tree(tmp_path, {"csrc/high/high.c": '#include "low/low.h"\n#include <errno.h>\n'})
    assert check(root).returncode == 0


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"csrc/low/low.c": '#include "high/high.h"\n'}, "low/ may not include high/"),
        (
            {"csrc/high/high.c": '#include "low/low_impl.h"\n', "csrc/low/low_impl.h": ""},
            "low/low_impl.h is private to low/",
        ),
        ({"csrc/other/other.c": ""}, "csrc/other: not in csrc/layers.txt"),
        (
            {
                "csrc/layers.txt": "include/srdma:\nlow: include/srdma\nhigh: low\n",
                "include/srdma/public.h": '#include "low/low.h"\n',
            },
            "include/srdma/ may not include low/",
        ),
        ({"csrc/layers.txt": "low: high\nhigh: low\n"}, "low may not include high"),
    ],
)
def test_wrong_include_is_refused(tmp_path: Path, files: dict[str, str], says: str) -> None:
    done = check(tree(tmp_path, files))
    assert done.returncode == 1
    assert says in done.stdout + done.stderr


def compiles(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    source = tmp_path / "snippet.c"
    source.write_text(text)
    return subprocess.run(
        ["gcc", "-std=c11", "-D_GNU_SOURCE", f"-I{ROOT / 'csrc'}", f"-I{ROOT / 'include'}"]
        + ["-fsyntax-only", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )


PUBLIC = """
#include "path/path.h"
#include "qp/qp.h"
#include "requester/requester.h"
#include "responder/responder.h"
void snippet(struct srdma_qp *qp);
void snippet(struct srdma_qp *qp) { %s; }
"""


@pytest.mark.parametrize(
    "statement",
    [
        "qp->core.scheduled = 0",
        "qp->requester.sq_next++",
        "srdma_qp_requester(qp)->sq_next++",
        "srdma_qp_responder(qp)->accepted.id++",
        "srdma_qp_path(qp)->acked_pn = 0",
        "srdma_qp_core(qp)->state = SRDMA_QP_RTS",
        "srdma_path_rtt(qp)->srtt = 0",
    ],
)
def test_field_of_another_part_does_not_compile(tmp_path: Path, statement: str) -> None:
    assert compiles(tmp_path, PUBLIC % "srdma_qp_schedule(qp, SRDMA_SAY_ACK)").returncode == 0
    done = compiles(tmp_path, PUBLIC % statement)
    assert done.returncode != 0
    assert "error" in done.stderr
