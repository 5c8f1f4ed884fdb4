"""A second implementation of srdma-1 in plain Python, written from docs/protocol.md alone.

It is neither fast nor hardened, but short enough to be compared with the protocol text. The C
data plane and this package must agree on every byte. The vectors in tests/vectors come from
here.
"""
