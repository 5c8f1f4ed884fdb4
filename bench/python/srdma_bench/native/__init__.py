"""Cython bindings of the load generators in C."""
