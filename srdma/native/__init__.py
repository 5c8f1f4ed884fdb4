"""Cython bindings of csrc."""
