# cython: language_level=3, embedsignature=True
"""Sessions, keys, suites and host leg formats of csrc, for tests only."""

import errno
import os

cimport cython
from libc.stddef cimport size_t
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from srdma.native.buffers cimport put
from srdma.native.csrc cimport *
from srdma.native.packet cimport accepted, get_packet
from tests.native.session cimport *

from srdma.native.packet import REFUSALS, RefusedError, parse
from srdma.native.suites import suites

# --- errors and bytes -------------------------------------------------------


cdef int check(int result, str what) except -1:
    """The result, or its -errno as an exception."""
    if result >= 0:
        return result
    if result == -errno.EINVAL:
        raise ValueError(f"{what}: not legal in srdma-1 (protocol.md 2, 3, 4)")
    if result == -errno.ENOTSUP:
        raise NotImplementedError(f"{what}: not in this version (protocol.md 15)")
    raise OSError(-result, f"{what}: {os.strerror(-result)}")


# --- packets as dictionaries ------------------------------------------------


cdef int set_ack(srdma_ack_body *a, dict f) except -1:
    gaps = f.get("gaps", ())
    if len(gaps) > SRDMA_MAX_GAPS:
        raise ValueError(f"{len(gaps)} gaps: an ack body has at most {SRDMA_MAX_GAPS}")
    a.kind, a.reason = f["kind"], f.get("reason", 0)
    a.request_id, a.offset = f.get("request_id", 0), f.get("offset", 0)
    a.highest_pn = f.get("highest_pn", 0)
    a.recv_credit, a.request_credit = f.get("recv_credit", 0), f.get("request_credit", 0)
    a.gaps, a.skips = <uint8_t>len(gaps), f.get("skips", 0)
    a.path = f.get("path", 0)
    for i, (request_id, offset, length) in enumerate(gaps):
        a.gap[i] = srdma_gap(request_id, offset, length)
    return 0


cdef const uint8_t *access_key(bytes key) except NULL:
    """The bytes of K_access; valid as long as `key` is alive."""
    if len(key) != SRDMA_PROOF_LEN:
        raise ValueError(f"K_access has {SRDMA_PROOF_LEN} bytes, not {len(key)}")
    return key


cdef int set_packet(srdma_packet *p, dict f) except -1:
    memset(p, 0, sizeof(p[0]))
    p.opcode, p.request_id = f["opcode"], f["request_id"]
    p.flags, p.offset = f.get("flags", 0), f.get("offset", 0)
    p.depth, p.expiry = f.get("depth", 0), f.get("expiry", 0)
    put(p.proof, SRDMA_PROOF_LEN, f.get("proof", bytes(SRDMA_PROOF_LEN)), "proof")
    if f.get("access_key") is not None:
        p.access_key = access_key(f["access_key"])
    p.va, p.rkey, p.dma_len = f.get("va", 0), f.get("rkey", 0), f.get("dma_len", 0)
    p.swap_add, p.compare = f.get("swap_add", 0), f.get("compare", 0)
    p.original, p.imm = f.get("original", 0), f.get("imm", 0)
    if f.get("ack") is not None:
        set_ack(&p.ack, f["ack"])
    return 0


def infer(uint64_t expected, uint32_t low):
    """The number nearest to `expected` with these low 24 bits; None if there is none."""
    cdef uint64_t number
    return number if srdma_window_infer(&number, expected, low) == 0 else None


# --- host leg formats -------------------------------------------------------


def encode_descriptor(dict f):
    cdef srdma_desc d = f
    cdef uint8_t out[SRDMA_DESC_LEN + SRDMA_OPERANDS_LEN]
    cdef uint32_t used = srdma_desc_encode(out, &d)
    return out[:used]


def decode_descriptor(bytes slot):
    cdef srdma_desc d
    check(srdma_desc_decode(&d, slot, len(slot)), "descriptor")
    return d


def encode_record(dict f):
    cdef srdma_record r = f
    cdef uint8_t out[SRDMA_RECORD_LEN]
    srdma_record_encode(out, &r)
    return out[:SRDMA_RECORD_LEN]


def decode_record(bytes data):
    cdef srdma_record r
    if len(data) != SRDMA_RECORD_LEN:
        raise ValueError(f"a completion record has {SRDMA_RECORD_LEN} bytes, not {len(data)}")
    srdma_record_decode(&r, data)
    return r


# --- keys and suites --------------------------------------------------------


def kdf(bytes parent, str label, bytes context, size_t n):
    cdef uint8_t out[255]
    cdef bytes ascii = label.encode("ascii")
    cdef srdma_kdf_info info = srdma_kdf_info(ascii, context, len(context))
    if n > sizeof(out):
        raise ValueError(f"{n} bytes asked for, at most {sizeof(out)} can be derived")
    check(srdma_kdf(out, n, parent, len(parent), &info), "kdf")
    derived = out[:n]
    srdma_wipe(out, sizeof(out))
    return derived


cdef int set_endpoint(srdma_endpoint *e, tuple end, str name) except -1:
    put(e.eid, SRDMA_EID_LEN, end[0], name)
    e.qpn = end[1]
    return 0


def pd_secret(bytes group_key, tuple receiver, tuple sender, bytes generation, size_t size):
    """Secret S of the direction from sender to receiver, both (endpoint id, SRC QPN).

    group_key: K_PD16 | K_PD32 of the receiver.
    """
    cdef srdma_pdkeys keys
    cdef srdma_pdkeys_flow flow
    cdef uint8_t out[SRDMA_MAX_SECRET]
    set_endpoint(&flow.receiver, receiver, "receiver")
    set_endpoint(&flow.sender, sender, "sender")
    put(flow.generation, SRDMA_GENERATION_LEN, generation, "generation")
    put(keys.pd, SRDMA_GROUP_KEY_LEN, group_key, "group_key")
    result = srdma_pdkeys_secret(&keys, out, min(size, sizeof(out) + 1), &flow)
    srdma_wipe(&keys, sizeof(keys))
    check(result, "pd_secret")
    secret = out[:size]
    srdma_wipe(out, sizeof(out))
    return secret


cdef class Provider:
    """A crypto provider (provider.h), for use by one thread."""

    cdef srdma_provider *provider

    def __cinit__(self, str name):
        result = srdma_provider_create(&self.provider, name.encode())
        if result == -errno.ENOENT:
            raise ValueError(f"this build has no provider {name!r}")
        check(result, f"provider {name}")

    def __dealloc__(self):
        srdma_provider_destroy(self.provider)


cdef class Suite:
    """A keyed suite without a session: for vectors and measurements only.

    A MAC suite authenticates the associated data followed by the payload.
    provider: None for OpenSSL.
    """

    cdef const srdma_suite *row
    cdef const srdma_suite_verbs *verbs
    cdef Provider provider
    cdef srdma_suite_ctx *sealer
    cdef srdma_suite_ctx *opener
    cdef readonly uint32_t tag_len

    def __cinit__(self, str name, bytes key, tag_len=None, Provider provider=None):
        cdef srdma_provider *p = NULL if provider is None else provider.provider
        self.provider = provider
        self.row = srdma_suite_by_name(name.encode())
        if self.row == NULL:
            raise ValueError(f"no suite is named {name!r}")
        if len(key) != self.row.key_len:
            raise ValueError(f"{name} takes a key of {self.row.key_len} bytes, not {len(key)}")
        self.tag_len = self.row.tag_len if tag_len is None else tag_len
        what = f"{name} with a tag of {self.tag_len} bytes"
        self.verbs = srdma_provider_verbs(p, self.row)
        cdef srdma_suite_key k = srdma_suite_key(self.row, SRDMA_SUITE_SEAL, self.tag_len, key)
        check(self.verbs.create(&self.sealer, p, &k), what)
        k.use = SRDMA_SUITE_OPEN
        check(self.verbs.create(&self.opener, p, &k), what)

    def __dealloc__(self):
        if self.verbs != NULL:
            self.verbs.destroy(self.sealer)
            self.verbs.destroy(self.opener)

    cdef srdma_suite_io io(self, bytes nonce, bytes ad, bytes payload, bytearray out) except *:
        if len(nonce) != self.row.iv_len:
            raise ValueError(f"a nonce has {self.row.iv_len} bytes here, not {len(nonce)}")
        return srdma_suite_io(nonce, ad, len(ad), payload, len(payload), out)

    def seal(self, bytes nonce, bytes ad, bytes payload):
        """Returns (payload as on the wire, tag)."""
        cdef uint8_t tag[SRDMA_MAX_TAG]
        out = bytearray(payload)
        cdef srdma_suite_io io = self.io(nonce, ad, payload, out)
        check(self.verbs.seal(self.sealer, &io, tag), "seal")
        return bytes(out), tag[:self.tag_len]

    def open(self, bytes nonce, bytes ad, bytes payload, bytes tag):
        """Returns the plaintext; RefusedError if the tag does not match."""
        out = bytearray(payload)
        cdef srdma_suite_io io = self.io(nonce, ad, payload, out)
        if len(tag) != self.tag_len:
            raise ValueError(f"a tag has {self.tag_len} bytes here, not {len(tag)}")
        result = self.verbs.open(self.opener, &io, tag)
        if result == -errno.EBADMSG:
            raise RefusedError("tag")
        check(result, "open")
        return bytes(out)


# --- sessions ---------------------------------------------------------------


cdef class KeyCache:
    """Cache of the keyed contexts of sessions in key mode pd (keycache.h)."""

    cdef srdma_keycache *cache

    def __cinit__(self, unsigned contexts):
        check(srdma_keycache_create(&self.cache, contexts, NULL), "key cache")

    def __dealloc__(self):
        srdma_keycache_destroy(self.cache)

    @property
    def counts(self):
        """Hits, misses, and number of contexts kept now."""
        cdef srdma_keycache_counts counts
        srdma_keycache_count(self.cache, &counts)
        return counts


cdef int set_params(srdma_session_params *p, dict f) except -1:
    memset(p, 0, sizeof(p[0]))
    p.role, p.suite, p.level = f["role"], f["suite"], f["level"]
    p.mode, p.tag_len = f.get("mode", 0), f["tag_len"]
    p.window, p.mtu = f.get("window", 64), f.get("mtu", SRDMA_MAX_PAYLOAD)
    p.local_qpn, p.peer_qpn = f["local_qpn"], f["peer_qpn"]
    p.tx_pn, p.rx_pn = f["tx_pn"], f["rx_pn"]
    p.shared = f.get("shared", False)
    p.rekey_packets, p.rekey_bytes = f.get("rekey_packets", 0), f.get("rekey_bytes", 0)
    p.rekey_ns = f.get("rekey_ns", 0)
    p.secret_len = <uint8_t>min(len(f["tx_secret"]), 255)
    put(p.generation, SRDMA_GENERATION_LEN, f["generation"], "generation")
    put(p.local_eid, SRDMA_EID_LEN, f["local_eid"], "local_eid")
    put(p.peer_eid, SRDMA_EID_LEN, f["peer_eid"], "peer_eid")
    size = min(p.secret_len, SRDMA_MAX_SECRET)
    put(p.tx_secret, size, f["tx_secret"], "tx_secret")
    put(p.rx_secret, size, f["rx_secret"], "rx_secret")
    return 0


@cython.no_gc_clear  # the session is freed before its cache
cdef class Session:
    """Both directions of one SRC QP's protection (session.h).

    In key mode pd `group_key` is K_PD16 | K_PD32 of the local leg. Secrets that are derived from
    it are ignored in the parameters.
    """

    cdef srdma_session *session
    cdef srdma_pdkeys keys
    cdef srdma_cmac cmac
    cdef KeyCache cache
    cdef srdma_packet opened  # last

    def __cinit__(self, dict params):
        cdef srdma_session_params p
        try:
            set_params(&p, params)
            self.lend(&p, params)
            check(srdma_session_create(&self.session, &p), "session")
        finally:
            srdma_wipe(&p, sizeof(p))

    cdef int lend(self, srdma_session_params *p, dict f) except -1:
        """Sets the objects that the session only points to."""
        self.cache = f.get("key_cache")
        if self.cache is not None:
            p.cache = self.cache.cache
        if f.get("group_key") is not None:
            put(self.keys.pd, SRDMA_GROUP_KEY_LEN, f["group_key"], "group_key")
            p.pd = &self.keys
        if p.mode & SRDMA_MODE_MEM:
            check(srdma_cmac_create(&self.cmac, SRDMA_PROOF_LEN, NULL), "session")
            p.cmac = &self.cmac
        return 0

    def __dealloc__(self):
        self.close()

    def close(self):
        """Wipes the keys. A second call does nothing."""
        srdma_session_destroy(self.session)
        self.session = NULL
        srdma_cmac_destroy(&self.cmac)
        srdma_wipe(&self.keys, sizeof(self.keys))

    cdef srdma_session *alive(self) except NULL:
        if self.session == NULL:
            raise ValueError("the session is closed")
        return self.session

    def seal(self, dict fields, bytes payload):
        """Returns the datagram with the next packet number; `access_key` adds a proof."""
        cdef srdma_packet p
        cdef uint8_t out[SRDMA_MAX_PACKET]
        set_packet(&p, fields)
        p.payload_len = <uint32_t>len(payload)
        length = check(
            srdma_session_seal(self.alive(), &p, payload, out, sizeof(out)), "packet"
        )
        return out[:length]

    def open(self, bytes data):
        """Returns the fields with `pn`, the 64-bit request id and `payload`; or RefusedError."""
        cdef uint8_t plain[SRDMA_MAX_PAYLOAD]
        p = &self.opened
        result = srdma_session_open(self.alive(), p, data, len(data), plain)
        if result < 0:
            p.flags = 0  # no proof: claim() refuses it
        accepted(result)
        fields = get_packet(p)
        fields["pn"] = p.pn
        fields["payload"] = plain[:p.payload_len]
        return fields

    def claim(self):
        """The bytes that the proof of the packet opened last covers."""
        cdef const uint8_t *ad
        if not self.opened.flags & SRDMA_STH_PROOF:
            raise ValueError("the packet that was opened last has no proof")
        length = srdma_session_claim(self.alive(), &self.opened, &ad)
        return ad[:length]

    def advance(self, uint64_t now, uint64_t told):
        """Call before a packet is sealed. 1: the next epoch began; 0: none is due; -1: one is due
        but not permitted yet. `now` in ns; `told`: highest packet number that the peer
        acknowledged."""
        result = srdma_session_advance(self.alive(), now, told)
        return -1 if result == -errno.EAGAIN else check(result, "epoch")

    def renew(self, int direction, bytes secret):
        """Gives a new secret for direction 1 (RX) or 2 (TX). In key mode pd the RX secret is
        derived from the newest K_PD, and `secret` is ignored."""
        cdef uint8_t given[SRDMA_MAX_SECRET]
        put(given, min(srdma_session_secret_len(self.alive()), sizeof(given)), secret, "secret")
        result = srdma_session_renew(
            self.session, <srdma_direction>direction, given, self.keys.serial
        )
        srdma_wipe(given, sizeof(given))
        check(result, "secret")

    def rotate(self, bytes group_key):
        """Replaces K_PD of the local leg."""
        cdef uint8_t given[SRDMA_GROUP_KEY_LEN]
        put(given, sizeof(given), group_key, "group_key")
        result = srdma_pdkeys_rotate(&self.keys, given)
        srdma_wipe(given, sizeof(given))
        check(result, "K_PD")

    @property
    def epochs(self):
        """(epoch of packets sent, highest verified epoch of the peer)."""
        s = self.alive()
        return srdma_session_epoch(s, SRDMA_TX), srdma_session_epoch(s, SRDMA_RX)

    @property
    def state(self):
        """Bytes that the session stores for keys, nonces and windows."""
        cdef srdma_session_state state
        srdma_session_state_of(self.alive(), &state)
        return state

    def limit(self, uint64_t packets, uint64_t forgeries):
        check(srdma_session_limit(self.alive(), packets, forgeries), "limit")

    @property
    def next_pn(self):
        return srdma_session_next_pn(self.alive())

    @property
    def highest(self):
        return srdma_session_highest(self.alive())

    @property
    def forgeries(self):
        return srdma_session_forgeries(self.alive())

    @property
    def spent(self):
        return srdma_session_spent(self.alive()) != 0

    @property
    def overhead(self):
        return srdma_session_overhead(self.alive())
