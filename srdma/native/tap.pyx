"""A wire port of the embedded NIC for Python: thin bindings of csrc/port/shm/port_shm.h.

A connection is an integer, valid from connect() or its ACCEPT event until close(). No call blocks.
All calls must be made by one thread.
"""

import os

from libc.stdint cimport uint8_t, uint32_t, uintptr_t
from libc.string cimport memcpy

ACCEPT, UP, DOWN, RECV = "accept", "up", "down", "recv"


cdef extern from "port/port.h":
    enum:
        SRDMA_EV_RECV
        SRDMA_EV_UP
        SRDMA_EV_ACCEPT
        SRDMA_EV_DOWN

    struct srdma_buf:
        uint8_t *data
        uint32_t len

    struct srdma_conn:
        pass

    struct srdma_event:
        int kind
        int status
        srdma_conn *conn
        srdma_buf *buf

    struct srdma_port:
        const srdma_port_ops *ops

    struct srdma_port_ops:
        int (*poll)(srdma_port *port, srdma_event *ev, int n)
        uint8_t *(*reserve)(srdma_conn *conn)
        int (*commit)(srdma_conn *conn, uint32_t len)
        void (*flush)(srdma_port *port)
        void (*buf_put)(srdma_buf *buf)
        int (*connect)(srdma_port *port, const char *address, srdma_conn **conn)
        void (*close)(srdma_conn *conn)
        int (*fd)(srdma_port *port)
        int (*arm)(srdma_port *port)
        void (*disarm)(srdma_port *port)
        void (*destroy)(srdma_port *port)


cdef extern from "wire/wire.h":
    enum:
        SRDMA_MAX_PACKET


cdef extern from "port/shm/port_shm.h":
    int srdma_port_shm_create_wire(srdma_port **out, const char *dir,
                                   const char *name, uint32_t slots,
                                   void (*close_file)(int fd))
    const char *srdma_port_shm_why(int err)


MAX_PACKET = SRDMA_MAX_PACKET


cdef class ShmWire:
    """A port that listens at FOLDER/NAME.sock and can connect to other ports in FOLDER.

    Raises OSError if the socket cannot be made.
    """

    cdef srdma_port *_port
    cdef set _conns

    def __init__(self, folder, str name):
        cdef bytes path = os.fsencode(folder)
        cdef bytes own = name.encode()
        self.close_all()
        self._conns = set()
        cdef int rc = srdma_port_shm_create_wire(&self._port, path, own, 0, NULL)
        if rc < 0:
            self._port = NULL
            raise OSError(-rc, srdma_port_shm_why(rc).decode(), str(folder))

    def __dealloc__(self):
        self.close_all()

    cdef srdma_port *_alive(self) except NULL:
        if self._port == NULL:
            raise ValueError("the wire is closed")
        return self._port

    cdef srdma_conn *_conn(self, uintptr_t conn) except NULL:
        if self._port == NULL or conn not in self._conns:
            raise ValueError("no such connection: it is closed")
        return <srdma_conn *>conn

    def close_all(self):
        """End all connections and unlink the socket. A second call has no effect."""
        if self._port != NULL:
            self._port.ops.destroy(self._port)
            self._port = NULL

    def connect(self, str name):
        """Start to connect to FOLDER/NAME.sock; an UP or DOWN event follows. Raises OSError."""
        cdef srdma_port *port = self._alive()
        cdef srdma_conn *conn = NULL
        cdef bytes address = name.encode()
        cdef int rc = port.ops.connect(port, address, &conn)
        if rc < 0:
            raise OSError(-rc, srdma_port_shm_why(rc).decode(), name)
        self._conns.add(<uintptr_t>conn)
        return <uintptr_t>conn

    def poll(self):
        """Events since the last call, at most 64: (kind, connection, datagram or None)."""
        cdef srdma_event ev[64]
        cdef srdma_port *port = self._alive()
        cdef int n = port.ops.poll(port, ev, 64)
        if n < 0:
            raise OSError(-n, os.strerror(-n))
        return [self._event(&ev[i]) for i in range(n)]

    cdef tuple _event(self, srdma_event *ev):
        cdef uintptr_t conn = <uintptr_t>ev.conn
        if ev.kind == SRDMA_EV_RECV:
            data = ev.buf.data[:ev.buf.len]
            self._port.ops.buf_put(ev.buf)
            return RECV, conn, data
        if ev.kind == SRDMA_EV_ACCEPT:
            self._conns.add(conn)
            return ACCEPT, conn, None
        return UP if ev.kind == SRDMA_EV_UP else DOWN, conn, None

    def send(self, uintptr_t conn, const uint8_t[:] data):
        """Queue a datagram; flush() makes it visible. False if there is no room now."""
        cdef srdma_conn *c = self._conn(conn)
        if not 0 < data.shape[0] <= MAX_PACKET:
            raise ValueError(f"a datagram of {data.shape[0]} bytes: it must have 1 to {MAX_PACKET}")
        cdef uint8_t *slot = self._port.ops.reserve(c)
        if slot == NULL:
            return False
        memcpy(slot, &data[0], data.shape[0])
        cdef int rc = self._port.ops.commit(c, <uint32_t>data.shape[0])
        if rc < 0:
            raise OSError(-rc, os.strerror(-rc))
        return True

    def flush(self):
        self._alive().ops.flush(self._port)

    def close(self, uintptr_t conn):
        """Close the connection."""
        cdef srdma_conn *c = self._conn(conn)
        self._conns.discard(conn)
        self._port.ops.close(c)

    def fileno(self):
        return self._alive().ops.fd(self._port)

    def arm(self):
        """To be called before sleeping on fileno(). False: do not sleep, there is work."""
        return self._alive().ops.arm(self._port) != 1

    def disarm(self):
        self._alive().ops.disarm(self._port)
