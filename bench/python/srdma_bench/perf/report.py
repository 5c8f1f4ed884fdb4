"""Output of `srdma perf`: the head, columns and names of perftest, as text or JSON.

The JSON output of perftest is not valid JSON (its keys are unquoted). This output is valid and has
the same names: `test_info`, and `results`, an object, or a list of objects with -a. --compare adds
`compared` (the runs that were measured in turn with `results`) and `overhead`, of the same form.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from srdma.cli.output import console, print_json
from srdma.errors import LocalError
from srdma.keyex.policy import describe
from srdma_bench.perf.measure import TESTS, Client, Result
from srdma_bench.series import Spread, ratios

RULE = "-" * 87
LATENCY = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    "
    "t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] "
)


@dataclass(frozen=True)
class Form:
    """Format of the output, and values of the head that do not come from the connection."""

    test: str
    tx_depth: int
    region: int
    host: str
    both: bool = False
    gbits: bool = False
    json: bool = False
    file: Path | None = None

    @property
    def title(self) -> str:
        row = TESTS[self.test]
        kind = "Latency" if row.latency else "BW"
        return f"{row.title} {'Bidirectional ' if self.both else ''}{kind} Test"

    @property
    def used(self) -> int:
        """Bytes of memory that messages use in turn; 0 for a latency, which uses one address."""
        return 0 if TESTS[self.test].latency else self.region

    @property
    def columns(self) -> str:
        if TESTS[self.test].latency:
            return LATENCY
        unit = "Gb/sec" if self.gbits else "MB/sec"
        return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"


def facts(form: Form, client: Client) -> dict[str, Any]:
    """The test_info, with the names of perftest where they exist."""
    there = client.there
    talk, *qps = there.qps
    hello, suite = talk.pd.ctx.hello, there.suite
    return {
        "test": form.title.replace(" ", "_"),
        "Dual_port": "OFF",
        "Device": "shared memory" if client.shared else hello.host_device,
        "Number_of_qps": len(qps),
        "Transport_type": "srdma",
        "Connection_type": "RC",
        "Using_SRQ": "OFF",
        "TX_depth": form.tx_depth,
        "Mtu": talk.info.mtu,
        "Wire": hello.wire,
        "Level": client.level,
        "Suite": describe(suite) if suite.level else "none",
        "Key_mode": there.mode,
        "Memory_proofs": client.proof,
        "Host": form.host,
        "Region": form.used,
        "QPNs": [qp.qp_num for qp in qps],
        "Worker": hello.name,
        "Peer": there.identity,
    }


class Report:
    """Prints rows as they arrive; close() writes the file."""

    def __init__(self, form: Form, client: Client) -> None:
        self._form = form
        self._info = info = facts(form, client)
        self._results: list[dict[str, Any]] = []
        self._compared: list[dict[str, Any]] = []
        self._overhead: list[dict[str, Any]] = []
        if form.json:
            print_json({"test_info": info})
        else:
            self._print(*self._head())

    def _head(self) -> list[str]:
        i = self._info
        qpns = [f" local address: QPN 0x{qpn:06x}, worker {i['Worker']}" for qpn in i["QPNs"]]
        guard = "NO PROTECTION" if i["Level"] == "none" else i["Suite"]
        return [
            RULE,
            f"                    {self._form.title}",
            f" Dual-port       : {i['Dual_port']}\t\tDevice         : {i['Device']}",
            f" Number of qps   : {i['Number_of_qps']}\t\tTransport type : {i['Transport_type']}",
            f" Connection type : {i['Connection_type']}\t\tUsing SRQ      : {i['Using_SRQ']}",
            f" TX depth        : {i['TX_depth']}",
            f" Mtu             : {i['Mtu']}[B]",
            f" Wire            : {i['Wire']}",
            f" Protection      : {guard}",
            f" Key mode        : {i['Key_mode']}{', memory proofs' * i['Memory_proofs']}",
            f" Host            : {i['Host']}",
            f" Region          : {i['Region'] or 'one place'}{'[B]' * bool(i['Region'])}",
            RULE,
            *qpns,
            f" remote address: {i['Peer']}",
            RULE,
            self._form.columns,
        ]

    def one(self, result: Result) -> None:
        row = result.summary(gbits=self._form.gbits)
        self._results.append(row)
        self._show(row, self._line(row))

    def compared(
        self, names: tuple[str, str], first: Sequence[Result], second: Sequence[Result]
    ) -> None:
        """Print the median run of both, then the overhead of the second one over the first."""
        for name, results, rows in (
            (names[0], first, self._compared),
            (names[1], second, self._results),
        ):
            row = {"run": name} | _median(results).summary(gbits=self._form.gbits)
            rows.append(row)
            self._show(row, f"{self._line(row)}  {name}")
        cost = Overhead(names, first, second)
        self._overhead.append(cost.summary())
        self._show({"overhead": cost.summary()}, cost.text())

    def close(self) -> None:
        """Write the file if one was requested. Raises LocalError."""
        if self._form.file is None:
            return
        whole = {"test_info": self._info, "results": _one_or_all(self._results)}
        if self._compared:
            whole |= {
                "compared": _one_or_all(self._compared),
                "overhead": _one_or_all(self._overhead),
            }
        try:
            self._form.file.write_text(json.dumps(whole, indent=2) + "\n")
        except OSError as error:
            raise LocalError(
                f"{self._form.file} cannot be written ({error.strerror}): name another file"
            ) from None

    def _show(self, row: dict[str, Any], text: str) -> None:
        if self._form.json:
            print_json(row)
        else:
            self._print(text)

    def _print(self, *lines: str) -> None:
        for line in lines:
            console().print(line, markup=False)

    def _line(self, row: dict[str, Any]) -> str:
        if TESTS[self._form.test].latency:
            return (
                f" {row['MsgSize']:<7} {row['n_iterations']:<10} {row['t_min']:<14.2f} "
                f"{row['t_max']:<12.2f} {row['t_typical']:<16.2f} {row['t_avg']:<14.2f} "
                f"{row['t_stdev']:<16.2f} {row['percentile_99']:<22.2f} "
                f"{row['percentile_99.9']:<.2f}"
            )
        return (
            f" {row['MsgSize']:<10} {row['n_iterations']:<14} {row['BW_peak']:<18.2f} "
            f"{row['BW_average']:<21.2f} {row['MsgRate']:<.6f}"
        )


WORKERS = {"worker_cpu", "peer_worker_cpu"}


class Overhead:
    """The overhead of `second` over `first`, from pairs of runs of the same round."""

    def __init__(
        self, names: tuple[str, str], first: Sequence[Result], second: Sequence[Result]
    ) -> None:
        self._names = names
        self.time = ratios([r.each for r in second], [r.each for r in first])
        self.host = ratios([*map(_host_cpu, second)], [*map(_host_cpu, first)])
        self.cpu: Spread | None = None  # of the workers, if they are on this computer
        if all(set(result.cpu) >= WORKERS for result in (*first, *second)):
            self.cpu = ratios([*map(_cpu, second)], [*map(_cpu, first)])
            self.cpu_ns = _difference(_cpu, first, second)
        self.wire_bytes = _difference(_wire_bytes, first, second)

    def summary(self) -> dict[str, Any]:
        found = {
            "of": f"{self._names[1]} / {self._names[0]}",
            "time": _plain(self.time), "host_cpu": _plain(self.host),
            "wire_bytes": self.wire_bytes, "pairs": self.time.rounds,
        }  # fmt: skip
        if self.cpu:
            found |= {"worker_cpu": _plain(self.cpu), "worker_cpu_ns": self.cpu_ns}
        return found

    def text(self) -> str:
        """The overhead as text: ratios with quartiles, differences per message."""
        workers = "not known"
        if self.cpu:
            workers = f"x{self.cpu:.2f} ({self.cpu_ns:+.0f} ns per message)"
        return (
            f"   {self._names[1]} / {self._names[0]} in {self.time.rounds} pairs: time "
            f"x{self.time:.3f}, rate x{1 / self.time.median:.3f}; CPU of both workers "
            f"{workers}, of this host x{self.host:.2f}; "
            f"wire {self.wire_bytes:+.1f} bytes per message"
        )


def _plain(spread: Spread) -> dict[str, float]:
    return {"median": spread.median, "low": spread.low, "high": spread.high}


def _difference(
    value: Callable[[Result], float], first: Sequence[Result], second: Sequence[Result]
) -> float:
    pairs = zip(map(value, first), map(value, second), strict=True)
    return statistics.median(b - a for a, b in pairs)


def _one_or_all(rows: list[dict[str, Any]]) -> Any:
    return rows[0] if len(rows) == 1 else rows


def _median(results: Sequence[Result]) -> Result:
    return sorted(results, key=lambda r: r.each)[len(results) // 2]


def _cpu(result: Result) -> float:
    return result.cpu["worker_cpu"] + result.cpu["peer_worker_cpu"]


def _host_cpu(result: Result) -> float:
    return result.cpu["host_cpu"]


def _wire_bytes(result: Result) -> float:
    return result.wire_bytes / result.messages
