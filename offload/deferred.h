/*
 * Responses that wait for the relay (docs/local-interface.md 3): REG_MR waits
 * until the memory of its process was probed, DEREG_MR, REPLACE, DESTROY, RESET,
 * REVOKE and WITHDRAW wait until their DMA has ended, RESET also for descriptors,
 * and WAIT until the QP is in RTS or ERR.
 */
#ifndef OFFLOAD_DEFERRED_H
#define OFFLOAD_DEFERRED_H

#include <stdint.h>
#include <sys/queue.h>

#include "relay/ctl.h"
#include "legs.h"

struct client;

struct deferred {
	TAILQ_ENTRY(deferred) next;
	LIST_ENTRY(deferred) of_client; /* if there is a client */
	LIST_ENTRY(deferred) of_bucket; /* if it is `first` */
	struct client *client; /* NULL: disconnected, but the relay is still
				  polled */
	uint16_t kind;
	uint32_t tag;
	uint32_t leg;
	uint32_t number;		  /* QPN or key */
	struct srdma_revoke_params range; /* REVOKE */
	/* Of REVOKE, WITHDRAW; descriptors of RESET; other key of REPLACE. */
	uint64_t ticket;
	/* Set by deferred_add(): */
	int first; /* 1: it ends or resets an object, and no other item that
			   does is `first` */
	uint64_t until; /* ns of srdma_relay_now(): RESET waits no longer */
	int canceled;	/* by deferred_cancel_reset() */
};

TAILQ_HEAD(deferred_queue, deferred);
LIST_HEAD(deferred_bucket, deferred);

enum {
	DEFERRED_LOOKS = 256, /* most items of each queue that a poll examines
			       */
	DEFERRED_BUCKETS = 16384,
};

struct deferred_list {
	/* WAITs, which are due when a QP changed, and the others, which are due
	 * when their DMA ended. A poll looks at the first ones of each and moves
	 * those that are not due to the end, so that its cost has a bound. */
	struct deferred_queue waits, others;
	unsigned waits_count, others_count;
	unsigned looks;	  /* WAITs to look at since the last change */
	uint64_t changes; /* srdma_relay_changes() then */
	/* Items that are `first`, by the number of their object. */
	struct deferred_bucket ending[DEFERRED_BUCKETS];
	struct legs *legs;
	/*
	 * Called when a response is due. rc is 0 and the body is in out, or rc
	 * is -errno and the text is in out. The item is no longer in the list.
	 */
	void (*answer)(void *ctx, const struct deferred *d,
		       struct srdma_ctl_msg *out, int rc);
	void *ctx;
};

/* An empty list; the caller then fills in legs, answer and ctx. */
void deferred_init(struct deferred_list *l);
/* Add a copy of *d to the list. Returns 0 or -ENOMEM. Its cost does not depend on
 * the number of items that repeat it. */
int deferred_add(struct deferred_list *l, const struct deferred *d);
/* A newer request of the QP came: the next polls refuse the RESET that waits. */
void deferred_cancel_reset(struct deferred_list *l, uint32_t leg, uint32_t qpn);
/* Call answer for items that are due. Returns the number of items left. */
unsigned deferred_poll(struct deferred_list *l);
/* Forget the client: no response is sent to it, and a region whose REG_MR it waited
 * for is deregistered. Examines its own items only. */
void deferred_leave(struct deferred_list *l, struct client *client);
/* Free all items without responses. */
void deferred_clear(struct deferred_list *l);

#endif
