"""The attack kit: attacks on srdma and on plain RoCE (docs/attacks.md). For the laboratory only.

Its malicious peer is the reference of `tests/reference`, so the kit runs in a source tree only.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

if not (ROOT / "tests" / "reference").is_dir():
    raise ImportError(f"{ROOT} is no source tree of srdma: install the kit with pip's option -e")
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
