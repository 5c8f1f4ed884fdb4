"""Attacks on srdma, one module per class."""
