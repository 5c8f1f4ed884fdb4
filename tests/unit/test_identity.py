"""Identities and the small CA."""

from __future__ import annotations

import datetime as dt
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from srdma.identity import (
    Credentials,
    IdentityError,
    Validity,
    check_identity_uri,
    create_ca,
    identity_of,
    issue,
    parse_certificates,
    parse_key,
)

HOST_A = "spiffe://example.org/host-a"


@pytest.fixture
def ca(tmp_path: Path) -> Path:
    create_ca(tmp_path / "ca", "test CA")
    return tmp_path / "ca"


def certificate(path: Path) -> x509.Certificate:
    return parse_certificates(path.read_bytes(), str(path))[0]


@pytest.mark.parametrize("algorithm", ["p256", "ed25519"])
def test_issue_and_load(tmp_path: Path, algorithm: str) -> None:
    create_ca(tmp_path / "ca", "test CA", algorithm=algorithm)  # type: ignore[arg-type]
    cert, key = issue(tmp_path / "ca", HOST_A, tmp_path / "host-a", algorithm=algorithm)  # type: ignore[arg-type]
    credentials = Credentials.load(cert, key, tmp_path / "ca" / "ca.pem")
    assert credentials.identity == HOST_A
    assert b"PRIVATE" not in repr(credentials).encode()
    certificate(cert).verify_directly_issued_by(certificate(tmp_path / "ca" / "ca.pem"))
    for secret in (key, tmp_path / "ca" / "ca.key"):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_nothing_is_overwritten_without_force(tmp_path: Path, ca: Path) -> None:
    issue(ca, HOST_A, tmp_path / "a")
    before = (tmp_path / "a.key").read_bytes(), (ca / "ca.key").read_bytes()
    with pytest.raises(IdentityError, match=r"a.pem exists: nothing was written \(--force"):
        issue(ca, HOST_A, tmp_path / "a")
    with pytest.raises(IdentityError, match=r"ca\.pem exists"):
        create_ca(ca, "another")
    assert before == ((tmp_path / "a.key").read_bytes(), (ca / "ca.key").read_bytes())
    issue(ca, HOST_A, tmp_path / "a", force=True)
    assert (tmp_path / "a.key").read_bytes() != before[0]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.key", "a.pem", "ca"]


def test_validity(tmp_path: Path, ca: Path) -> None:
    start = dt.datetime(2031, 1, 2, tzinfo=dt.UTC)
    cert, _ = issue(ca, HOST_A, tmp_path / "a", validity=Validity(3, start))
    assert certificate(cert).not_valid_before_utc == start
    assert certificate(cert).not_valid_after_utc == start + dt.timedelta(days=3)
    long, _ = issue(ca, HOST_A, tmp_path / "b", validity=Validity(36_000))
    assert certificate(long).not_valid_after_utc == certificate(ca / "ca.pem").not_valid_after_utc
    with pytest.raises(IdentityError, match="validity of 0 days"):
        issue(ca, HOST_A, tmp_path / "c", validity=Validity(0))


@pytest.mark.parametrize(
    "uri", ["", "host-a", "spiffe://", "/path", "spiffe://a/" + "x" * 255, "spiffe://a/ä", "http:x",
            "spiffe://a/\n", "spiffe://[a"]
)  # fmt: skip
def test_invalid_identity(uri: str, tmp_path: Path, ca: Path) -> None:
    with pytest.raises(IdentityError, match=r"identity"):
        issue(ca, uri, tmp_path / "a")
    assert not (tmp_path / "a.pem").exists()


def test_longest_identity() -> None:
    uri = "spiffe://a/" + "x" * 244
    assert check_identity_uri(uri) == uri and len(uri) == 255


@pytest.mark.parametrize("uris", [[], [HOST_A, HOST_A + "2"]])
def test_certificate_must_name_one_identity(uris: list[str]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(1))
    )
    if uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=True)
    with pytest.raises(IdentityError, match="exactly one identity"):
        identity_of(builder.sign(key, hashes.SHA256()))


@pytest.mark.parametrize(
    "error",
    [
        x509.DuplicateExtension("twice", x509.SubjectAlternativeName.oid),
        x509.UnsupportedGeneralNameType("x400Address"),
        ValueError("cut"),
    ],
)
def test_extensions_that_cannot_be_read(error: Exception) -> None:
    class Certificate:
        @property
        def extensions(self) -> object:
            raise error

    with pytest.raises(IdentityError, match="unreadable extensions"):
        identity_of(Certificate())  # type: ignore[arg-type]


def test_key_of_another_certificate(tmp_path: Path, ca: Path) -> None:
    cert, _ = issue(ca, HOST_A, tmp_path / "a")
    _, key = issue(ca, HOST_A, tmp_path / "b")
    with pytest.raises(IdentityError, match=r"b.key is not the key of .*a.pem"):
        Credentials.load(cert, key, ca / "ca.pem")


def test_unreadable_files(tmp_path: Path, ca: Path) -> None:
    cert, key = issue(ca, HOST_A, tmp_path / "a")
    with pytest.raises(IdentityError, match=r"cannot read .*none: No such file"):
        Credentials.load(tmp_path / "none", key, ca / "ca.pem")
    with pytest.raises(IdentityError, match=r"a.key is not a PEM certificate"):
        Credentials.load(key, key, ca / "ca.pem")
    with pytest.raises(IdentityError, match=r"a.pem is not a PEM private key"):
        Credentials.load(cert, cert, ca / "ca.pem")
    with pytest.raises(IdentityError, match=r"cannot write into"):
        issue(ca, HOST_A, tmp_path / "none" / "a")


def test_rsa_keys_are_refused() -> None:
    pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    with pytest.raises(IdentityError, match="RSAPrivateKey: it must be P-256 or Ed25519"):
        key = rsa.generate_private_key(65537, 2048)
        parse_key(key.private_bytes(*pem, serialization.NoEncryption()), "k")
    with pytest.raises(IdentityError, match="encrypted"):
        locked = serialization.BestAvailableEncryption(b"x")
        parse_key(ec.generate_private_key(ec.SECP256R1()).private_bytes(*pem, locked), "k")


def test_expired_ca_issues_nothing(tmp_path: Path) -> None:
    create_ca(tmp_path / "ca", "old", days=1e-9)
    with pytest.raises(IdentityError, match=r"ca.pem expired on .*: make a new CA"):
        issue(tmp_path / "ca", HOST_A, tmp_path / "a")
