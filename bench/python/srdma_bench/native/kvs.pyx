# cython: language_level=3, embedsignature=True
"""The key-value store of the benchmark (bench/kvs) on legs of shared memory, without the GIL.

These are bindings instead of a separate program, because only the process that opened a leg can
use it: the page with the leg owner's sleep flag can be mapped writable only once (local-interface.md 4).
The caller holds the lock of the PD during a call.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EBADMSG, EINTR, EIO, ENOSPC, EPROTO
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc

from srdma.native.leg cimport Host, Pinned, ShmLeg

SLOT_LEN = KVS_SLOT_LEN
KEY_LEN = KVS_KEY_LEN
VALUE_LEN = KVS_VALUE_LEN


def mixes():
    """The mixes of requests: name -> description."""
    cdef const kvs_mix_row *row
    cdef unsigned i = 0
    found = {}
    while (row := kvs_mix_at(i)) != NULL:
        found[row.name.decode()] = row.what.decode()
        i += 1
    return found


def key(uint64_t number):
    """The key with this number, counted from 0; KEY_LEN bytes."""
    out = bytearray(KVS_KEY_LEN)
    kvs_key_make(out, number)
    return bytes(out)


def sealed(bytearray slot):
    """The slot of a request (SLOT_LEN bytes) with a correct checksum; for tests."""
    cdef uint8_t[::1] at = slot
    if at.shape[0] != KVS_SLOT_LEN:
        raise ValueError(f"a slot has {at.shape[0]} bytes: it must have {KVS_SLOT_LEN}")
    kvs_request_seal(<kvs_request *>&at[0])
    return bytes(slot)


class Trouble(Exception):
    """A run failed. The text has the reason; for a failed completion the arguments are text,
    opcode, status and vendor error."""


cdef class Store:
    """The index of the store, with room for `items` keys."""

    cdef kvs_index *index

    def __cinit__(self, uint32_t items):
        cdef uint64_t[2] seed
        seed[0], seed[1] = (int.from_bytes(os.urandom(8), "big") for _ in range(2))
        if kvs_index_create(&self.index, items, 0, seed) < 0:
            raise MemoryError(f"no memory for a store of {items} keys")

    def __dealloc__(self):
        kvs_index_destroy(self.index)

    def fill(self, uint32_t keys):
        """Put version 0 of the first `keys` keys. Returns the number of keys in the store."""
        cdef uint8_t[KVS_KEY_LEN] key
        cdef uint8_t[KVS_VALUE_LEN] value
        cdef uint32_t i
        with nogil:
            for i in range(keys):
                kvs_key_make(key, i)
                kvs_value_make(value, i, 0)
                if kvs_index_put(self.index, kvs_index_hash(self.index, key), key, value) < 0:
                    break
        return kvs_index_count(self.index)

    @property
    def count(self):
        return kvs_index_count(self.index)

    @property
    def spares(self):
        """Number of overflow buckets in use."""
        return kvs_index_spares(self.index)


cdef kvs_end end_of(Host host, ShmLeg leg):
    cdef kvs_end end
    end.host, end.leg, end.idle = host.h, leg.leg, 0
    return end


cdef class Server:
    """A server of a Store. connections: (QP number, depth of its send queue, number of slots,
    memory of the slots) each; keeps references to the memory."""

    cdef kvs_server *server
    cdef object held

    def __cinit__(self, Host host not None, ShmLeg leg not None, Store store not None,
                  list connections not None):
        cdef kvs_end end = end_of(host, leg)
        cdef uint32_t i, n = <uint32_t>len(connections)
        cdef kvs_served *served = <kvs_served *>malloc((n + 1) * sizeof(kvs_served))
        cdef int rc
        if served == NULL:
            raise MemoryError(f"no memory for a server of {n} connections")
        pinned = []
        try:
            for i, (qpn, sq, slots, memory) in enumerate(connections):
                pinned.append(Pinned(memory, False))
                served[i].qpn, served[i].sq, served[i].slots = qpn, sq, slots
                served[i].memory = <const uint8_t *><size_t>pinned[i].addr
            rc = kvs_server_create(&self.server, &end, store.index, served, n)
        finally:
            free(served)
        if rc < 0:
            raise ValueError(f"cannot create a server of {n} connections: {os.strerror(-rc)}")
        self.held = host, leg, store, pinned

    def __dealloc__(self):
        kvs_server_destroy(self.server)

    def run(self, uint64_t ns):
        """Serve for `ns`, or until all clients have sent BYE. Returns the number of connections
        without BYE."""
        cdef int left
        with nogil:
            left = kvs_server_run(self.server, ns)
        return left

    @property
    def counts(self):
        return dict(_server_counts(self.server)[0])


cdef class Trace:
    """Requests of a run, drawn before it: `count` requests of a mix over `keys` keys."""

    cdef kvs_wish *wishes
    cdef const kvs_mix_row *mix
    cdef readonly uint32_t count

    def __cinit__(self, str mix, uint32_t count, uint32_t keys, double theta, uint64_t seed):
        cdef int rc = -1
        self.mix, self.count = kvs_mix_named(mix.encode()), count
        self.wishes = <kvs_wish *>malloc((count + 1) * sizeof(kvs_wish))
        if self.wishes != NULL and self.mix != NULL:
            with nogil:
                rc = kvs_trace_throw(self.wishes, count, self.mix, keys, theta, seed)
        if rc < 0:
            raise ValueError(f"cannot draw a trace: mix {mix!r}, {keys} keys, theta {theta}")

    def __dealloc__(self):
        free(self.wishes)

    @property
    def inserts(self):
        """True if the mix inserts keys: a GET may then precede the PUT of its key."""
        return bool(self.mix.insert)


cdef class History:
    """A record of at most `capacity` requests and responses, which the model checks."""

    cdef kvs_history *history

    def __cinit__(self, uint32_t capacity):
        if kvs_history_create(&self.history, capacity) < 0:
            raise MemoryError(f"no memory for a history of {capacity} requests")

    def __dealloc__(self):
        kvs_history_destroy(self.history)

    def __len__(self):
        return kvs_history_count(self.history)

    def check(self, uint32_t keys):
        """Check all responses. Returns None, or (key, version, start, end) of a wrong one."""
        cdef kvs_event wrong
        cdef int right
        with nogil:
            right = kvs_history_check(self.history, keys, &wrong)
        if right < 0:
            raise MemoryError("no memory for the check of a history")
        return None if right else (wrong.id, wrong.version, wrong.start, wrong.end)


cdef int _interrupted(void *client) noexcept with gil:
    """True if the handler of a signal raised; ends the run."""
    try:
        PyErr_CheckSignals()
    except BaseException as trouble:
        (<Client>client).interrupt = trouble
    return (<Client>client).interrupt is not None


cdef class Client:
    """The clients of a server. connections: (QP number, (sq, rq), depth, slots, (address, rkey,
    capability handle), (memory for responses, lkey)) each; keeps references to the memory."""

    cdef kvs_client *client
    cdef object held
    cdef object interrupt  # what a signal's handler raised

    def __cinit__(self, Host host not None, ShmLeg leg not None, list connections not None,
                  uint32_t keys, uint32_t capacity):
        cdef kvs_end end = end_of(host, leg)
        cdef uint32_t i, n = <uint32_t>len(connections)
        cdef kvs_asker *a = <kvs_asker *>malloc((n + 1) * sizeof(kvs_asker))
        cdef int rc
        if a == NULL:
            raise MemoryError(f"no memory for a client of {n} connections")
        pinned = []
        try:
            for i, (qpn, queues, depth, slots, remote, landing) in enumerate(connections):
                pinned.append(Pinned(landing[0], True))
                a[i].qpn, a[i].depth, a[i].slots = qpn, depth, slots
                a[i].sq, a[i].rq = queues
                a[i].remote_addr, a[i].rkey, a[i].capability = remote
                a[i].landing, a[i].lkey = <uint8_t *><size_t>pinned[i].addr, landing[1]
            rc = kvs_client_create(&self.client, &end, a, n, keys, capacity)
        finally:
            free(a)
        if rc < 0:
            raise ValueError(f"cannot create a client of {n} connections: {os.strerror(-rc)}")
        self.held = host, leg, pinned

    def __dealloc__(self):
        kvs_client_destroy(self.client)

    def record(self, History history):
        """Record all requests and responses from now on in `history`; None: stop recording."""
        kvs_client_record(self.client, NULL if history is None else history.history)
        self.held += (history,)

    def run(self, Trace trace, uint64_t ns=0):
        """Run for `ns`, or once through the trace if ns is 0; without a trace GET every key.

        Raises Trouble, and the exception of a signal handler.
        """
        cdef kvs_plan plan
        cdef kvs_trouble trouble
        cdef int rc
        plan.wishes, plan.count, plan.mix, plan.ns = NULL, 0, NULL, 0
        if trace is not None:
            plan.wishes, plan.count, plan.mix = trace.wishes, trace.count, trace.mix
            plan.ns = ns
        plan.look, plan.arg = _interrupted, <void *>self
        with nogil:
            rc = kvs_client_run(self.client, &plan, &trouble)
        self.check(rc, &trouble)

    def bye(self):
        cdef kvs_trouble trouble
        cdef int rc
        with nogil:
            rc = kvs_client_bye(self.client, &trouble)
        self.check(rc, &trouble)

    cdef int check(self, int rc, kvs_trouble *t) except -1:
        if rc == 0:
            return 0
        if rc == -EINTR:
            interrupt, self.interrupt = self.interrupt, None
            raise interrupt
        if rc == -EIO:
            raise Trouble("a work request failed", t.record.opcode, t.record.status,
                          t.record.vendor_err)
        if rc == -EBADMSG:
            raise Trouble(f"a response has a value that does not belong to key {t.id}")
        if rc == -EPROTO:
            raise Trouble(f"a response for key {t.id} has the unexpected status {t.status}")
        if rc == -ENOSPC:
            raise Trouble("the history is full: make it larger")
        raise Trouble(os.strerror(-rc))

    def reset(self):
        kvs_client_reset(self.client)

    def quantile(self, double q):
        """The q-quantile of the latencies, ns."""
        return kvs_latency_quantile(_client_latency(self.client), q)

    @property
    def counts(self):
        return dict(_client_counts(self.client)[0])

    @property
    def keys(self):
        """Number of keys in the store, by the PUTs of this client."""
        return kvs_client_keys(self.client)
