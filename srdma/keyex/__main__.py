"""`python -m srdma.keyex`: the key exchange as a process of its own."""

import sys

from srdma.keyex.program import main

sys.exit(main())
