"""Figure 11 of the paper: a key-value store (`kvs/store.py`), at each level and in each key mode.

A protected store and one without protection exist at the same time and are measured in turn. A
store of 2^23 keys fills a GiB, so there are at most two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from srdma_bench.device import Device
from srdma_bench.folder import Folder
from srdma_bench.kvs.store import KEYS as PAPER_KEYS
from srdma_bench.kvs.store import Kvs, KvsResult, KvsServer, Mix, Store
from srdma_bench.paper.loads import KEYS, MODES, NONE, Row
from srdma_bench.series import in_turn, ratios, spread
from srdma_bench.stand import Settings, Shape, Stand

STORES = (("header", "aes-128-cmac"), ("packet", "aes-128-cmac"), ("aead", "aes-128-gcm"))
OPS = {"GET": Mix("get", 0), "PUT": Mix("put", 0)}  # uniformly distributed keys


@dataclass(frozen=True)
class KvsEffort:
    """The extent of the measurement."""

    stores: Sequence[tuple[str, str]] = STORES
    modes: Sequence[str] = tuple(MODES)
    keys: int = PAPER_KEYS
    rounds: int = 7
    seconds: float = 0.5


class Stores:
    """The runs of figure 11. tell: reports progress (stores done, text)."""

    def __init__(
        self, folder: Folder, effort: KvsEffort, device: Device, tell: Callable[[int, str], None]
    ) -> None:
        self._effort, self._device, self._tell = effort, device, tell
        self._stack = ExitStack()
        self._servers: dict[Settings, KvsServer] = {}
        self.table = folder.table("fig11", Row, KEYS)

    @property
    def total(self) -> int:
        return len(self._effort.stores) * len(self._protected)

    @property
    def _protected(self) -> list[str]:
        return [mode for mode in self._effort.modes if mode != NONE]

    def run(self) -> None:
        """Measure all rows that the table lacks."""
        store = Store(self._effort.keys)
        plain: Kvs | None = None
        with self._stack as stack:
            for level, suite in self._effort.stores:
                for mode in self._protected:
                    if self._missing(level, suite, mode):
                        if plain is None:
                            server = self._server(MODES[NONE][0])
                            plain = stack.enter_context(server.connect(Shape("none"), store))
                        settings, name = MODES[mode]
                        shape = Shape(level, suite, name)
                        with self._server(settings).connect(shape, store) as kvs:
                            self._measure((level, suite, mode), plain, kvs)
                    self._tell(1, f"fig11: {suite}, {level}, {mode}")

    def _missing(self, level: str, suite: str, mode: str) -> list[str]:
        key = {"level": level, "suite": suite, "mode": mode, "x": 0}
        return [op for op in OPS if self.table.get(op=op, **key) is None]

    def _server(self, settings: Settings) -> KvsServer:
        if settings not in self._servers:
            stand = self._stack.enter_context(Stand(self._device, settings))
            self._servers[settings] = self._stack.enter_context(KvsServer(stand))
        return self._servers[settings]

    def _measure(self, which: tuple[str, str, str], plain: Kvs, kvs: Kvs) -> None:
        for op in self._missing(*which):
            runs = {NONE: self._run(plain, op), which[2]: self._run(kvs, op)}
            results = in_turn(runs, self._effort.rounds)
            level, suite, mode = which
            for each in (NONE, mode):
                self._keep(op, (level, suite, each), results[each], results[NONE])

    def _run(self, kvs: Kvs, op: str) -> Callable[[], KvsResult]:
        return lambda: kvs.measure(OPS[op], self._effort.seconds)

    def _keep(
        self, op: str, which: tuple[str, str, str], runs: list[KvsResult], plain: list[KvsResult]
    ) -> None:
        """Add a row; runs without protection are kept once per store, with the first mode."""
        level, suite, mode = which
        if op not in self._missing(*which):
            return
        rates, beside = ([run.rate / 1000 for run in some] for some in (runs, plain))
        own, ratio = spread(rates), ratios(rates, beside)
        packets = sum(round(run.packets * run.requests) for run in runs)
        self.table.add(
            Row(
                op, level, suite, mode, 0, own.median, own.low, own.high, ratio.median, ratio.low,
                ratio.high, own.rounds, packets,
            )
        )  # fmt: skip
