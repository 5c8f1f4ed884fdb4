/*
 * Ports over shared memory on one machine, without an RDMA device
 * (docs/local-interface.md 4). The host port serves the legs of local
 * processes; the wire port reaches the workers of one directory.
 *
 * EV_UP is raised once per connect(), also if the connect() shares a connected
 * conn. Each connect() and each EV_ACCEPT is one reference to close. Datagrams
 * that a peer sent before its end are handed up before EV_DOWN. A host that
 * sleeps is woken for completion records and writes at flush, or at the next
 * poll or arm.
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
	SRDMA_SHM_MAX_PENDING = 64, /* handshakes; beyond it the oldest is
				       dropped */
	SRDMA_SHM_BUFS = 1024,	    /* buffers in the pool of each port */
};

/*
 * spawn runs run(arg) in a thread of its own, and returns 0 or -errno: the port
 * copies the memory of host processes in such threads. NULL: regions must be
 * memfds. Returns 0, -ENOMEM, or the -errno of creating a file descriptor.
 */
int srdma_port_shm_create_host(struct srdma_port **out,
			       int (*spawn)(void *(*run)(void *), void *arg));

/*
 * Bind DIR/NAME.sock with mode 0600; a socket left by a dead worker is
 * replaced, and destroy unlinks it. slots: number of slots per direction of
 * connections made by this port, a power of two from 16 to 4096; 0: 128.
 * close_file closes files that peers passed, and does not block; NULL: they are
 * closed by close(), which blocks as long as such a file wants.
 * Returns 0, or -errno that srdma_port_shm_why() explains.
 */
int srdma_port_shm_create_wire(struct srdma_port **out, const char *dir,
			       const char *name, uint32_t slots,
			       void (*close_file)(int fd));

/*
 * Explains an error of create_wire and how to correct it. The text is static,
 * or that of strerror().
 */
const char *srdma_port_shm_why(int err);

#endif
