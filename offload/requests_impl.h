/* State of a request in execution, shared by the files of requests only. */
#ifndef OFFLOAD_REQUESTS_IMPL_H
#define OFFLOAD_REQUESTS_IMPL_H

#include "deferred.h"
#include "requests.h"

struct requests {
	struct requests_params p;
	struct legs legs;
	struct deferred_list deferred;
	unsigned agents; /* connections with the role AGENT, all of agent_pid */
	int agent_pid;
};

struct call {
	struct requests *q;
	struct client *client;
	const struct message *message;
	struct srdma_ctl_msg in, out; /* wiped after the handler */
	int fds[REQUESTS_ANSWER_FDS];
};

/*
 * Handlers return 0 with the response in out; -errno with what was wrong and
 * what to do in out.text; or REQUESTS_DEFERRED if the response is sent later.
 */
enum { REQUESTS_DEFERRED = 1 };

int requests_memory_register(struct call *c);
int requests_memory_deregister(struct call *c);
int requests_memory_withdraw(struct call *c);
int requests_memory_replace(struct call *c);
int requests_memory_capability(struct call *c);
int requests_memory_install(struct call *c);
int requests_memory_uninstall(struct call *c);
int requests_memory_revoke(struct call *c);

int requests_qp_init(struct call *c);
int requests_qp_share(struct call *c);
int requests_qp_secret(struct call *c);
int requests_qp_keys(struct call *c);
int requests_qp_wait(struct call *c);
int requests_qp_end(struct call *c);
int requests_qp_destroy(struct call *c);
int requests_qp_reset(struct call *c);
int requests_qp_reinit(struct call *c);
int requests_qp_rotate(struct call *c);
int requests_qp_rekey(struct call *c);
int requests_qp_expire(struct call *c);
int requests_qp_life(struct call *c);
int requests_qp_modify(struct call *c);
int requests_qp_prove(struct call *c);

int requests_agent(struct call *c);
int requests_agent_keep(struct call *c);
int requests_agent_adopt(struct call *c);
/* 1 if a client may need the role for requests of this kind, AGENT included. */
int requests_agent_only(uint32_t kind);
/* 0, or -EPERM: the request belongs to the agent, which the client is not. */
int requests_agent_check(struct call *c);
/* The client disconnected. With its last connection the agent loses the role. */
void requests_agent_leave(struct requests *q, struct client *client);

int requests_restrict(struct call *c);
/*
 * 0, or -EPERM: the client is restricted, and may not send this request at all.
 */
int requests_restrict_check(struct call *c);
/* 0, or -EPERM: the region is no memfd. */
int requests_restrict_memory(struct call *c);
/* 1: the account is one of RESTRICT. NULL is allowed. */
int requests_restrict_is(const struct srdma_account *a);

/* Charge the client's connection to the account *a, which it holds from then on,
 * instead of its own. 0, or -EDQUOT: nothing changes, and *a is closed. */
int requests_account_move(struct call *c, struct srdma_account *a);
/* The client disconnected. */
void requests_account_leave(struct client *client);
/* An error of srdma_account_open(), with a text. */
int requests_account_full(struct call *c, int err, const char *name);

int requests_quota(struct call *c);
int requests_quota_usage(struct call *c);
int requests_quota_qps(struct call *c);

/* --- for handlers ------------------------------------------------------ */

/* Set out.text and return err. */
int requests_refuse(struct call *c, int err, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The relay refused the request: use its text. Returns err. */
int requests_refused(struct call *c, int err);
/* Find a leg that the client may use. Return 0 or -EPERM. */
int requests_leg(struct call *c, uint32_t id, struct srdma_leg **leg);
int requests_leg_of_qp(struct call *c, uint32_t qpn, struct srdma_leg **leg);
/*
 * Respond later: queue *d, of which client, kind, tag and leg are set here.
 * Returns REQUESTS_DEFERRED or -ENOMEM.
 */
int requests_defer(struct call *c, struct srdma_leg *leg,
		   const struct deferred *d);

#endif
