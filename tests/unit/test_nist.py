"""NIST's, the RFCs' and OpenSSL's vectors (package cryptography_vectors) through the C suites."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.known_answers import ROWS, Answer, check, report
from tests.native import bindings
from tests.reference.kdf import counter_mode

GCM = [f"{name}{bits}" for name in ("gcmEncryptExtIV", "gcmDecrypt") for bits in (128, 192, 256)]

cryptography_vectors = pytest.importorskip("cryptography_vectors")


def cases(*path: str) -> Iterator[dict[str, str]]:
    """Yields the blocks of a file of `name = value` lines. [name = value]
    holds for the following blocks."""
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


@pytest.mark.parametrize("bits", [128, 192, 256])
def test_cmac(bits: int) -> None:
    found = list(cases("CMAC", f"nist-800-38b-aes{bits}.txt"))
    for case in found:
        assert check(mac_answer(f"aes-{bits}-cmac", case, unhex(case, "KEY"))) == "valid, equal"
    assert len(found) >= 4


@pytest.mark.parametrize(
    ("file", "digest"),
    [("rfc-2202-sha1", "sha1")]
    + [(f"rfc-4231-{digest}", digest) for digest in ("sha224", "sha256", "sha384", "sha512")],
)
def test_hmac(file: str, digest: str) -> None:
    """HMAC pads a short key with zeros, so the padded key gives the same tag."""
    size = ROWS[f"hmac-{digest}"]["key_len"]
    short = [case for case in cases("HMAC", f"{file}.txt") if len(unhex(case, "KEY")) <= size]
    for case in short:
        key = unhex(case, "KEY").ljust(size, b"\0")
        assert check(mac_answer(f"hmac-{digest}", case, key)) == "valid, equal"
    assert len(short) >= 4


OCB3 = ["rfc7253", "openssl", "test-vector-1-nonce104", "test-vector-1-nonce112"]


@pytest.mark.parametrize("name", OCB3)
def test_ocb(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The published vectors with a nonce of 96 bits. Other nonce lengths must be refused."""
    counts = Counter(
        check(
            Answer(
                suite=f"aes-{8 * len(unhex(case, 'KEY'))}-ocb",
                key=unhex(case, "KEY"),
                nonce=unhex(case, "NONCE"),
                ad=unhex(case, "AAD"),
                text=unhex(case, "PLAINTEXT"),
                sealed=unhex(case, "CIPHERTEXT")[:-16],
                tag=unhex(case, "CIPHERTEXT")[-16:],
                valid=True,
            )
        )
        for case in cases("ciphers", "AES", "OCB3", f"{name}.txt")
    )
    report(capsys, f"ocb {name}", counts)
    assert counts.keys() == {"refused: nonce length" if "nonce" in name else "valid, equal"}


@pytest.mark.parametrize(
    ("bits", "tag"),
    [
        (128, "67e944d23256c5e0b6c61fa22fdf1ea2"),
        (192, "f673f2c3e7174aae7bae986ca9f29e17"),
        (256, "d90eb8e9c977c88b79dd793d7ffa161c"),
    ],
)
def test_ocb_all_lengths(bits: int, tag: str) -> None:
    """RFC 7253, appendix A: text and data of 0 to 127 bytes, sealed and opened again."""
    suite = bindings.Suite(f"aes-{bits}-ocb", bytes(bits // 8 - 1) + b"\x80")
    number = 0
    sealed = b""
    for zeros in map(bytes, range(128)):
        for text, ad in ((zeros, zeros), (zeros, b""), (b"", zeros)):
            number += 1
            nonce = number.to_bytes(12, "big")
            parts = suite.seal(nonce, ad, text)
            assert suite.open(nonce, ad, *parts) == text
            sealed += b"".join(parts)
    assert suite.seal((number + 1).to_bytes(12, "big"), sealed, b"") == (b"", bytes.fromhex(tag))


@pytest.mark.parametrize("prf", ["CMAC_AES128", "CMAC_AES256"])
def test_kbkdf_inner_form(prf: str) -> None:
    """The form without K(0), which only the reference has as a function.
    test_vectors ties C to it."""
    form = {"PRF": prf, "CTRLOCATION": "BEFORE_FIXED", "RLEN": "32_BITS"}
    found = [c for c in cases("KDF", "nist-800-108-KBKDF-CTR.txt") if form.items() <= c.items()]
    for case in found:
        fixed = unhex(case, "FIXEDINPUTDATA")
        assert counter_mode(unhex(case, "KI"), fixed, int(case["L"]) // 8) == unhex(case, "KO")
    assert len(found) == 40
