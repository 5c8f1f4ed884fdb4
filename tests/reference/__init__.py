"""srdma-1 a second time, in plain Python, from docs/protocol.md alone.

Nothing here is fast or hardened; it is short enough to be held against the
page. The C data plane and this package must agree on every byte; the vectors
in tests/vectors come from here.
"""
