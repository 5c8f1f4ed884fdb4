"""`python -m srdma` is the program `srdma`."""

from .cli import main

main()
