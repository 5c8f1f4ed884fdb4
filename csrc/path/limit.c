#include "path/limit.h"

#include "path/path_impl.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "wire/icrc.h"

enum {
	FACTOR = 3, /* bytes sent per byte received, before validation */
	OPENS = 16, /* OPENs to an address at once, of all QPs */
};

#define OPEN_EVERY (20 * SRDMA_MS) /* one OPEN more to such an address */

uint64_t srdma_limit_size(uint32_t len)
{
	return (uint64_t)len + SRDMA_ICRC_LEN;
}

void srdma_limit_begin(struct srdma_qp_path *x, uint64_t size)
{
	x->current.received = size;
	x->paid += size;
}

void srdma_limit_received(struct srdma_qp_path *x,
			  const struct srdma_conn *conn, uint64_t size)
{
	x->paid += size;
	x->held = 0;
	/* The peer named the address of the own path, so all that it sends pays
	 * for packets to there. */
	if (x->conn == x->own || srdma_path_same(x->conn, conn))
		x->current.received += size;
	if (x->candidate &&
	    (x->candidate == x->own || srdma_path_same(x->candidate, conn)))
		x->other.received += size;
}

void srdma_limit_forget(struct srdma_qp_path *x)
{
	x->paid = x->spent = 0;
}

void srdma_limit_lift(struct srdma_qp_path *x)
{
	x->held = 0;
	srdma_limit_forget(x);
	srdma_path_of(x->conn)->validated = 1;
	if (x->own && srdma_path_same(x->conn, x->own))
		srdma_path_of(x->own)->validated = 1;
}

int srdma_limit_is_held(const struct srdma_qp *qp, int opening)
{
	const struct srdma_qp_path *x = srdma_qp_path(qp);

	/* Only its rate holds an OPEN on the own path. */
	if (opening && x->conn == x->own)
		return x->held && x->held_until;
	return x->held;
}

uint64_t srdma_limit_expire(struct srdma_qp_path *x, uint64_t now)
{
	if (!x->held || !x->held_until)
		return SRDMA_NEVER;
	if (now < x->held_until)
		return x->held_until;
	x->held = 0;
	srdma_qp_activate(x->qp);
	return SRDMA_NEVER;
}

/* The path stays held until `until`, ns, or, with 0, until packets arrive. */
static int hold(struct srdma_qp_path *x, uint64_t until)
{
	x->held = 1;
	x->held_until = until;
	x->env->stats.path_packets_held++;
	if (until)
		srdma_qp_wake(x->qp, until);
	return 0;
}

/* 1: the own path is not validated, so that only the rate of OPENs is limited:
 * nothing arrived yet that could pay for them. */
static int is_opening(const struct srdma_qp_path *x,
		      const struct srdma_packet *p)
{
	return p->ack.kind == SRDMA_ACK_OPEN && x->conn == x->own;
}

/* 1: size bytes are paid for. */
static int is_paid(const struct srdma_qp_path *x, int other, uint64_t size)
{
	const struct srdma_probe *to = other ? &x->other : &x->current;

	return to->sent + size <= FACTOR * to->received &&
	       x->spent + size <= FACTOR * x->paid;
}

/* RFC 5042 X9 */
int srdma_limit_permits(struct srdma_qp_path *x, int other,
			const struct srdma_packet *p, uint32_t len)
{
	const struct srdma_probe *to = other ? &x->other : &x->current;
	const uint64_t burst = (OPENS - 1) * OPEN_EVERY;

	if (to->valid || to->known)
		return 1;
	if (is_opening(x, p)) {
		const struct srdma_path *path = srdma_path_of(x->own);

		return path->validated || path->opens <= x->env->now + burst ||
		       hold(x, path->opens - burst);
	}
	if (is_paid(x, other, srdma_limit_size(len)))
		return 1;
	if (!other)
		return hold(x, 0);
	x->env->stats.path_packets_held++;
	return 0;
}

void srdma_limit_sent(struct srdma_qp_path *x, int other,
		      const struct srdma_packet *p, uint32_t len)
{
	struct srdma_path *path;

	if (!is_opening(x, p)) {
		struct srdma_probe *to = other ? &x->other : &x->current;

		to->sent += srdma_limit_size(len);
		if (!to->valid && !to->known)
			x->spent += srdma_limit_size(len);
		return;
	}
	path = srdma_path_of(x->own);
	path->opens = srdma_time_later(path->opens, x->env->now) + OPEN_EVERY;
}
