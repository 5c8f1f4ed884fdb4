"""`srdma perf`: latency and bandwidth of one connection."""
