"""NIST's, the RFCs' and OpenSSL's vectors (package cryptography_vectors) through the C suites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.known_answers import Answer, check, report
from tests.reference.kdf import counter_mode

GCM = ["gcmEncryptExtIV128", "gcmEncryptExtIV256", "gcmDecrypt128", "gcmDecrypt256"]

cryptography_vectors = pytest.importorskip("cryptography_vectors")


def cases(*path: str) -> Iterator[dict[str, str]]:
    """The blocks of a file of `name = value` lines; [name = value] holds for those behind."""
    section: dict[str, str] = {}
    block: dict[str, str] = {}
    with cryptography_vectors.open_vector_file("/".join(path), "r") as lines:
        for line in [*map(str.strip, lines), ""]:
            name, equals, value = (part.strip() for part in line.strip("[]").partition("="))
            if line.startswith("["):
                section[name.upper()] = value
            elif line and not line.startswith("#"):
                block[name.upper()] = value if equals else "yes"
            elif block and not line:
                yield section | block
                block = {}


def unhex(case: dict[str, str], name: str) -> bytes:
    value = case.get(name, "")
    return value[1:-1].encode() if value.startswith('"') else bytes.fromhex(value)


@pytest.mark.parametrize("name", GCM)
def test_gcm(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counter(
        check(
            Answer(
                suite=f"aes-{case['KEYLEN']}-gcm",
                key=unhex(case, "KEY"),
                nonce=unhex(case, "IV"),
                ad=unhex(case, "AAD"),
                text=unhex(case, "PT"),
                sealed=unhex(case, "CT"),
                tag=unhex(case, "TAG"),
                valid="FAIL" not in case,
            )
        )
        for case in cases("ciphers", "AES", "GCM", f"{name}.rsp")
    )
    report(capsys, name, counts)
    assert counts["valid, equal"] > 100


@pytest.mark.parametrize("name", ["openssl", "boringssl"])
def test_chacha20_poly1305(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts = Counter(
        check(
            Answer(
                suite="chacha20-poly1305",
                key=unhex(case, "KEY"),
                nonce=unhex(case, "IV" if "IV" in case else "NONCE"),
                ad=unhex(case, "AAD" if "AAD" in case else "AD"),
                text=unhex(case, "PLAINTEXT" if "PLAINTEXT" in case else "IN"),
                sealed=unhex(case, "CIPHERTEXT" if "CIPHERTEXT" in case else "CT"),
                tag=unhex(case, "TAG"),
                valid="RESULT" not in case,
            )
        )
        for case in cases("ciphers", "ChaCha20Poly1305", f"{name}.txt")
    )
    report(capsys, f"chacha20-poly1305 {name}", counts)
    assert counts["valid, equal"]


def mac_answer(suite: str, case: dict[str, str], key: bytes) -> Answer:
    text = unhex(case, "MESSAGE" if "MESSAGE" in case else "MSG")
    tag = unhex(case, "OUTPUT" if "OUTPUT" in case else "MD")
    return Answer(suite, key, b"", b"", text, text, tag, valid=True)


def test_cmac() -> None:
    found = list(cases("CMAC", "nist-800-38b-aes128.txt"))
    for case in found:
        assert check(mac_answer("aes-128-cmac", case, unhex(case, "KEY"))) == "valid, equal"
    assert len(found) >= 4


def test_hmac_sha256() -> None:
    """A key shorter than HMAC's block equals itself with zeros behind it."""
    short = [case for case in cases("HMAC", "rfc-4231-sha256.txt") if len(case["KEY"]) <= 64]
    for case in short:
        key = unhex(case, "KEY").ljust(32, b"\0")
        assert check(mac_answer("hmac-sha256", case, key)) == "valid, equal"
    assert len(short) >= 4


@pytest.mark.parametrize("prf", ["CMAC_AES128", "CMAC_AES256"])
def test_kbkdf_inner_form(prf: str) -> None:
    """The form without K(0), which the reference has apart; test_vectors ties C to it."""
    form = {"PRF": prf, "CTRLOCATION": "BEFORE_FIXED", "RLEN": "32_BITS"}
    found = [c for c in cases("KDF", "nist-800-108-KBKDF-CTR.txt") if form.items() <= c.items()]
    for case in found:
        fixed = unhex(case, "FIXEDINPUTDATA")
        assert counter_mode(unhex(case, "KI"), fixed, int(case["L"]) // 8) == unhex(case, "KO")
    assert len(found) == 40
