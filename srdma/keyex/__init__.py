"""The key exchange (protocol.md 8): messages, state machines, TLS, secrets. The agent runs it."""
