"""Texts for errors of OpenSSL."""

NO_PROTOCOL = "the peer supports no version of this protocol (ALPN)"

# OpenSSL's verify error -> text that continues "the peer's certificate".
VERIFY_ERRORS = {
    3: "cannot be checked: the local crl.pem is of another CA",
    12: "cannot be checked: the local crl.pem has expired: fetch a new one",
    23: "has been revoked",
    9: "is not valid yet: compare the clocks of both hosts",
    10: "has expired: issue a new one",
    18: "is self-signed, not issued by the configured CA",
    19: "was issued by another CA than the configured one",
    20: "was issued by another CA than the configured one",
    21: "was issued by another CA than the configured one",
    7: "has a wrong signature: its CA is not the configured one",
    26: "does not permit TLS clients and servers (extended key usage)",
}
# Part of OpenSSL's reason, mostly of the peer's alert -> text after "TLS failed: ".
ALERTS = {
    "certificate expired": "this end's certificate has expired: issue a new one",
    "certificate revoked": "this end's certificate has been revoked",
    "bad certificate": "this end's certificate is not accepted (not valid yet, or malformed)",
    "unknown ca": "this end's certificate was issued by another CA than the peer's configured one",
    "certificate required": "the peer requires a certificate, and this end sent none",
    "no application protocol": NO_PROTOCOL,
    "unsupported certificate": "this kind of certificate is not accepted (key usage)",
    "protocol version": "the peer does not support TLS 1.3",
    "wrong version number": "the peer does not use TLS: check the address and port",
    "packet length too long": "the peer does not use TLS: check the address and port",
    "record layer failure": "the peer does not use TLS: check the address and port",
}
