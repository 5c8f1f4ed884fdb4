/*
 * Devices, protection domains, errors (docs/c-library.md).
 *
 * A device is the worker of one NIC, reached through its control socket. A
 * protection domain (PD) has one leg to a worker process: a ring of
 * descriptors, and one completion queue (queue.h).
 *
 * Errors: a function that can fail returns 0, or a count, or -errno; and
 * srdma_error_text() then says what was wrong and what to do. On failure an
 * output argument that is an object is set to NULL. Every function that
 * contacts the worker may return
 * -ENOTCONN: the worker, or the leg, has ended: close all objects of the PD;
 * -ETIMEDOUT: no answer in 10 s. srdma_alloc_mr(), srdma_reg_mr(),
 * srdma_create_qp() and srdma_install_cap() then end the leg of the PD, because
 * the worker may still make the object. With a worker on another computer they
 * do not, and -ETIMEDOUT also means that the control link ended during the
 * call, or that there is none: call again (docs/c-library.md 6);
 * -EPROTO: an illegal answer; -ENOMEM; another -errno of the socket, such as
 * -ENOBUFS.
 * A refusal of the worker is its errno (docs/local-interface.md 3).
 *
 * Threads: functions that take a device may be called by several threads at
 * once, except that srdma_close_device() is the last call. A PD and all objects
 * made from it are used by one thread at a time. A child of fork() must not use
 * any object of its parent.
 */
#ifndef SRDMA_PUBLIC_DEVICE_H
#define SRDMA_PUBLIC_DEVICE_H

#include <stdint.h>

#include "srdma/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct srdma_device;
struct srdma_pd;

enum { SRDMA_TEXT_LEN = 64, SRDMA_SUITES_LEN = 32 };

/* Text of the last failed call of this thread; "" before the first. Valid until
 * the next failing call of this thread. */
const char *srdma_error_text(void);

/* Name of a reason, such as "PEER_CLOSED", and its cause and remedy (enum
 * srdma_reason); "" for an unknown value. Static strings. */
const char *srdma_reason_name(uint32_t reason);
const char *srdma_reason_text(uint32_t reason);

/*
 * Connects to a worker. worker: path of its control socket, or its name in
 * $XDG_RUNTIME_DIR/srdma; NULL: $SRDMA_WORKER. agent: path of the agent's
 * socket (docs/agent.md 2); NULL: $SRDMA_AGENT. If the worker accepts this
 * user, the agent is contacted by srdma_connect(), srdma_listen() and
 * srdma_accept() only, and may be absent.
 * A relative path of the worker is resolved by this call.
 * A worker that is neither of this user nor of root, or that does not exist for
 * this process, is used by connections that the agent passes on (docs/agent.md
 * 9); worker is then its path in the agent's policy. The agent is of this user,
 * of root, or of $SRDMA_AGENT_USER (a name or a uid).
 * -ENXIO: none is named; -ENOENT, -ECONNREFUSED: no worker is there; -EPERM,
 * -EACCES: it is of another user, or the agent's policy grants nothing;
 * -EDQUOT: this user has its limit of connections; -ENAMETOOLONG;
 * -EPROTONOSUPPORT: another version; -ENOTSUP: its hosts use an RDMA device, but
 * libibverbs and librdmacm are not installed, or this library was built without
 * their headers; -EINVAL: no user has the name in $SRDMA_AGENT_USER.
 */
int srdma_open_device(struct srdma_device **device, const char *worker,
		      const char *agent);
/* -EBUSY: a PD or listener of the device exists. NULL is allowed. */
int srdma_close_device(struct srdma_device *device);

/* Properties of a worker (HELLO, docs/local-interface.md 3.4). */
struct srdma_device_attr {
	char name[SRDMA_TEXT_LEN];
	char wire[SRDMA_TEXT_LEN];	  /* its address for other workers */
	uint8_t suites[SRDMA_SUITES_LEN]; /* ids, then zeros */
	uint32_t processes;		  /* worker processes */
	int allow_unprotected;		  /* 1: it permits SRDMA_LEVEL_NONE */
	uint8_t gid[SRDMA_GID_LEN];	  /* as in RoCEv2; zeros: none */
};

void srdma_query_device(const struct srdma_device *device,
			struct srdma_device_attr *attr);

/*
 * A counter of worker process 0 (docs/local-interface.md 3.7) by its name, such
 * as "packets_sealed". -ENOENT: no such counter.
 */
int srdma_query_counter(struct srdma_device *device, const char *name,
			uint64_t *value);

struct srdma_pd_attr {
	/* Records of the completion ring, a power of two from 64 to 65,536; 0:
	 * 4,096. At least the sum of sq + rq + 1 over the QPs. */
	uint32_t ring;
	/* 1 + the number of the worker process that serves the PD; 0: the next
	 * in turn. PDs on different processes share no state. */
	uint32_t process;
	/* Name of a trust group, at most 64 bytes of UTF-8 (docs/protocol.md
	 * 3.4); NULL: none. It is copied. */
	const char *group;
};

/*
 * Opens a leg (OPEN, docs/local-interface.md 3.5). attr: NULL for the defaults.
 * -EINVAL: an attribute; -EDQUOT: the worker has no more legs.
 * A leg over RDMA is connected within 10 s, by the device of the route to the
 * worker, or by that in $SRDMA_HOST_DEVICE. Then also
 * -ENODEV: the route does not lead over an RDMA device, or no device has the
 * name; -EADDRNOTAVAIL: that device has no address of this family;
 * -EHOSTUNREACH, -ENETUNREACH, -ETIMEDOUT: no route, or no answer on it;
 * -ECONNREFUSED: no worker listens at the address that it gave; -EPROTO,
 * -EACCES: the worker refuses the connection; -ENOMEM: also the limit of locked
 * memory; another -errno of the device.
 */
int srdma_alloc_pd(struct srdma_pd **pd, struct srdma_device *device,
		   const struct srdma_pd_attr *attr);
/* Ends the leg. -EBUSY: a QP, region or connection of the PD exists. NULL is
 * allowed. */
int srdma_dealloc_pd(struct srdma_pd *pd);

#ifdef __cplusplus
}
#endif

#endif
