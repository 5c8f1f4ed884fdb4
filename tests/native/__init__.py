"""Cython bindings of csrc that only tests use."""
