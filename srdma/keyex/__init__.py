"""The key exchange (protocol.md 8): `python -m srdma.keyex`, and the parent's side of it."""
