"""Project Wycheproof's vectors through the C suites.

They lie in SRDMA_SHARED, by default ../shared beside the repository.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.known_answers import Answer, check, report

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("SRDMA_SHARED", ROOT.parent / "shared"))
FOLDER = SHARED / "vectors" / "wycheproof"

# file: name of the suite, given the key's bits
SUITES = {
    "aes_gcm": "aes-{}-gcm",
    "chacha20_poly1305": "chacha20-poly1305",
    "hmac_sha256": "hmac-sha256",
    "aes_cmac": "aes-{}-cmac",
    "aes_gmac": "aes-{}-gmac",
}


def unhex(test: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(test.get(name, ""))


def answers(stem: str) -> Iterator[Answer]:
    for group in json.loads((FOLDER / f"{stem}_test.json").read_text())["testGroups"]:
        for test in group["tests"]:
            text = unhex(test, "msg")
            yield Answer(
                suite=SUITES[stem].format(group["keySize"]),
                key=unhex(test, "key"),
                nonce=unhex(test, "iv"),
                ad=unhex(test, "aad"),
                text=text,
                sealed=unhex(test, "ct") if "ct" in test else text,
                tag=unhex(test, "tag"),
                valid=test["result"] == "valid",
            )


@pytest.mark.parametrize("stem", SUITES)
def test_wycheproof(stem: str, capsys: pytest.CaptureFixture[str]) -> None:
    if not FOLDER.is_dir():
        pytest.skip(f"no Wycheproof vectors in {FOLDER}: set SRDMA_SHARED")
    counts = Counter(check(answer) for answer in answers(stem))
    report(capsys, f"wycheproof {stem}", counts)
    assert counts["valid, equal"] and counts["invalid, found so"]
