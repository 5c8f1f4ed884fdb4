"""The paper's items without a measurement: plots made from rows, and the sentences about them."""

from __future__ import annotations

import pytest

from srdma.demo.rxe import End
from srdma.errors import DeviceError, IntegrityError, LocalError
from srdma_bench import primitives
from srdma_bench.device import EMBEDDED, verbs
from srdma_bench.folder import Folder
from srdma_bench.paper import run as paper
from srdma_bench.paper import state as paper_state
from srdma_bench.paper import words as paper_words
from srdma_bench.paper.loads import MODES, NONE, Row, sheets
from srdma_bench.plot import Point

pytestmark = pytest.mark.slow


def row(op, level, suite, mode, x, value, ratio=1.0):
    return Row(op, level, suite, mode, x, value, value, value, ratio, ratio, ratio, 7, 100)


def rows(op, level, xs, modes=tuple(MODES), suites=("aes-128-cmac", "hmac-sha256")):
    return [
        row(op, level, suite, mode, x, 10.0 * (1 + s) + n, 1 + n / 10)
        for s, suite in enumerate(suites)
        for x in xs
        for n, mode in enumerate(modes)
    ]


def test_items_that_a_device_can_measure():
    over_verbs = verbs("rxe", [End("rxe0", "", "10.0.0.1"), End("rxe1", "", "10.0.0.2")])
    assert paper.of_device([*paper.ITEMS], EMBEDDED) == [*paper.ITEMS]
    assert paper.of_device([*paper.ITEMS], over_verbs) == [*paper.ITEMS][:-1]
    with pytest.raises(
        LocalError, match="--device rxe: fig11 needs legs on shared memory: give embedded or"
    ):
        paper.of_device(["fig11"], over_verbs)


def test_every_item_has_texts():
    for name in paper.ITEMS:
        assert paper_words.PAPER[name] and paper_words.CAPTIONS[name]
    assert {*paper.FIGURES} | {"table2", "table3"} == {*paper.ITEMS}


@pytest.mark.parametrize("scale", [paper.FULL, paper.QUICK, paper.SMOKE])
def test_scale_measures_every_figure(scale):
    effort = scale.loads
    figures = {s.figure for which in effort.protections for s in sheets(*which, effort)}
    assert figures | {"fig11"} == {*paper.LOADS}
    assert NONE in scale.stores.modes and {*scale.stores.modes} <= {*MODES}
    assert NONE in effort.modes and {*effort.modes} <= {*MODES}


def test_sheets_are_distinct():
    for which in paper.FULL.loads.protections:
        every = [(s.figure, s.op, s.x) for s in sheets(*which, paper.FULL.loads)]
        assert len(every) == len(set(every))


def test_figure_6():
    points = [*paper.fig6_points(rows("WRITE", "header", [32]))]
    assert {p.panel for p in points} == {"WRITE, half a round trip"}
    (plain,) = (p for p in points if p.line == paper.NO_PROTECTION)
    assert (plain.x, plain.median, plain.rounds) == (0, 15.0, 14)
    assert [p.x for p in points if p.line == "hmac-sha256"] == [1, 2, 3, 4, 5, 6, 7]


def test_figure_7():
    points = [*paper.fig7_points(rows("READ", "aead", [16, 32]))]
    assert {p.panel for p in points} == {"READ, aead: aes-128-cmac", "READ, aead: hmac-sha256"}
    assert {p.line for p in points} == {paper.NO_PROTECTION, *MODES} - {NONE}


def test_figures_8_and_9():
    found = rows("WRITE", "header", [1, 4]) + rows("WRITE", "aead", [1, 4], suites=["aes-128-gcm"])
    points = [*paper.goodput_points(found)]
    assert [*dict.fromkeys(p.panel for p in points)][:4] == [
        "header, basic", "aead, basic", "header, pd", "aead, pd",
    ]  # fmt: skip
    plain = [p for p in points if p.line == paper.NO_PROTECTION and p.panel == "aead, pd"]
    assert [(p.x, p.median) for p in plain] == [(1, 10.0), (4, 10.0)]


def test_figure_10():
    points = [*paper.fig10_points(rows("mixed", "header", [0, 5, 95], suites=["aes-128-cmac"]))]
    assert {p.x for p in points} == {0, 1, 3}


def test_figure_11():
    found = [row for op in ("GET", "PUT") for row in rows(op, "aead", [0], suites=["aes-128-gcm"])]
    points = [*paper.fig11_points(found)]
    for panel in ("GET", "PUT"):
        here = [p for p in points if p.panel == panel]
        assert [(p.line, p.x) for p in here] == [
            (paper.NO_PROTECTION, 0), *(("aead", x) for x in range(1, len(MODES))),
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found", "said"),
    [
        ("fig11", rows("GET", "aead", [0]), "GET, aead, pd: 12 thousand, +20% (+20% to +20%)."),
        ("fig6", rows("WRITE", "header", [32]), "WRITE, pd: +20% over no protection."),
        ("fig7", rows("WRITE", "packet", [16, 2048]), "2048 bytes takes 11.0 µs, +10%"),
        ("fig8", rows("WRITE", "aead", [1, 8]), "1.10 of no protection; pd 12.0; pd cached 15.0"),
        (
            "fig10",
            rows("mixed", "aead", [5, 0], suites=["aes-128-gcm"]),
            "aead, aes-128-gcm, basic: 0/100 11, 5/95 11 thousand requests/s.",
        ),
    ],
)
def test_sentences_about_loads(name, found, said):
    assert any(said in text for text in paper_words.of_loads(name, found))
    assert paper_words.of_loads(name, []) == []


def test_sentences_about_primitives():
    points = [Point(paper.LATENCY, "1 thread", x, x / 2, 0, 0, 1) for x in (3, 18)]
    assert paper_words.of_points("fig2", points) == [
        "0.50 µs per step, so 2.0 µs for 4 steps.",
        "1.50 µs at depth 3, 9.00 µs at depth 18.",
    ]
    assert paper_words.of_points("fig2", []) == []
    assert paper_words.of_points("fig2", points[:1]) == ["1.50 µs at depth 3, 1.50 µs at depth 3."]
    codes = [Point("openssl, 1 thread", f"s{v}", 64, v, v, v, 1) for v in (1.0, 3.0, 2.0)]
    assert paper_words.of_points("fig5", codes) == [
        "openssl, 1 thread, 64 bytes: s3.0 3.0 Gbit/s, s1.0 1.0."
    ]


@pytest.mark.parametrize(
    ("each", "shared", "said"), [(16, 0, "16 N"), (0, 48, "48"), (16, 48, "16 N + 48")]
)
def test_key_sizes_in_the_notation_of_the_paper(each, shared, said):
    assert paper_words.of_keys(each, shared) == said


def test_unequal_state_of_qps_is_an_error():
    assert paper_state.each(640) == 64
    with pytest.raises(IntegrityError, match="645 bytes of 10 QPs"):
        paper_state.each(645)


# Primitives ---------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path, monkeypatch):
    """bench/primitives, replaced by these lines of shell."""
    monkeypatch.setenv("BUILD", str(tmp_path))
    (tmp_path / "bench").mkdir()

    def write(lines: str) -> None:
        path = tmp_path / "bench" / "primitives"
        path.write_text(f"#!/bin/sh\n{lines}\n")
        path.chmod(0o755)

    return write


def test_missing_program(tmp_path, monkeypatch):
    monkeypatch.setenv("BUILD", str(tmp_path))
    with pytest.raises(LocalError, match=r"the program .* is missing: build it with `make bench`"):
        primitives.measure(["depth:3"])


def test_lines_of_the_program(program):
    program('echo "{\\"depth\\": 3, \\"threads\\": 2, \\"ns\\": 1.5, \\"per_second\\": 9}"')
    assert primitives.measure(["depth:3"], threads=2) == [primitives.Cell("depth:3", 2, 1.5, 9)]


@pytest.mark.parametrize(
    ("lines", "why"), [("echo broken >&2; exit 1", "broken"), ("exit 3", "primitives: code 3")]
)
def test_program_that_fails(program, lines, why):
    program(lines)
    with pytest.raises(DeviceError, match=why):
        primitives.measure(["depth:3"])


def test_interrupted_run_measures_nothing_twice(tmp_path, monkeypatch):
    """A run that was interrupted in figure 5 resumes with the missing measurements."""
    scale, asked = paper.QUICK, []
    fig2 = len(scale.depths) * scale.rounds
    block = len(paper.FIG5_SUITES) * scale.rounds  # of one size in figure 5
    limit = fig2 + block + 5

    def measure(cells, *, threads, ms, provider):
        asked.extend(cells)
        if len(asked) > limit:
            raise KeyboardInterrupt
        return [primitives.Cell(what, threads, 10.0, 1e6) for what in cells]

    monkeypatch.setattr(paper.primitives, "measure", measure)
    monkeypatch.setattr(paper, "_threads", lambda: [1])
    told: list[int] = []

    def run() -> paper.Run:
        folder = Folder(tmp_path, {"commit": "x"})
        return paper.Run(folder, scale, EMBEDDED, lambda steps, text: told.append(steps))

    names = ["fig2", "fig5"]
    with pytest.raises(KeyboardInterrupt):
        run().measure(names)
    assert len(run().points("fig2")) == 2 * len(scale.depths)
    assert len(run().points("fig5")) == len(paper.FIG5_SUITES)
    asked.clear()
    told.clear()
    limit = fig2 + 2 * block * len(scale.blocks)
    run().measure(names)
    assert len(asked) == block * (len(paper.PROVIDERS) * len(scale.blocks) - 1)
    assert sum(told) == run().steps(names)
    assert len(run().points("fig5")) == len(asked) // scale.rounds + len(paper.FIG5_SUITES)
    asked.clear()
    run().measure(names)
    assert not asked


def test_page_shows_the_available_results(tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: run .ci/setup test")
    folder = Folder(tmp_path, {"commit": "abc"})
    run = paper.Run(folder, paper.SMOKE, EMBEDDED, lambda steps, text: None)
    assert run.publish("nothing yet").sections == []
    for found in rows("WRITE", "header", [32]):
        run.loads.tables["fig6"].add(found)
    for found in rows("GET", "aead", [0], suites=["aes-128-gcm"]):
        run.stores.table.add(found)
    page = run.publish("the command")
    assert [section.name for section in page.sections] == ["fig6", "fig11"]
    text = (tmp_path / "index.html").read_text()
    assert text == page.html() and "the command" in text and text.count("<svg") == 2
    for name in ("fig6", "fig11"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
        assert f'href="{name}.csv"' in text and (tmp_path / f"{name}.csv").exists()
