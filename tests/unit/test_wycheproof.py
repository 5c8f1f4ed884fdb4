"""Project Wycheproof's vectors through the C suites.

They are in the folder SRDMA_SHARED, by default ../shared beside the repository.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.known_answers import Answer, check, report

ROOT = Path(__file__).parents[2]
SHARED = Path(os.environ.get("SRDMA_SHARED", ROOT.parent / "shared"))
FOLDER = SHARED / "vectors" / "wycheproof"

# file: name of the suite for a key length in bits
SUITES = {
    "aes_gcm": "aes-{}-gcm",
    "chacha20_poly1305": "chacha20-poly1305",
    "aes_cmac": "aes-{}-cmac",
    "aes_gmac": "aes-{}-gmac",
} | {
    f"hmac_{digest}": f"hmac-{digest.replace('_', '-')}"
    for digest in ("sha1", "sha224", "sha256", "sha384", "sha512")
    + ("sha3_224", "sha3_256", "sha3_384", "sha3_512")
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


def run(name: str, found: Iterator[Answer], capsys: pytest.CaptureFixture[str]) -> None:
    if not FOLDER.is_dir():
        pytest.skip(f"no Wycheproof vectors in {FOLDER}: set SRDMA_SHARED")
    counts = Counter(check(answer) for answer in found)
    report(capsys, f"wycheproof {name}", counts)
    assert counts["valid, equal"] and counts["invalid, found so"]


@pytest.mark.parametrize("stem", SUITES)
def test_wycheproof(stem: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(stem, answers(stem), capsys)


def test_poly1305(capsys: pytest.CaptureFixture[str]) -> None:
    """ChaCha20-Poly1305 without text: the MAC covers only its associated data."""
    empty = (answer for answer in answers("chacha20_poly1305") if not answer.text)
    as_mac = (replace(a, suite="poly1305", ad=b"", text=a.ad, sealed=a.ad) for a in empty)
    run("poly1305", as_mac, capsys)
