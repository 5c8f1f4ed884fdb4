/* A request being handled, shared by the files of requests only. */
#ifndef OFFLOAD_REQUESTS_IMPL_H
#define OFFLOAD_REQUESTS_IMPL_H

#include "deferred.h"
#include "requests.h"

struct requests {
	struct requests_params p;
	struct legs legs;
	struct deferred_list deferred;
};

struct call {
	struct requests *q;
	struct client *client;
	const struct message *message;
	struct srdma_ctl_msg in, out; /* wiped behind the handler */
	int fds[REQUESTS_ANSWER_FDS];
};

/*
 * Handlers. 0: out is the answer; -errno: out.text says what was wrong and what
 * would be right; REQUESTS_DEFERRED: the answer comes later.
 */
enum { REQUESTS_DEFERRED = 1 };

int requests_memory_register(struct call *c);
int requests_memory_deregister(struct call *c);
int requests_memory_capability(struct call *c);
int requests_memory_install(struct call *c);
int requests_memory_uninstall(struct call *c);
int requests_memory_revoke(struct call *c);

int requests_qp_init(struct call *c);
int requests_qp_secret(struct call *c);
int requests_qp_keys(struct call *c);
int requests_qp_wait(struct call *c);
int requests_qp_end(struct call *c);
int requests_qp_destroy(struct call *c);
int requests_qp_rotate(struct call *c);
int requests_qp_rekey(struct call *c);
int requests_qp_expire(struct call *c);

/* --- what handlers use ------------------------------------------------- */

/* Set the text and return err. */
int requests_refuse(struct call *c, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The relay refused: its text is the answer. Returns err. */
int requests_refused(struct call *c, int err);
/* The leg that the client may use. 0, or -EPERM. */
int requests_leg(struct call *c, uint32_t id, struct srdma_leg **leg);
int requests_leg_of_qp(struct call *c, uint32_t qpn, struct srdma_leg **leg);
/* Answer later: *d but for whom and which leg. REQUESTS_DEFERRED, -ENOMEM. */
int requests_defer(struct call *c, struct srdma_leg *leg,
		   const struct deferred *d);

#endif
