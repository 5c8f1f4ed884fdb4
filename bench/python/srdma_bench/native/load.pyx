# cython: language_level=3, embedsignature=True, boundscheck=False
"""A load on a leg of shared memory at full speed: posts, polls and waits without the GIL.

For measurements (srdma perf). The caller holds the lock of the PD while a call runs. A completion
that failed ends the call with its record; so does a signal, and so long a time without any.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENOSPC
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, TIMER_ABSTIME, clock_gettime, clock_nanosleep, timespec

from srdma.native.csrc cimport *
from srdma.native.hostleg cimport *
from srdma.native.leg cimport Host, ShmLeg, Work

from srdma.errors import Timeout

cdef extern from "sched.h" nogil:
    int sched_yield()

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    enum:
        POLLIN
    int poll(pollfd *fds, unsigned long n, int timeout)

cdef enum:
    BURST = 64
    YIELDS = 64  # of waiting before sleeping: some 50 us
    NAP_MS = 20
    WORKS = 256
    TURNS = 1024  # of collecting, a power of two, from one look at the clock to the next
    LOOK_NS = 100000000  # from one look at what C does not see to the next


class Failed(Exception):
    """A completion with an error: of its record, QP number, opcode, status and reason."""


class Refused(Exception):
    """A work request that was not taken: its errno."""


cdef uint64_t now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000000 + <uint64_t>t.tv_nsec


cdef uint32_t copied(srdma_desc *d, list works) except 0:
    if not 0 < len(works) <= WORKS:
        raise ValueError(f"{len(works)} works: 1 to {WORKS} would be right")
    for i in range(len(works)):
        d[i] = (<Work?>works[i]).d
    return <uint32_t>len(works)


cdef void move(srdma_desc *d, uint32_t n, uint64_t by) noexcept nogil:
    """To memory so far from where they are, modulo 2^64, at both ends; a SEND names one only."""
    cdef uint32_t i
    for i in range(n):
        d[i].local_addr += by
        if d[i].remote_addr:
            d[i].remote_addr += by


cdef bint part_over(uint64_t part, uint64_t parts, uint64_t done, uint64_t count, uint64_t start,
                    uint64_t ns) noexcept nogil:
    if count:
        return done >= count * (part + 1) // parts
    return now() - start >= ns * (part + 1) // parts


cdef bint sleep_until(uint64_t when) noexcept nogil:
    """False: a signal came."""
    cdef timespec t
    t.tv_sec, t.tv_nsec = when // 1000000000, when % 1000000000
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == 0


cdef class Load:
    """What one thread does with one leg. look: called now and then, to see whether the worker is
    there. patience: seconds in which something must complete."""

    cdef Host host
    cdef ShmLeg leg
    cdef uint64_t sent, received  # completions so far
    cdef uint64_t heard  # of received
    cdef srdma_desc receive[WORKS]
    cdef uint32_t n_receives
    cdef uint32_t owed[WORKS]  # receives that are used, and not yet posted again
    cdef uint32_t used  # all of those
    cdef srdma_record failed
    cdef int refused
    cdef object trouble  # that a look found
    cdef bint has_failed  # one of these three
    cdef int idle
    cdef object watch
    cdef double patience
    cdef uint32_t turns
    cdef uint64_t looked, moved, seen  # last look and last progress, in ns, and what it was

    def __init__(self, Host host not None, ShmLeg leg not None, look not None, double patience):
        self.host, self.leg, self.watch, self.patience = host, leg, look, patience

    cdef void begin(self) noexcept:
        """A run, and its patience."""
        self.looked = self.moved = now()
        self.seen = self.sent + self.received

    cdef void look(self) noexcept nogil:
        """Signals, the worker's end, and whether it is too long that nothing came."""
        cdef uint64_t at = now(), count = self.sent + self.received
        if at - self.looked < LOOK_NS or self.has_failed:
            return
        self.looked = at
        if count != self.seen:
            self.moved, self.seen = at, count
        with gil:
            try:
                PyErr_CheckSignals()
                self.watch()
                if at - self.moved > self.patience * 1e9:
                    raise Timeout(f"nothing completed in {self.patience:g} s")
            except BaseException as trouble:
                self.trouble, self.has_failed = trouble, True

    cdef int post(self, const srdma_desc *d) noexcept nogil:
        """1, or 0: queue or leg are full."""
        cdef uint8_t *slot = srdma_leg_shm_slot(self.leg.leg)
        cdef int used
        if slot == NULL:
            return 0
        used = srdma_host_post(self.host.h, d, NULL, slot)
        if used < 0:
            if used != -ENOSPC:
                self.refused, self.has_failed = -used, True
            return 0
        srdma_leg_shm_post(self.leg.leg, <uint32_t>used)
        return 1

    cdef int collect(self) noexcept nogil:
        """What has completed; waits a little if nothing has."""
        cdef srdma_record records[BURST]
        cdef uint8_t *slot
        cdef int i, used, n = srdma_host_poll(self.host.h, records, BURST)
        self.turns += 1
        if not self.turns & (TURNS - 1):
            self.look()
        for i in range(n):
            if records[i].status or records[i].opcode == SRDMA_WC_QP_EVENT:
                if not self.has_failed or self.failed.vendor_err == SRDMA_REASON_FLUSHED:
                    self.failed = records[i]  # the first one that says why
                self.has_failed = True
            elif records[i].opcode & SRDMA_WC_RECV:
                self.use(records[i].qpn)
            else:
                self.sent += 1
        if n:
            self.idle = 0
            slot = srdma_leg_shm_slot(self.leg.leg)
            used = srdma_host_credit(self.host.h, slot) if slot != NULL else 0
            if used:
                srdma_leg_shm_post(self.leg.leg, <uint32_t>used)
        srdma_leg_shm_flush(self.leg.leg)
        return n

    cdef void wait(self, const uint8_t *watch, uint8_t value) noexcept nogil:
        """Give the core away, and sleep after a while; watch, if any, is looked at once more."""
        cdef pollfd p
        cdef int rc
        self.idle += 1
        if self.idle < YIELDS:
            sched_yield()
            return
        srdma_leg_shm_arm(self.leg.leg, watch != NULL)
        if self.collect() == 0 and (watch == NULL or watch[0] != value):
            p.fd, p.events = srdma_leg_shm_fd(self.leg.leg), POLLIN
            rc = poll(&p, 1, NAP_MS)
            if rc < 0:  # a signal
                self.looked = 0
            if rc <= 0:
                self.look()
        srdma_leg_shm_disarm(self.leg.leg)

    cdef void step(self) noexcept nogil:
        """Collect, or wait for what is to be collected."""
        if not self.collect():
            self.wait(NULL, 0)

    cdef int check(self) except -1:
        if not self.has_failed:
            return 0
        trouble, refused = self.trouble, self.refused
        self.has_failed, self.trouble, self.refused = False, None, 0
        if trouble is not None:
            raise trouble
        if refused:
            raise Refused(refused)
        raise Failed(self.failed.qpn, self.failed.opcode, self.failed.status,
                     self.failed.vendor_err)

    def receives(self, list works not None):
        """What is kept posted from now on: a receive per QP, as often as its queue takes it."""
        cdef uint32_t i
        self.begin()
        self.n_receives, self.used = copied(self.receive, works), 0
        for i in range(self.n_receives):
            self.owed[i] = 0
            while self.post(&self.receive[i]):
                pass
        self.collect()
        self.check()
        self.heard = self.received

    def came(self, uint32_t qpn):
        """A message that somebody else polled."""
        self.use(qpn)

    cdef void use(self, uint32_t qpn) noexcept nogil:
        """A message came to this QP: one receive less is posted."""
        cdef uint32_t i
        self.received += 1
        for i in range(self.n_receives):
            if self.receive[i].qpn == qpn:
                self.owed[i] += 1
                self.used += 1

    cdef void top_up(self) noexcept nogil:
        cdef uint32_t i
        if not self.used:
            return
        for i in range(self.n_receives):
            while self.owed[i] and self.post(&self.receive[i]):
                self.owed[i] -= 1
                self.used -= 1

    def stream(self, list works not None, tuple sweep not None, uint64_t count, uint64_t ns,
               uint64_t[::1] marks not None):
        """Post works in turn, as many at a time as the queues take, until count of them or, if
        that is 0, until ns have passed; then wait for the rest. sweep: (laps, stride), after each
        turn all of them move on by stride bytes, and after so many turns back. marks: a pair for
        each part of that work, equal ones of count or ns: how many had completed, and after how
        many ns."""
        cdef srdma_desc d[WORKS]
        cdef uint32_t n = copied(d, works), i = 0
        cdef uint64_t lap = 0, laps, stride
        cdef uint64_t posted = 0, first = self.sent, start = now(), end = start + ns
        cdef uint64_t parts = marks.shape[0] // 2, part = 0
        cdef bint more = True
        laps, stride = sweep
        self.begin()
        with nogil:
            while not self.has_failed and (more or self.sent - first < posted):
                while more and self.post(&d[i]):
                    posted += 1
                    i += 1
                    if i == n:
                        i, lap = 0, (lap + 1) % laps
                        move(d, n, stride if lap else (1 - laps) * stride)
                    if count and posted == count:
                        more = False
                if not count and now() >= end:
                    more = False
                self.top_up()
                self.step()
                while part < parts and part_over(part, parts, self.sent - first, count,
                                                 start, ns):
                    marks[2 * part], marks[2 * part + 1] = self.sent - first, now() - start
                    part += 1
        self.check()
        marks[2 * parts - 2], marks[2 * parts - 1] = self.sent - first, now() - start

    def take(self, uint64_t count, uint64_t ns):
        """Wait for count messages, those of streams before it too, or if that is 0 for the first,
        and then until none came for ns. (how many, ns)"""
        cdef uint64_t first = self.heard, start = now(), last = start, seen = first
        self.begin()
        with nogil:
            while not self.has_failed and (not count or self.received - first < count):
                self.top_up()
                if self.received != seen:
                    seen, last = self.received, now()
                elif not count and seen != first and now() - last > ns:
                    break
                self.step()
        self.check()
        self.heard = self.received
        return self.received - first, now() - start

    cdef void sleep(self, uint64_t due) noexcept nogil:
        while now() < due and not self.has_failed:
            if not sleep_until(due):
                self.looked = 0
            self.look()

    def alone(self, Work work not None, uint64_t[::1] times not None, uint64_t gap=0):
        """One work at a time; times[i] becomes its ns from post to completion. gap: ns from each to
        the next, in which this end sleeps; 0: at once."""
        cdef Py_ssize_t i
        cdef uint64_t start, first, due = now()
        self.begin()
        with nogil:
            for i in range(times.shape[0]):
                if gap:
                    due += gap
                    self.sleep(due)
                start = now()
                self.send(&work.d)
                first = self.sent
                while self.sent == first and not self.has_failed:
                    self.step()
                times[i] = now() - start
                if self.has_failed:
                    break
        self.check()

    cdef void send(self, const srdma_desc *d) noexcept nogil:
        """Post it as soon as the queue takes it."""
        while not self.post(d) and not self.has_failed:
            self.step()

    cdef void hear(self, const uint8_t *watch, uint8_t value) noexcept nogil:
        """Wait for the next message or, if watch is not NULL, until value is there."""
        while not self.has_failed:
            if watch != NULL:
                if watch[0] == value:
                    return
            elif self.received > self.heard:
                self.heard += 1
                self.top_up()
                return
            if not self.collect():
                self.wait(watch, value)

    def play(self, Work work not None, uint8_t[::1] out not None, const uint8_t[::1] back,
             uint64_t[::1] times not None, bint first):
        """Ping-pong, times.shape[0] rounds; first: this end begins, and times[i] becomes the ns
        of a round. work takes a number in the last byte of out to the other end, whose word comes
        in the last byte of back or, if that is None, as a message."""
        cdef uint8_t *told = &out[out.shape[0] - 1]
        cdef const uint8_t *seen = NULL
        cdef uint8_t value
        cdef Py_ssize_t i
        cdef uint64_t start, end = self.sent + times.shape[0]
        if back is not None:
            seen = &back[back.shape[0] - 1]
        self.begin()
        with nogil:
            for i in range(times.shape[0]):
                value = <uint8_t>(i % 255 + 1)
                start = now()
                if not first:
                    self.hear(seen, value)
                told[0] = value
                self.send(&work.d)
                self.collect()
                if first:
                    self.hear(seen, value)
                times[i] = now() - start
                if self.has_failed:
                    break
            while self.sent < end and not self.has_failed:
                self.step()  # else the next run would count them
        self.check()
