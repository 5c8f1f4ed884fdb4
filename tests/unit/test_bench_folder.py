"""Results on disk: no result is measured twice, mixed with those of another
run, or lost by an interruption."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from srdma.errors import LocalError
from srdma_bench.folder import Folder

FACTS = {"commit": "abc", "cores": 2}


@dataclass(frozen=True)
class Row:
    name: str
    size: int
    value: float


ROWS = [Row('a, "quoted"', 32, 0.1), Row("b", 32, 1e-9), Row("b, µs", 64, 3.0)]


def table(path: Path):
    return Folder(path, FACTS).table("item", Row, ("name", "size"))


def filled(path: Path):
    rows = table(path)
    for row in ROWS:
        assert rows.add(row) == row
    return rows


def test_rows_are_read_back(tmp_path):
    assert list(filled(tmp_path / "deep" / "er")) == ROWS
    again = table(tmp_path / "deep" / "er")
    assert list(again) == ROWS and len(again) == 3
    assert again.get(name="b, µs", size=64) == ROWS[2]
    assert again.get(name="b", size=65) is None


def test_row_is_measured_once(tmp_path):
    rows = filled(tmp_path)
    with pytest.raises(LocalError, match="has a row for"):
        rows.add(Row("b, µs", 64, 4.0))


# cut: bytes removed from the end of the file; 11 cuts a character in two.
@pytest.mark.parametrize("cut", [1, 2, 5, 8, 11])
def test_interrupted_line_is_measured_again(tmp_path, cut):
    filled(tmp_path)
    path = tmp_path / "item.csv"
    path.write_bytes(path.read_bytes()[:-cut])
    rows = table(tmp_path)
    assert list(rows) == ROWS[:2]
    rows.add(ROWS[2])
    assert list(table(tmp_path)) == ROWS


@pytest.mark.parametrize("left", [0, 3])
def test_interrupted_head(tmp_path, left):
    filled(tmp_path)
    path = tmp_path / "item.csv"
    path.write_bytes(path.read_bytes()[:left])
    assert list(table(tmp_path)) == []
    assert path.read_text() == "name,size,value\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("name,value\na,1\n", "other columns"),
        ("name,size,value\na,1\n", "other columns"),
        ("name,size,value\na,1,2,3\n", "other columns"),
        ("name,size,value\na,b,2.0\n", "invalid literal"),
        ("name,size,value\n\udcff,1,2.0\n", "can't decode byte 0xff"),
    ],
)
def test_file_of_another_format(tmp_path, text, why):
    Folder(tmp_path, FACTS)
    (tmp_path / "item.csv").write_text(text, errors="surrogateescape")
    with pytest.raises(LocalError, match=why):
        table(tmp_path)


def test_results_of_another_run_are_refused(tmp_path):
    filled(tmp_path)
    with pytest.raises(LocalError, match=r"commit 'abc', now 'def'; extra None, now 1"):
        Folder(tmp_path, {"commit": "def", "cores": 2, "extra": 1})
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(LocalError, match="does not belong to results"):
        Folder(tmp_path, FACTS)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(LocalError, match="cannot be read"):
        Folder(tmp_path, FACTS)


def test_whole_files_are_replaced(tmp_path):
    folder = Folder(tmp_path, FACTS)
    assert folder.write("page.html", "one").read_text() == "one"
    assert folder.write("page.html", b"two").read_bytes() == b"two"
    assert {path.name for path in tmp_path.iterdir()} == {"page.html", "run.json"}
    assert json.loads((tmp_path / "run.json").read_text()) == FACTS


@pytest.fixture
def occupied(tmp_path):
    """A path below a file, where even root cannot create anything."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file"


def test_unwritable_folder(tmp_path, occupied):
    with pytest.raises(LocalError, match=r"cannot be written .*: name another folder"):
        Folder(occupied / "out", FACTS)
    folder = Folder(tmp_path / "out", FACTS)
    (folder.path / "item.csv").mkdir()
    with pytest.raises(LocalError, match=r"item\.csv cannot be written"):
        folder.table("item", Row, ("name",))
    (folder.path / "page.html").mkdir()
    with pytest.raises(LocalError, match="out cannot be written"):
        folder.write("page.html", "text")


def test_disk_full(tmp_path, monkeypatch):
    rows = filled(tmp_path)
    rows.path = Path("/dev/full")
    with pytest.raises(LocalError, match="No space left"):
        rows.add(Row("c", 1, 1.0))
    assert rows.get(name="c", size=1) is None
