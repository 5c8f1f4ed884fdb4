"""Cython bindings of csrc/ and host/."""
