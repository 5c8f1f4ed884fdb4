/*
 * The host's half of a leg of any kind (docs/local-interface.md 2): slots for
 * descriptors, the completion ring that the worker writes, and one descriptor
 * to wait on. leg_shm.h and leg_verbs.h make legs. One thread at a time.
 *
 *     slot -> srdma_host_post() into it -> post -> ... -> flush
 *     poll -> look at the ring
 *     arm -> poll, look at ring and room again -> wait for fd -> disarm
 */
#ifndef SRDMA_HOST_LEG_H
#define SRDMA_HOST_LEG_H

#include <stddef.h>
#include <stdint.h>

struct srdma_host_leg;

/* Memory of a region. */
struct srdma_host_leg_region {
	void *addr;
	size_t length;
	uint32_t access; /* enum srdma_access, or-ed */
	int fd;		 /* memfd to send with REG_MR, or -1 */
	uint64_t offset; /* where the memory begins in the memfd */
	uint32_t rkey;	 /* host rkey for REG_MR, set by reg; 0: none */
	void *device_mr; /* of the leg, from reg to dereg */
};

struct srdma_host_leg_ops {
	/* 1: fd becomes readable when the leg ends alone. 0: only the worker
	 * knows that it ended the leg. */
	int tells_end;

	/* The next free slot of SRDMA_DESC_SLOT bytes, the same until post.
	 * NULL: none is free, or the leg has ended. */
	uint8_t *(*slot)(struct srdma_host_leg *leg);
	/* Appends the slot, of which len bytes are used. 0 or -EMSGSIZE. */
	int (*post)(struct srdma_host_leg *leg, uint32_t len);
	/* Makes posted descriptors visible to the worker. */
	void (*flush)(struct srdma_host_leg *leg);

	/* The completion ring, for srdma_host_create(). */
	const uint8_t *(*ring)(const struct srdma_host_leg *leg);
	/* Handles completions of the device. To be called before each look at
	 * the ring. It makes no system call of its own. */
	void (*poll)(struct srdma_host_leg *leg);
	/* A text that says why the leg ended; NULL: it has not. */
	const char *(*ended)(struct srdma_host_leg *leg);
	/* Ends all DMA of the worker through this leg, if the kind can. */
	void (*stop)(struct srdma_host_leg *leg);
	/* Sends heartbeats, and ends the leg if the worker's device does not
	 * acknowledge them. now: monotonic, ms. To be called at least once a
	 * second while the leg is polled, and before and after waiting. */
	void (*keepalive)(struct srdma_host_leg *leg, int64_t now);

	/* Flushes, and prepares to sleep: from now on fd becomes readable when
	 * a record arrives, when full slots have room again, when keepalive is
	 * due, and at times without cause. */
	void (*arm)(struct srdma_host_leg *leg);
	int (*fd)(const struct srdma_host_leg *leg);
	/* To be called after waking, or instead of sleeping. */
	void (*disarm)(struct srdma_host_leg *leg);

	/* Allocates zeroed memory of m->length bytes: sets m->addr, and m->fd,
	 * which the caller closes. 0, or -errno without an error text. */
	int (*alloc)(struct srdma_host_leg_region *m);
	void (*free)(struct srdma_host_leg_region *m);
	/* Gives the worker's NIC access to the memory. 0, or -errno with an
	 * error text. dereg ends this access. */
	int (*reg)(struct srdma_host_leg *leg, struct srdma_host_leg_region *m);
	void (*dereg)(struct srdma_host_leg *leg,
		      struct srdma_host_leg_region *m);

	void (*destroy)(struct srdma_host_leg *leg);
};

/* The beginning of each kind's structure. */
struct srdma_host_leg {
	const struct srdma_host_leg_ops *ops;
};

#endif
