"""What is measured, how it is kept and shown (docs/performance.md). Imported by `srdma bench`."""
