"""The commands `srdma perf` and `srdma bench`; entry points `srdma.commands` name them."""

from srdma.cli.commands import Command, Group
from srdma_bench.cli import bench, flood, keys, kvs, peers, perf, perftest, targets

PERF = Command(perf.perf, cls=perf.Command)
BENCH = Group(
    "Run measurements, store the results, and show them.",
    {
        "machine": bench.machine,
        "flood": flood.flood,
        "keys": keys.keys,
        "sessions": keys.sessions,
        "kvs": kvs.kvs,
        "peers": peers.peers,
        "perftest": perftest.perftest,
        "paper": bench.paper,
        "targets": targets.targets,
        "waiting": bench.waiting,
    },
)
