"""Identities: X.509 certificates that name one URI (SPIFFE form), and a small CA to issue them.

The folder of a CA holds `ca.pem` and `ca.key`. Key files have mode 0600. Existing files are only
overwritten with force=True. TLS verifies certificate chains; this module only reads the identity.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import tempfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from srdma.errors import LocalError
from srdma.gid import Address
from srdma.uri import check as check_uri

Algorithm = Literal["p256", "ed25519"]
PrivateKey = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

CA_CERT, CA_KEY, CRL = "ca.pem", "ca.key", "crl.pem"
SKEW = dt.timedelta(minutes=5)  # permitted difference between the clocks of two hosts
CA_DAYS, DAYS = 3650, 90


class IdentityError(LocalError):
    """A certificate, key or identity cannot be used, or its file not be read or written."""


@dataclass(frozen=True, repr=False)
class Credentials:
    """Certificate chain, private key and CA certificates of one end, as PEM; repr() hides them."""

    cert: bytes
    key: bytes
    ca: bytes
    crl: bytes = b""  # the CA's revocation list (RFC 5280 5); empty: none is checked

    @classmethod
    def load(cls, cert: Path, key: Path, ca: Path, crl: Path | None = None) -> Credentials:
        """Read the files and check() them; crl may be absent. Raises IdentityError."""
        revoked = _read(crl) if crl and crl.exists() else b""
        credentials = cls(_read(cert), _read(key), _read(ca), revoked)
        credentials.check(str(cert), str(key), str(ca), str(crl))
        return credentials

    @classmethod
    def named(cls, path: Path) -> Credentials:
        """The files NAME.pem and NAME.key, and in the same folder ca.pem and, if it exists,
        crl.pem. path: up to NAME."""
        return cls.load(*cls.files(path))

    @staticmethod
    def files(path: Path) -> tuple[Path, Path, Path, Path]:
        """The files that named() reads."""
        return (
            path.with_name(path.name + ".pem"),
            path.with_name(path.name + ".key"),
            path.with_name(CA_CERT),
            path.with_name(CRL),
        )

    def check(self, cert: str = "cert", key: str = "key", ca: str = "ca", crl: str = "crl") -> None:
        """Raise IdentityError unless the key fits the certificate, which names one identity.

        cert, key, ca, crl: names for the error texts.
        """
        if self.crl:
            parse_crl(self.crl, crl)
        leaf = parse_certificates(self.cert, cert)[0]
        if parse_key(self.key, key).public_key() != leaf.public_key():
            raise IdentityError(f"{key} is not the key of {cert}: give both of one identity")
        identity_of(leaf)
        parse_certificates(self.ca, ca)

    @cached_property
    def identity(self) -> str:
        """URI that the certificate names."""
        return identity_of(parse_certificates(self.cert, "cert")[0])


# Reading -------------------------------------------------------------------


def _names_of(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    """The subject alternative names of a certificate. Raises IdentityError."""
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise IdentityError(f"a certificate with unreadable extensions: {error}") from None


def addresses_of(certificate: x509.Certificate) -> list[Address]:
    """The IP addresses among the subject alternative names of a certificate. Raises
    IdentityError."""
    names = _names_of(certificate)
    found = names.get_values_for_type(x509.IPAddress) if names else []
    return [each for each in found if isinstance(each, Address)]


def server_name(identity: str) -> str:
    """The SNI that asks for an identity (protocol.md 8)."""
    return hashlib.sha256(identity.encode()).hexdigest()[:40] + ".srdma.alt"


def fingerprint(certificate: x509.Certificate) -> bytes:
    """SHA-256 of the certificate (DER), 32 bytes."""
    return certificate.fingerprint(hashes.SHA256())


def identity_of(certificate: x509.Certificate) -> str:
    """The only URI among the subject alternative names of a certificate; else IdentityError."""
    names = _names_of(certificate)
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names else []
    if len(uris) != 1:
        found = ", ".join(uris) or "no URI"
        raise IdentityError(
            f"a certificate with {found} as subject alternative name:"
            " it must name exactly one identity, such as spiffe://example.org/host-a"
        )
    return check_identity_uri(uris[0])


def check_identity_uri(uri: str) -> str:
    """Return the URI if it can be an identity (uri.py); else raise IdentityError."""
    try:
        check_uri(uri)
    except ValueError as error:
        raise IdentityError(
            f"{uri!r:.300} is no identity: {error}; give a URI such as spiffe://example.org/host-a"
        ) from None
    return uri


def parse_certificates(pem: bytes, where: str) -> list[x509.Certificate]:
    """Certificates of a PEM text, at least one; the first of a chain is the leaf.

    where: name for the error text.
    """
    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        raise IdentityError(f"{where} is not a PEM certificate") from None


def parse_crl(pem: bytes, where: str) -> x509.CertificateRevocationList:
    """A revocation list; where: name for the error text."""
    try:
        return x509.load_pem_x509_crl(pem)
    except ValueError:
        raise IdentityError(f"{where} is not a PEM certificate revocation list") from None


def parse_key(pem: bytes, where: str) -> PrivateKey:
    """An unencrypted P-256 or Ed25519 private key of a PEM text; where: name for the error."""
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except TypeError:
        raise IdentityError(f"{where} is encrypted: give an unencrypted PEM key") from None
    except ValueError:
        raise IdentityError(f"{where} is not a PEM private key") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey):
        raise IdentityError(f"{where} is a {type(key).__name__}: it must be P-256 or Ed25519")
    return key


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}") from None


# Issuing -------------------------------------------------------------------


@dataclass(frozen=True)
class Validity:
    """Period of validity. start: default now, minus SKEW for hosts whose clocks are behind."""

    days: float = DAYS
    start: dt.datetime | None = None

    def bounds(self) -> tuple[dt.datetime, dt.datetime]:
        if not 0 < self.days <= 36_500:
            raise IdentityError(
                f"a validity of {self.days} days: it must be above 0 and at most 36500"
            )
        now = dt.datetime.now(dt.UTC)
        start = self.start or now - SKEW
        return start, (self.start or now) + dt.timedelta(days=self.days)


def create_ca(
    folder: Path,
    name: str,
    *,
    days: float = CA_DAYS,
    algorithm: Algorithm = "p256",
    force: bool = False,
) -> Path:
    """Make a CA: `ca.pem` and `ca.key` in `folder`. Returns the path of the certificate.

    name: common name, 1 to 64 characters. days: validity. force: overwrite existing files.
    """
    if not 0 < len(name) <= 64:
        raise IdentityError(f"a name of {len(name)} characters: a CA's name has 1 to 64")
    key = _new_key(algorithm)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, key, Validity(days).bounds())
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    certificate = builder.sign(key, _hash_for(key))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise IdentityError(f"cannot make the folder {folder}: {error.strerror}") from None
    _write_pair(folder / CA_CERT, folder / CA_KEY, certificate, key, force)
    return folder / CA_CERT


@dataclass(frozen=True)
class Names:
    """The subject alternative names of a certificate. uri: the identity; addresses: GIDs of its
    workers, see `san` of agent.md 11."""

    uri: str
    addresses: tuple[Address, ...] = ()


def issue(
    ca: Path,
    names: str | Names,
    out: Path,
    *,
    validity: Validity | None = None,
    algorithm: Algorithm = "p256",
    force: bool = False,
) -> tuple[Path, Path]:
    """Issue a certificate for an identity by the CA in the folder `ca`.

    names: its URI, or more. Writes OUT.pem and OUT.key and returns their paths. The certificate
    expires no later than that of the CA.
    """
    names = Names(names) if isinstance(names, str) else names
    check_identity_uri(names.uri)
    ca_cert = parse_certificates(_read(ca / CA_CERT), str(ca / CA_CERT))[0]
    ca_key = parse_key(_read(ca / CA_KEY), str(ca / CA_KEY))
    if ca_key.public_key() != ca_cert.public_key():
        raise IdentityError(f"{ca / CA_KEY} is not the key of {ca / CA_CERT}")
    start, end = (validity or Validity()).bounds()
    if dt.datetime.now(dt.UTC) >= ca_cert.not_valid_after_utc:
        raise IdentityError(
            f"{ca / CA_CERT} expired on {ca_cert.not_valid_after_utc:%Y-%m-%d}: make a new CA"
        )
    key = _new_key(algorithm)
    short = names.uri.rsplit("/", 1)[-1][:64] or "srdma"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, short)])
    bounds = start, min(end, ca_cert.not_valid_after_utc)
    if bounds[0] >= bounds[1]:
        raise IdentityError(f"validity from {start:%Y-%m-%d}: the CA certificate ends before that")
    certificate = _leaf(_builder(subject, ca_cert.subject, key, bounds), names, ca_key).sign(
        ca_key, _hash_for(ca_key)
    )
    paths = out.with_name(out.name + ".pem"), out.with_name(out.name + ".key")
    _write_pair(*paths, certificate, key, force)
    return paths


def _new_key(algorithm: Algorithm) -> PrivateKey:
    if algorithm == "p256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    raise IdentityError(f"unknown algorithm {algorithm!r}: p256 or ed25519")


def _hash_for(key: PrivateKey) -> hashes.SHA256 | None:
    return hashes.SHA256() if isinstance(key, ec.EllipticCurvePrivateKey) else None


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    bounds: tuple[dt.datetime, dt.datetime],
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(bounds[0])
        .not_valid_after(bounds[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _leaf(
    builder: x509.CertificateBuilder, names: Names, ca_key: PrivateKey
) -> x509.CertificateBuilder:
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    uri = x509.UniformResourceIdentifier(names.uri)
    all_names = x509.SubjectAlternativeName([uri, *map(x509.IPAddress, names.addresses)])
    return (
        builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(issuer_id, critical=False)
        .add_extension(all_names, critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


# Writing -------------------------------------------------------------------


def _write_pair(
    cert_path: Path, key_path: Path, certificate: x509.Certificate, key: PrivateKey, force: bool
) -> None:
    for path in (cert_path, key_path):
        if path.exists() and not force:
            raise IdentityError(f"{path} exists: nothing was written (--force overwrites it)")
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_file(key_path, pem, 0o600)
    write_file(cert_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file atomically; at no time has it more rights than `mode`."""
    try:
        fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise IdentityError(f"cannot write into {path.parent}: {error.strerror}") from None
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        os.unlink(temporary)
        raise IdentityError(f"cannot write {path}: {error.strerror}") from None
