"""Tests of srdma; `tests.reference` is the second implementation."""
