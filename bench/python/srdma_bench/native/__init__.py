"""Cython bindings of the load generators."""
