"""Measurements of srdma, their storage and display (docs/performance.md): `srdma perf` and
`srdma bench`."""
