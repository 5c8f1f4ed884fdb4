"""Key derivation (protocol.md 3.1, 3.2, 3.5)."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.cmac import CMAC

from .suites import Suite


def cmac(key: bytes, data: bytes) -> bytes:
    mac = CMAC(AES(key))
    mac.update(data)
    return mac.finalize()


def counter_mode(key: bytes, fixed: bytes, n: int) -> bytes:
    """The form that NIST's vectors test: a 32-bit counter before the fixed data."""
    blocks = range(1, -(-n // 16) + 1)
    return b"".join(cmac(key, i.to_bytes(4, "big") + fixed) for i in blocks)[:n]


def fixed_data(label: str, context: bytes, n: int) -> bytes:
    return label.encode("ascii") + b"\0" + context + (8 * n).to_bytes(4, "big")


def kdf(parent: bytes, label: str, context: bytes, n: int) -> bytes:
    if len(parent) not in (16, 32):
        raise ValueError(f"a parent key has 16 or 32 bytes, not {len(parent)}")
    fixed = fixed_data(label, context, n)
    return counter_mode(parent, fixed + cmac(parent, fixed), n)


Form = tuple[Suite, int, int]  # suite, level, tag length


def secret_size(suite: Suite) -> int:
    return 16 if suite.key_size <= 16 else 32


def traffic_context(generation: bytes, direction: int, epoch: int, form: Form) -> bytes:
    suite, level, tag_len = form
    front = generation + bytes([direction]) + epoch.to_bytes(4, "big")
    return front + bytes([suite.id, level, tag_len])


def next_secret(secret: bytes, generation: bytes, direction: int, epoch: int) -> bytes:
    """Derives S of an epoch from S of the previous epoch (3.5)."""
    context = generation + bytes([direction]) + epoch.to_bytes(4, "big")
    return kdf(secret, "next", context, len(secret))


def traffic_keys(
    secret: bytes, generation: bytes, direction: int, epoch: int, form: Form
) -> tuple[bytes, bytes]:
    """(key, iv) of one direction."""
    suite = form[0]
    if len(secret) != secret_size(suite) or len(generation) != 8:
        raise ValueError(f"{suite.name} takes a secret of {secret_size(suite)} bytes")
    context = traffic_context(generation, direction, epoch, form)
    both = kdf(secret, "traffic", context, suite.key_size + suite.iv_size)
    return both[: suite.key_size], both[suite.key_size :]
