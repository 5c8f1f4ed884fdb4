/*
 * Answers that wait for the relay (docs/protocol.md 10): DEREG_MR, DESTROY and
 * REVOKE until their DMA has ended, WAIT until the QP is RTS or ERR.
 */
#ifndef OFFLOAD_DEFERRED_H
#define OFFLOAD_DEFERRED_H

#include <stdint.h>

#include "relay/ctl.h"
#include "legs.h"

struct client;

struct deferred {
	struct deferred *next;
	struct client *client; /* NULL: gone, but the relay is still asked */
	uint16_t kind;
	uint32_t tag;
	uint32_t leg;
	uint32_t number;		  /* QPN or key */
	struct srdma_revoke_params range; /* REVOKE: with its ticket */
	uint64_t ticket;
};

struct deferred_list {
	struct deferred *first;
	struct legs *legs;
	/*
	 * An answer is due: 0 and the body in out, or -errno and text. The
	 * item is no longer in the list.
	 */
	void (*answer)(void *ctx, const struct deferred *d,
		       struct srdma_ctl_msg *out, int rc);
	void *ctx;
};

/* Keep a copy of *d. 0, or -ENOMEM. */
int deferred_add(struct deferred_list *l, const struct deferred *d);
/* Answer what is due. Returns how many still wait. */
unsigned deferred_poll(struct deferred_list *l);
/* The client gets no answers any more. */
void deferred_leave(struct deferred_list *l, const struct client *client);
void deferred_clear(struct deferred_list *l);

#endif
