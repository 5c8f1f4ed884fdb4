# cython: language_level=3, embedsignature=True, boundscheck=False
"""A load generator on a leg: posts, polls and waits without the GIL.

For measurements (srdma perf). The caller holds the lock of the PD during a call. A call ends early
with an exception: after a failed completion (Failed), a refused work request (Refused), a signal
whose handler raises, or `patience` seconds without a completion (Timeout).
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport ENOSPC
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, TIMER_ABSTIME, clock_gettime, clock_nanosleep, timespec

from srdma.native.csrc cimport *
from srdma.native.hostleg cimport *
from srdma.native.leg cimport Host, NativeLeg, Work

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
    YIELDS = 64  # yields before sleeping: about 50 us
    NAP_MS = 20
    WORKS = 256  # maximum number of work requests or receives
    TURNS = 1024  # calls of collect() between readings of the clock; a power of two
    LOOK_NS = 100000000  # ns between checks of signals, worker and progress


class Failed(Exception):
    """A completion with an error. Arguments: QP number, opcode, status, reason."""


class Refused(Exception):
    """A work request was refused. Argument: errno."""


cdef uint64_t now() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <uint64_t>t.tv_sec * 1000000000 + <uint64_t>t.tv_nsec


cdef uint32_t copied(srdma_desc *d, list works) except 0:
    if not 0 < len(works) <= WORKS:
        raise ValueError(f"{len(works)} work requests: give 1 to {WORKS}")
    for i in range(len(works)):
        d[i] = (<Work?>works[i]).d
    return <uint32_t>len(works)


cdef void move(srdma_desc *d, uint32_t n, uint64_t by) noexcept nogil:
    """Move local and remote addresses by `by` bytes, modulo 2^64; a SEND has no remote address."""
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
    """False if a signal interrupted the sleep."""
    cdef timespec t
    t.tv_sec, t.tv_nsec = when // 1000000000, when % 1000000000
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == 0


cdef class Load:
    """The load of one thread on one leg. look: called about every 0.1 s; it raises if the worker
    has ended. patience: maximum seconds without a completion."""

    cdef Host host
    cdef NativeLeg leg
    cdef uint64_t sent, received  # completions so far
    cdef uint64_t heard  # messages of `received` that calls have consumed
    cdef srdma_desc receive[WORKS]
    cdef uint32_t n_receives
    cdef uint32_t owed[WORKS]  # consumed receives that are not yet posted again
    cdef uint32_t used  # sum of owed
    cdef srdma_record failed
    cdef int refused
    cdef object trouble  # exception of look()
    cdef bint has_failed  # failed, refused or trouble is set
    cdef int idle
    cdef object watch
    cdef double patience
    cdef uint32_t turns
    cdef uint64_t looked, moved, seen  # last look and last progress, ns; its completions

    def __init__(self, Host host not None, NativeLeg leg not None, look not None, double patience):
        self.host, self.leg, self.watch, self.patience = host, leg, look, patience

    cdef void begin(self) noexcept:
        """Begin a call: restart the time-outs."""
        self.looked = self.moved = now()
        self.seen = self.sent + self.received

    cdef void look(self) noexcept nogil:
        """Check signals, the end of the worker, and the time since the last completion."""
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
                    raise Timeout(f"no request completed in {self.patience:g} s")
            except BaseException as trouble:
                self.trouble, self.has_failed = trouble, True

    cdef int post(self, const srdma_desc *d) noexcept nogil:
        """Post a request. Returns 1, or 0 if the queue or the leg is full or the request was
        refused."""
        cdef uint8_t *slot = self.leg.next_slot()
        cdef int used
        if slot == NULL:
            return 0
        used = srdma_host_post(self.host.h, d, NULL, slot)
        if used < 0:
            if used != -ENOSPC:
                self.refused, self.has_failed = -used, True
            return 0
        self.leg.append(<uint32_t>used)
        return 1

    cdef int collect(self) noexcept nogil:
        """Poll once. Returns the number of completions."""
        cdef srdma_record records[BURST]
        cdef uint8_t *slot
        cdef int i, used, n
        self.leg.take()
        n = srdma_host_poll(self.host.h, records, BURST)
        self.turns += 1
        if not self.turns & (TURNS - 1):
            self.look()
        for i in range(n):
            if records[i].status or records[i].opcode == SRDMA_WC_QP_EVENT:
                if not self.has_failed or self.failed.vendor_err == SRDMA_REASON_FLUSHED:
                    self.failed = records[i]  # keep the first record with a reason
                self.has_failed = True
            elif records[i].opcode & SRDMA_WC_RECV:
                self.use(records[i].qpn)
            else:
                self.sent += 1
        if n:
            self.idle = 0
            slot = self.leg.next_slot()
            used = srdma_host_credit(self.host.h, slot) if slot != NULL else 0
            if used:
                self.leg.append(<uint32_t>used)
        self.leg.publish()
        return n

    cdef void wait(self, const uint8_t *watch, uint8_t value) noexcept nogil:
        """Yield the core, and sleep after YIELDS calls. Does not sleep if *watch has become
        `value`, nor if the leg cannot report that."""
        cdef pollfd p
        cdef int rc
        self.idle += 1
        if self.idle < YIELDS:
            sched_yield()
            return
        p.fd, p.events = self.leg.arm_fd(watch != NULL), POLLIN
        if p.fd < 0:
            sched_yield()
            return
        if self.collect() == 0 and (watch == NULL or watch[0] != value):
            rc = poll(&p, 1, NAP_MS)
            if rc < 0:  # a signal
                self.looked = 0
            if rc <= 0:
                self.look()
        self.leg.disarm()

    cdef void step(self) noexcept nogil:
        """Poll, or wait for a completion."""
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
        """Fill the receive queues, one work request per QP, and keep them full from now on."""
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
        """Count a message whose completion another caller polled."""
        self.use(qpn)

    cdef void use(self, uint32_t qpn) noexcept nogil:
        """Count a message of this QP, which consumed a receive."""
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
        """Post work requests in turn, as many at a time as the queues take, until `count` are
        posted, or for `ns` if count is 0; then wait for all completions.

        sweep: (laps, stride); after each turn all addresses move by stride bytes, after `laps`
        turns back to the start. marks: out, a pair (completed, ns) for each of the equal parts of
        count or ns.
        """
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
        """Wait for `count` messages, including those that arrived during stream(). If count is 0,
        wait for the first one, and until none arrives for `ns`. Returns (messages, ns)."""
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
        """Execute a work request repeatedly, one at a time; times[i] becomes the ns from post to
        completion. gap: ns between the starts, in which this end sleeps; 0: no pause."""
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
        """Post a request as soon as the queue has room."""
        while not self.post(d) and not self.has_failed:
            self.step()

    cdef void hear(self, const uint8_t *watch, uint8_t value) noexcept nogil:
        """Wait for the next message or, if watch is not NULL, until *watch is `value`."""
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
        """Ping-pong of times.shape[0] rounds; times[i] becomes the ns of a round. first: this end
        begins. work carries a number in the last byte of `out` to the other end. The other end's
        number arrives in the last byte of `back` or, if back is None, as a message."""
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
                self.step()  # otherwise the next call would count these completions
        self.check()
