"""Models of the protocol for the model checker SPIN (docs/verification.md)."""
