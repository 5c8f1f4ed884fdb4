"""The program `srdma`."""
