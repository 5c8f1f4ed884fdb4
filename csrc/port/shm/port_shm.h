/*
 * The embedded NIC: ports over shared memory, on one machine and without an
 * RDMA device (docs/protocol.md 11). The host port serves the legs of
 * processes, the wire port reaches the workers of one directory.
 *
 * EV_UP comes once per connect(), also when it shares a conn that is up, and
 * each connect() and EV_ACCEPT is one reference to close. What a peer sent
 * before its end is handed up before EV_DOWN. Completion records and writes
 * ring the sleeping host at flush, or at the next poll or arm.
 */
#ifndef SRDMA_PORT_SHM_H
#define SRDMA_PORT_SHM_H

#include <stdint.h>

struct srdma_port;

enum srdma_port_shm_limits {
	SRDMA_SHM_WIRE_SIZE = 4608, /* bytes of a slot */
	SRDMA_SHM_MIN_SLOTS = 16,
	SRDMA_SHM_MAX_SLOTS = 4096,
	SRDMA_SHM_MAX_CONNS = 1024,
	SRDMA_SHM_MAX_PENDING = 64, /* handshakes; then the oldest is dropped */
	SRDMA_SHM_BUFS = 1024,	    /* pool of each port */
};

/* 0, -ENOMEM, -errno of a descriptor that could not be had. */
int srdma_port_shm_create_host(struct srdma_port **out);

/*
 * Bind DIR/NAME.sock (mode 0600), which destroy unlinks; a socket left by a
 * dead worker is replaced. slots per direction of the connections made here,
 * a power of two; 0: 128. 0, or -errno for srdma_port_shm_why().
 */
int srdma_port_shm_create_wire(struct srdma_port **out, const char *dir,
			       const char *name, uint32_t slots);

/* What a failure of create_wire means and what would be right. */
const char *srdma_port_shm_why(int err);

#endif
