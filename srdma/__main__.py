"""`python -m srdma` is the program `srdma`."""

from srdma.cli.app import main

main()
