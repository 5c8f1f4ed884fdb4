"""`python -m srdma.agent`: a private agent."""

import sys

from srdma.agent.program import main

sys.exit(main())
