# cython: language_level=3, embedsignature=True
"""The key-value store of the benchmark (bench/kvs) on legs of shared memory, without the GIL.

A skin over the C code instead of a program of its own: the page on which a leg's owner says that
it sleeps can be mapped for writing once only (local-interface.md 4), so who opened a leg must use it.
The caller holds the lock of the PD while a call runs.
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
    """What there is to ask for, by name."""
    cdef const kvs_mix_row *row
    cdef unsigned i = 0
    found = {}
    while (row := kvs_mix_at(i)) != NULL:
        found[row.name.decode()] = row.what.decode()
        i += 1
    return found


def key(uint64_t number):
    """Of the store: number `number` from 0 on."""
    out = bytearray(KVS_KEY_LEN)
    kvs_key_make(out, number)
    return bytes(out)


def sealed(bytearray slot):
    """The slot of a request with its check as an honest client computes it; for tests."""
    cdef uint8_t[::1] at = slot
    if at.shape[0] != KVS_SLOT_LEN:
        raise ValueError(f"a slot has {KVS_SLOT_LEN} bytes")
    kvs_request_seal(<kvs_request *>&at[0])
    return bytes(slot)


class Trouble(Exception):
    """A run that went wrong: -errno, key, and what the answer or completion said."""


cdef class Store:
    """The index."""

    cdef kvs_index *index

    def __cinit__(self, uint32_t items):
        cdef uint64_t[2] seed
        seed[0], seed[1] = (int.from_bytes(os.urandom(8), "big") for _ in range(2))
        if kvs_index_create(&self.index, items, 0, seed) < 0:
            raise MemoryError(f"no store of {items} keys")

    def __dealloc__(self):
        kvs_index_destroy(self.index)

    def fill(self, uint32_t keys):
        """Version 0 of the first keys. How many it took."""
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
        """Buckets that continue full ones."""
        return kvs_index_spares(self.index)


cdef kvs_end end_of(Host host, ShmLeg leg):
    cdef kvs_end end
    end.host, end.leg, end.idle = host.h, leg.leg, 0
    return end


cdef class Server:
    """connections: (QP number, depth of its send queue, slots, their memory) each."""

    cdef kvs_server *server
    cdef object held

    def __cinit__(self, Host host not None, ShmLeg leg not None, Store store not None,
                  list connections not None):
        cdef kvs_end end = end_of(host, leg)
        cdef uint32_t i, n = <uint32_t>len(connections)
        cdef kvs_served *served = <kvs_served *>malloc((n + 1) * sizeof(kvs_served))
        cdef int rc
        if served == NULL:
            raise MemoryError(f"no server of {n} connections")
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
            raise ValueError(f"no server of {n} connections: {os.strerror(-rc)}")
        self.held = host, leg, store, pinned

    def __dealloc__(self):
        kvs_server_destroy(self.server)

    def run(self, uint64_t ns):
        """Serve for so long, or until all said BYE. How many connections are left."""
        cdef int left
        with nogil:
            left = kvs_server_run(self.server, ns)
        return left

    @property
    def counts(self):
        return dict(_server_counts(self.server)[0])


cdef class Trace:
    """Requests to be, thrown before a run."""

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
            raise ValueError(f"no mix {mix!r} of {keys} keys, theta {theta}")

    def __dealloc__(self):
        free(self.wishes)

    @property
    def inserts(self):
        """It has new keys, which may be asked for before they are there."""
        return bool(self.mix.insert)


cdef class History:
    """Requests and answers, for the model."""

    cdef kvs_history *history

    def __cinit__(self, uint32_t capacity):
        if kvs_history_create(&self.history, capacity) < 0:
            raise MemoryError(f"no history of {capacity} requests")

    def __dealloc__(self):
        kvs_history_destroy(self.history)

    def __len__(self):
        return kvs_history_count(self.history)

    def check(self, uint32_t keys):
        """None, or (key, version, start, end) of the first wrong answer."""
        cdef kvs_event wrong
        cdef int right
        with nogil:
            right = kvs_history_check(self.history, keys, &wrong)
        if right < 0:
            raise MemoryError("no memory to check a history")
        return None if right else (wrong.id, wrong.version, wrong.start, wrong.end)


cdef int _interrupted(void *client) noexcept with gil:
    """A signal came whose handler raised."""
    try:
        PyErr_CheckSignals()
    except BaseException as trouble:
        (<Client>client).interrupt = trouble
    return (<Client>client).interrupt is not None


cdef class Client:
    """connections: (QP number, (sq, rq), depth, slots, (address, rkey, capability),
    (landing memory, lkey)) each."""

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
            raise MemoryError(f"no client of {n} connections")
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
            raise ValueError(f"no client of {n} connections: {os.strerror(-rc)}")
        self.held = host, leg, pinned

    def __dealloc__(self):
        kvs_client_destroy(self.client)

    def record(self, History history):
        """Tell it all from now on; None: nobody."""
        kvs_client_record(self.client, NULL if history is None else history.history)
        self.held += (history,)

    def run(self, Trace trace, uint64_t ns=0):
        """For ns, or once through the trace; without one GET every key. Signals end it."""
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
            raise Trouble(f"a value that is not one of key {t.id}")
        if rc == -EPROTO:
            raise Trouble(f"no answer that key {t.id} can have: status {t.status}")
        if rc == -ENOSPC:
            raise Trouble("the history is full")
        raise Trouble(os.strerror(-rc))

    def reset(self):
        kvs_client_reset(self.client)

    def quantile(self, double q):
        """ns."""
        return kvs_latency_quantile(_client_latency(self.client), q)

    @property
    def counts(self):
        return dict(_client_counts(self.client)[0])

    @property
    def keys(self):
        """That the store has by now."""
        return kvs_client_keys(self.client)
