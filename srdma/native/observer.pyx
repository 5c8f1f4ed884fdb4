# cython: language_level=3, embedsignature=True
"""Verifies the tags of captured packets: thin bindings of csrc/session/observer.h."""

import errno
import os

from libc.string cimport memcpy, memset

from srdma.native.csrc cimport *
from srdma.native.packet import REFUSALS, RefusedError


cdef extern from "session/pdkeys.h":
    struct srdma_endpoint:
        uint8_t eid[16]
        uint32_t qpn

    struct srdma_pdkeys_flow:
        srdma_endpoint receiver
        srdma_endpoint sender
        uint8_t generation[8]


cdef extern from "session/session.h":
    enum:
        SRDMA_MAX_SECRET


cdef extern from "session/observer.h":
    struct srdma_observer:
        pass

    struct srdma_observer_params:
        uint8_t suite
        uint8_t level
        uint8_t mode
        uint8_t tag_len
        uint8_t secret_len
        uint8_t direction
        uint32_t epoch
        uint64_t pn
        srdma_pdkeys_flow flow
        uint8_t secret[32]

    int srdma_observer_create(srdma_observer **out, const srdma_observer_params *params)
    void srdma_observer_destroy(srdma_observer *o)
    int srdma_observer_open(srdma_observer *o, srdma_packet *p, const uint8_t *data,
                            size_t len, uint8_t *plain)
    int srdma_observer_step(srdma_observer *o)
    int srdma_observer_renew(srdma_observer *o, const uint8_t *secret)
    void srdma_observer_seek(srdma_observer *o, uint64_t pn, uint64_t request_id)
    uint64_t srdma_observer_requests(const srdma_observer *o)
    void srdma_observer_hear(srdma_observer *o, uint64_t requests)
    uint32_t srdma_observer_epoch(const srdma_observer *o)


cdef int put(uint8_t *out, size_t size, bytes data, str name) except -1:
    if <size_t>len(data) != size:
        raise ValueError(f"{name} has {len(data)} bytes: it must have {size}")
    memcpy(out, <const uint8_t *>data, size)
    return 0


cdef int check(int result) except -1:
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result


cdef class Observer:
    """Verifies the packets of one direction of a QP. Raises OSError if the values do not agree.

    sender, receiver: (endpoint id, SRC QPN); epoch: that of `secret`; pn: first packet number.
    """

    cdef srdma_observer *observer
    cdef size_t secret_len

    def __cinit__(self, *, uint8_t suite, uint8_t level, uint8_t mode, uint8_t tag_len,
                  uint8_t direction, tuple sender, tuple receiver, bytes generation,
                  bytes secret, uint64_t pn, uint32_t epoch=0):
        cdef srdma_observer_params p
        memset(&p, 0, sizeof(p))
        p.suite, p.level, p.mode, p.tag_len = suite, level, mode, tag_len
        p.direction, p.pn, p.epoch = direction, pn, epoch
        try:
            put(p.flow.sender.eid, sizeof(p.flow.sender.eid), sender[0], "sender")
            put(p.flow.receiver.eid, sizeof(p.flow.receiver.eid), receiver[0], "receiver")
            p.flow.sender.qpn, p.flow.receiver.qpn = sender[1], receiver[1]
            put(p.flow.generation, sizeof(p.flow.generation), generation, "generation")
            self.secret_len = min(len(secret), SRDMA_MAX_SECRET)
            put(p.secret, self.secret_len, secret, "secret")
            p.secret_len = <uint8_t>self.secret_len
            check(srdma_observer_create(&self.observer, &p))
        finally:
            srdma_wipe(&p, sizeof(p))

    def __dealloc__(self):
        self.close()

    def close(self):
        """Wipes the keys. A second call does nothing."""
        srdma_observer_destroy(self.observer)
        self.observer = NULL

    cdef srdma_observer *alive(self) except NULL:
        if self.observer == NULL:
            raise ValueError("the observer is closed")
        return self.observer

    def open(self, bytes data):
        """Verifies a packet. True if it was verified before; raises RefusedError."""
        cdef srdma_packet p
        cdef uint8_t plain[SRDMA_MAX_PAYLOAD]
        cdef int result = srdma_observer_open(self.alive(), &p, data, len(data), plain)
        srdma_wipe(plain, sizeof(plain))
        if result < 0:
            raise RefusedError(REFUSALS[-result - 1])
        return result == 1

    def step(self):
        """Begins the next epoch by the chain. Raises OSError."""
        check(srdma_observer_step(self.alive()))

    def renew(self, bytes secret):
        """Gives the new secret of a later epoch. False if the one before was not used yet."""
        cdef uint8_t given[SRDMA_MAX_SECRET]
        put(given, self.secret_len, secret, "secret")
        result = srdma_observer_renew(self.alive(), given)
        srdma_wipe(given, sizeof(given))
        return result != -errno.EBUSY

    def seek(self, uint64_t pn, uint64_t request_id):
        """Sets the numbers next to which those of the next packet are sought."""
        srdma_observer_seek(self.alive(), pn, request_id)

    def hear(self, Observer other not None):
        """Tells the requests of the other direction, which responses and acks name."""
        srdma_observer_hear(self.alive(), srdma_observer_requests(other.alive()))

    @property
    def epoch(self):
        return srdma_observer_epoch(self.alive())
