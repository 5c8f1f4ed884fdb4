"""The key exchange (protocol.md 8): `python -m srdma.keyex`, and the class that starts it."""
