"""Memory with proofs at a running worker: REG_MR with PROOF, CAP, INSTALL, UNINSTALL and REVOKE
(protocol.md 6; local-interface.md 3)."""

from __future__ import annotations

import errno
import os
import select
import struct
from random import Random
from typing import Any, NamedTuple

import pytest

from tests.daemon import (
    ACCESS_PROOF,
    BINARY,
    PAGE,
    PATIENCE,
    TOKEN_MAX,
    TOKEN_MIN,
    Client,
    Kind,
    RefusedError,
    Worker,
    memfd,
    reg_mr,
    u32,
)
from tests.reference.memory import Capability, Region, decode, grant, holder_id

pytestmark = pytest.mark.skipif(not BINARY.exists(), reason="make offload has not been run")

LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ = 1, 2, 4
WITH_PROOF = ACCESS_PROOF | LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
READ, WRITE, ATOMIC = 1, 2, 4
ADDRESS = 0x10000
PAGES = 16
LENGTH = PAGES * PAGE
LOG2_PAGE = 12
NOBODY = bytes(16)
HOLDER = holder_id("spiffe://test/alice")
GRANTS, REVOKED = 1024, 64
REGION = Region(ADDRESS, ADDRESS + LENGTH, PAGE, 48)


class Owner(NamedTuple):
    """A region that requires proofs, on a leg."""

    client: Client
    leg: int
    key: int


def register(
    client: Client, leg: int, length: int = LENGTH, tree: tuple[int, int] = (LOG2_PAGE, 48)
) -> int:
    fd = memfd(length)
    try:
        return client.number(Kind.REG_MR, reg_mr(leg, WITH_PROOF, length, tree=tree), [fd])
    finally:
        os.close(fd)


@pytest.fixture
def owner(a: Worker) -> Owner:
    client = a.client()
    leg, _ = client.open()
    return Owner(client, leg, register(client, leg))


def cap(owner: Owner, **changes: Any) -> bytes:
    """The body of CAP. Default: the whole region with all its rights, open."""
    v: dict[str, Any] = {
        "leg": owner.leg,
        "key": owner.key,
        "offset": 0,
        "length": LENGTH,
        "expiry": 0,
        "rights": READ | WRITE,
        "holder": NOBODY,
    } | changes
    return struct.pack(">IIQQIB3x16s", *v.values())


def token(owner: Owner, **changes: Any) -> bytes:
    return owner.client.request(Kind.CAP, cap(owner, **changes))[0]


def revoke(owner: Owner, offset: int = 0, length: int = 0, **changes: int) -> bytes:
    """The body of REVOKE. Default: the whole region."""
    v = {"leg": owner.leg, "key": owner.key, "offset": offset, "length": length} | changes
    return struct.pack(">IIQQ", *v.values())


def uninstall(owner: Owner, handle: int) -> bytes:
    return u32(owner.leg, handle)


def install(owner: Owner, data: bytes) -> int:
    return owner.client.number(Kind.INSTALL, u32(owner.leg) + data)


# --- REG_MR -------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [(6, 1), (6, 48), (12, 48), (30, 1), (30, 48)])
def test_regions_with_proof(owner: Owner, tree: tuple[int, int]) -> None:
    key = register(owner.client, owner.leg, tree=tree)
    assert key not in (0, owner.key)
    assert owner.client.request(Kind.DEREG_MR, u32(owner.leg, key)) == (b"", [])


@pytest.mark.parametrize(
    ("access", "tree", "status", "said"),
    [
        (WITH_PROOF, (0, 0), errno.EINVAL, "2^6..2^30, 1..48"),
        (WITH_PROOF, (12, 0), errno.EINVAL, "2^6..2^30, 1..48"),
        (WITH_PROOF, (0, 48), errno.EINVAL, "2^6..2^30, 1..48"),
        (WITH_PROOF, (5, 48), errno.EINVAL, "2^6..2^30, 1..48"),
        (WITH_PROOF, (31, 48), errno.EINVAL, "2^6..2^30, 1..48"),
        (WITH_PROOF, (12, 49), errno.EINVAL, "2^6..2^30, 1..48"),
        (WITH_PROOF, (255, 255), errno.EINVAL, "2^6..2^30, 1..48"),
        (REMOTE_READ, (12, 48), errno.EINVAL, "no PROOF"),
        (REMOTE_READ, (0, 1), errno.EINVAL, "no PROOF"),
        (ACCESS_PROOF, (12, 48), errno.EINVAL, "REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC"),
        (
            ACCESS_PROOF | LOCAL_WRITE,
            (12, 48),
            errno.EINVAL,
            "REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC",
        ),
        (ACCESS_PROOF | 8, (12, 48), errno.EINVAL, "need LOCAL_WRITE"),
        (ACCESS_PROOF | 16, (12, 48), errno.EOPNOTSUPP, "PROOF 0x100"),
        (0x400 | REMOTE_READ, (0, 0), errno.EOPNOTSUPP, "PROOF 0x100"),
    ],
)
def test_regions_that_are_refused(
    owner: Owner, access: int, tree: tuple[int, int], status: int, said: str
) -> None:
    body = reg_mr(owner.leg, access, LENGTH, tree=tree)
    assert said in owner.client.refused(status, Kind.REG_MR, body, [memfd(LENGTH)])


# --- CAP ----------------------------------------------------------------------------


def test_open_capability_equals_the_reference(owner: Owner) -> None:
    got = decode(token(owner))
    assert got.encode() == token(owner)  # the token of a capability is deterministic
    assert (got.region, got.rkey, got.rights) == (REGION, owner.key, READ | WRITE)
    assert (got.lo, got.hi, got.sealed) == (0, LENGTH, False)
    for lo, hi, rights in ((PAGE, 3 * PAGE, READ), (5 * PAGE, LENGTH, READ | WRITE)):
        part = token(owner, offset=lo, length=hi - lo, rights=rights)
        assert part == got.narrow(lo, hi, rights).encode()


@pytest.mark.parametrize(
    ("holder", "expiry"), [(HOLDER, 0), (NOBODY, 1), (HOLDER, 0xFFFFFFFF), (NOBODY, 0x7FFFFFFF)]
)
def test_sealed_capability_equals_the_reference(owner: Owner, holder: bytes, expiry: int) -> None:
    part = {"offset": PAGE, "length": 6 * PAGE}
    sealed = token(owner, holder=holder, expiry=expiry, **part)
    assert decode(sealed).sealed
    assert sealed == decode(token(owner, **part)).seal(holder, expiry).encode()


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"key": 0}, errno.ENOENT, "no region of this key"),
        ({"rights": 0}, errno.EACCES, "can grant 0x3"),
        ({"rights": READ | ATOMIC}, errno.EACCES, "ATOMIC 4 the region can grant 0x3"),
        ({"rights": 8}, errno.EACCES, "can grant 0x3"),
        ({"rights": 255}, errno.EACCES, "can grant 0x3"),
        ({"length": 0}, errno.ERANGE, "at least one"),
        ({"offset": LENGTH, "length": PAGE}, errno.ERANGE, "inside"),
        ({"offset": PAGE}, errno.ERANGE, "inside"),
        ({"length": LENGTH + 1}, errno.ERANGE, "inside"),
        ({"offset": PAGE, "length": 2**64 - PAGE}, errno.ERANGE, "inside"),
        ({"offset": 2**64 - 1, "length": 2**64 - 1}, errno.ERANGE, "inside"),
        ({"offset": 1, "length": PAGE}, errno.EINVAL, "a multiple of 4096"),
        ({"offset": 0, "length": PAGE - 1}, errno.EINVAL, "a multiple of 4096"),
        ({"offset": PAGE, "length": LENGTH - PAGE - 1}, errno.EINVAL, "a multiple of 4096"),
    ],
)
def test_capabilities_that_are_refused(
    owner: Owner, changes: dict[str, Any], status: int, said: str
) -> None:
    assert said in owner.client.refused(status, Kind.CAP, cap(owner, **changes))


def test_granule_is_larger_with_a_depth_limit(owner: Owner) -> None:
    shallow = owner._replace(key=register(owner.client, owner.leg, tree=(LOG2_PAGE, 2)))
    said = owner.client.refused(errno.EINVAL, Kind.CAP, cap(shallow, length=PAGE))
    assert f"a multiple of {4 * PAGE}" in said
    assert decode(token(shallow, length=4 * PAGE)).hi == 4 * PAGE


def test_capability_cannot_exceed_the_rights_of_the_region(owner: Owner) -> None:
    body = reg_mr(owner.leg, ACCESS_PROOF | REMOTE_READ, LENGTH, tree=(LOG2_PAGE, 48))
    reader = owner._replace(key=owner.client.number(Kind.REG_MR, body, [memfd(LENGTH)]))
    assert decode(token(reader, rights=READ)).rights == READ
    assert "can grant 0x1" in owner.client.refused(errno.EACCES, Kind.CAP, cap(reader))


def test_region_without_proof_has_no_capabilities(owner: Owner) -> None:
    plain = owner.client.number(Kind.REG_MR, reg_mr(owner.leg, 7, LENGTH), [memfd(LENGTH)])
    other = owner._replace(key=plain)
    for kind, body in ((Kind.CAP, cap(other)), (Kind.REVOKE, revoke(other))):
        assert "demands no proofs" in owner.client.refused(errno.EPERM, kind, body)


def test_region_of_another_leg_is_not_found(owner: Owner, a: Worker) -> None:
    client = a.client()
    thief = Owner(client, client.open()[0], owner.key)
    for kind, body in ((Kind.CAP, cap(thief)), (Kind.REVOKE, revoke(thief))):
        assert "no region of this key" in client.refused(errno.ENOENT, kind, body)
    second = owner._replace(leg=owner.client.open()[0])  # not even through the same connection
    for kind, body in ((Kind.CAP, cap(second)), (Kind.REVOKE, revoke(second))):
        assert "no region of this key" in owner.client.refused(errno.ENOENT, kind, body)


def test_regions_have_different_keys(owner: Owner) -> None:
    """Also regions of the same memory, and the same memory registered again."""
    seen = {token(owner, length=PAGE)[64:80]}
    for _ in range(3):
        again = owner._replace(key=register(owner.client, owner.leg))
        seen.add(token(again, length=PAGE)[64:80])
        owner.client.request(Kind.DEREG_MR, u32(owner.leg, again.key))
    assert len(seen) == 4


# --- long messages ------------------------------------------------------------------


@pytest.fixture
def huge(owner: Owner) -> Owner:
    """A region of 2^40 bytes in blocks of 64. Its memory is never touched."""
    try:
        key = register(owner.client, owner.leg, 1 << 40, (6, 48))
    except RefusedError as e:
        pytest.skip(f"no region of 2^40 bytes here: {e}")
    return owner._replace(key=key)


def test_long_tokens(huge: Owner) -> None:
    long = token(huge, offset=64, length=(1 << 40) - 128)
    assert len(decode(long).keys) == 2 * 2 * 33
    assert len(long) == 72 + 16 * 132
    handle = install(huge, long)
    huge.client.request(Kind.UNINSTALL, uninstall(huge, handle))


def test_longest_token(owner: Owner) -> None:
    region = Region(0, 1 << 54, 64, 48)
    longest = grant(bytes(16), region, owner.key, 64, (1 << 54) - 64, 7).encode()
    assert len(longest) == TOKEN_MAX
    assert install(owner, longest)


def test_client_that_reads_slowly(a: Worker, huge: Owner) -> None:
    """Long responses wait in the socket and in the worker, complete and in order."""
    client, body = huge.client, cap(huge, offset=64, length=(1 << 40) - 128)
    want = token(huge, offset=64, length=(1 << 40) - 128)
    client.socket.setblocking(False)
    tags = []
    while select.select([], [client.socket], [], 0.3)[1]:
        tags.append(client.send(Kind.CAP, body))
    assert len(tags) > 64
    assert a.client().alive()
    client.socket.settimeout(PATIENCE)
    for tag in tags:
        assert client.receive()[1:4] == (tag, 0, want)
    assert client.alive()


# --- INSTALL and UNINSTALL ----------------------------------------------------------


def test_install_and_uninstall(owner: Owner) -> None:
    first, second = (install(owner, token(owner)) for _ in range(2))
    assert 0 not in (first, second) and first != second
    assert owner.client.request(Kind.UNINSTALL, uninstall(owner, first)) == (b"", [])
    for handle in (first, 0, second ^ 1024, 0xFFFFFFFF):
        said = owner.client.refused(errno.ENOENT, Kind.UNINSTALL, uninstall(owner, handle))
        assert "no capability of this handle" in said
    owner.client.request(Kind.UNINSTALL, uninstall(owner, second))


def test_handle_of_another_leg_is_not_found(owner: Owner, a: Worker) -> None:
    handle = install(owner, token(owner))
    client = a.client()
    other = Owner(client, client.open()[0], owner.key)
    for thief in (other, owner._replace(leg=owner.client.open()[0])):
        body = uninstall(thief, handle)
        assert "no capability" in thief.client.refused(errno.ENOENT, Kind.UNINSTALL, body)
    owner.client.request(Kind.UNINSTALL, uninstall(owner, handle))


def test_sealed_and_foreign_tokens_can_be_installed(owner: Owner) -> None:
    assert install(owner, token(owner, holder=HOLDER, expiry=1))
    assert install(owner, grant(b"k" * 16, REGION, 77, 0, LENGTH, ATOMIC).encode())


@pytest.mark.parametrize("length", [TOKEN_MIN, TOKEN_MIN + 8, TOKEN_MIN + 16, TOKEN_MAX])
@pytest.mark.parametrize("fill", ["zeros", "random"])
def test_garbage_is_not_a_token(owner: Owner, length: int, fill: str) -> None:
    data = bytes(length) if fill == "zeros" else Random(length).randbytes(length)
    with pytest.raises(RefusedError, match="token") as caught:
        install(owner, data)
    assert caught.value.status == errno.EPROTO
    assert owner.client.alive()


def test_truncated_tokens(owner: Owner) -> None:
    whole = token(owner, offset=PAGE, length=6 * PAGE)
    for length in range(len(whole)):
        # below TOKEN_MIN: no INSTALL has this length
        status = errno.EPROTO if length < TOKEN_MIN else errno.EBADMSG
        with pytest.raises(RefusedError) as caught:
            install(owner, whole[:length])
        assert caught.value.status == status, length
    assert owner.client.alive()


def test_flipped_tokens(owner: Owner) -> None:
    whole = token(owner)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RefusedError, match="token") as caught:
            install(owner, bytes(flipped))
        status = caught.value.status
        assert status in (errno.EBADMSG, errno.EPROTO, errno.EMSGSIZE), bit
    assert owner.client.alive()


def test_number_of_installed_capabilities_is_limited(owner: Owner) -> None:
    data = token(owner)
    handles = [install(owner, data) for _ in range(GRANTS)]
    assert len(set(handles)) == GRANTS
    body = u32(owner.leg) + data
    assert "limit of 1024 capabilities" in owner.client.refused(errno.EDQUOT, Kind.INSTALL, body)
    owner.client.request(Kind.UNINSTALL, uninstall(owner, handles[500]))
    assert install(owner, data) not in handles
    other = owner._replace(leg=owner.client.open()[0])
    assert install(other, data)  # the limit applies per leg


# --- REVOKE -------------------------------------------------------------------------


def test_revoking_a_region_changes_all_its_keys(owner: Owner) -> None:
    before = decode(token(owner))
    assert owner.client.request(Kind.REVOKE, revoke(owner)) == (b"", [])
    after = decode(token(owner))
    assert after.region == before.region
    assert not set(before.keys) & set(after.keys)


def test_revoked_range_has_its_own_tree(owner: Owner) -> None:
    """A later capability for a part of the range names the range as its region."""
    before = decode(token(owner))
    owner.client.request(Kind.REVOKE, revoke(owner, 4 * PAGE, 4 * PAGE))
    inside = decode(token(owner, offset=5 * PAGE, length=PAGE))
    assert inside.region == Region(ADDRESS + 4 * PAGE, ADDRESS + 8 * PAGE, PAGE, 48)
    assert (inside.lo, inside.hi) == (PAGE, 2 * PAGE)
    outside = token(owner, offset=8 * PAGE, length=8 * PAGE)
    assert outside == before.narrow(8 * PAGE, LENGTH, READ | WRITE).encode()
    said = owner.client.refused(errno.ERANGE, Kind.CAP, cap(owner))
    assert "cross an edge of the revoked range 16384 to 32768" in said


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"key": 0}, errno.ENOENT, "no region of this key"),
        ({"offset": 1, "length": PAGE}, errno.EINVAL, "a multiple of 4096"),
        ({"offset": 0, "length": PAGE + 1}, errno.EINVAL, "a multiple of 4096"),
        ({"offset": PAGE, "length": 0}, errno.ERANGE, "at least one"),
        ({"offset": LENGTH, "length": PAGE}, errno.ERANGE, "inside"),
        ({"offset": 0, "length": LENGTH + PAGE}, errno.ERANGE, "inside"),
        ({"offset": PAGE, "length": 2**64 - PAGE}, errno.ERANGE, "inside"),
        ({"offset": 2 * PAGE, "length": 2**64 - PAGE}, errno.ERANGE, "inside"),
        ({"offset": 2**64 - PAGE, "length": 2 * PAGE}, errno.ERANGE, "inside"),
    ],
)
def test_revocations_that_are_refused(
    owner: Owner, changes: dict[str, int], status: int, said: str
) -> None:
    before = token(owner)
    assert said in owner.client.refused(status, Kind.REVOKE, revoke(owner, **changes))
    assert token(owner) == before  # nothing was revoked


def test_number_of_revoked_ranges_is_limited(owner: Owner) -> None:
    length = 2 * (REVOKED + 1) * 64
    many = owner._replace(key=register(owner.client, owner.leg, length, (6, 48)))
    for i in range(REVOKED):
        owner.client.request(Kind.REVOKE, revoke(many, 128 * i, 64))
    body = revoke(many, 128 * REVOKED, 64)
    said = owner.client.refused(errno.ENOSPC, Kind.REVOKE, body)
    assert "limit of 64 revoked ranges; revoke the whole region" in said
    owner.client.request(Kind.REVOKE, revoke(many, 0, 64))  # replaces an equal range
    owner.client.request(Kind.REVOKE, revoke(many, 0, 256))  # replaces two ranges
    owner.client.request(Kind.REVOKE, body)
    owner.client.request(Kind.REVOKE, revoke(many))  # replaces all ranges
    assert decode(token(many, length=length)).hi == length


def test_deregistered_region_is_not_found(owner: Owner) -> None:
    owner.client.request(Kind.DEREG_MR, u32(owner.leg, owner.key))
    for kind, body in ((Kind.CAP, cap(owner)), (Kind.REVOKE, revoke(owner))):
        assert "no region of this key" in owner.client.refused(errno.ENOENT, kind, body)


def test_end_of_a_leg_removes_its_regions(owner: Owner, a: Worker) -> None:
    """Its regions, revoked ranges and capabilities are removed with it."""
    client = a.client()
    install(owner, token(owner))
    owner.client.request(Kind.REVOKE, revoke(owner, 0, PAGE))
    owner.client.close()
    for kind, body in (
        (Kind.CAP, cap(owner)),
        (Kind.INSTALL, u32(owner.leg) + bytes(TOKEN_MIN)),
        (Kind.UNINSTALL, uninstall(owner, 1)),
        (Kind.REVOKE, revoke(owner)),
    ):
        assert "this connection" in client.refused(errno.EPERM, kind, body)


# --- secrets ------------------------------------------------------------------------


def test_capabilities_are_wiped_after_use(owner: Owner, a: Worker) -> None:
    """Afterwards the keys are only in the table of installed capabilities, as K_access. Buffers
    with the token itself are wiped."""
    mine = grant(b"0123456789abcdef", REGION, 77, 0, LENGTH, READ)
    node_key = mine.keys[0]
    handle = install(owner, mine.encode())
    sealed = Capability(**vars(mine) | {"expiry": 5, "keys": (b"only this token.",)}).encode()
    kept = install(owner, sealed)
    token(owner)  # this request puts another key into the worker's single CMAC context
    try:
        assert a.copies(node_key) == 0
        assert a.copies(b"only this token.") == 1
        owner.client.request(Kind.UNINSTALL, uninstall(owner, handle))
        owner.client.request(Kind.UNINSTALL, uninstall(owner, kept))
        assert a.copies(b"only this token.") == 0
    except PermissionError:
        pytest.skip("the worker is not dumpable: only root may read its memory")
