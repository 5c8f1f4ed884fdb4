#include "path/connect.h"

#include <errno.h>
#include <string.h>

#include "path/path_impl.h"
#include "qp/env.h"
#include "qp/qp.h"

enum {
	FIRST_WAIT_MS = 10,
	MOST_WAIT_MS = 1000,
	TRIAL_MS = 2000,    /* time limit of a validation */
	TURN_CONNECTS = 16, /* of all QPs in one turn, so that it stays short */
};

int srdma_connect_validated(const struct srdma_qp *qp)
{
	const struct srdma_qp_path *x = srdma_qp_path(qp);

	if (x->conn && srdma_path_is_one_way(x->conn))
		return x->current.valid;
	return x->conn && (x->conn != x->own || !x->connect.trial);
}

void srdma_connect_note(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	struct srdma_connect *c = &x->connect;

	if (srdma_connect_validated(qp)) {
		c->lost = SRDMA_NEVER;
		return;
	}
	if (c->lost != SRDMA_NEVER)
		return;
	c->lost = x->env->now;
	srdma_qp_wake(qp, c->lost + x->env->silence);
	x->env->stats.wires_lost++;
}

void srdma_connect_try(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->connect.trial = 1;
	x->connect.begun = x->env->now;
	srdma_connect_note(qp);
	if (srdma_qp_state(qp) == SRDMA_QP_ERR)
		return;
	srdma_qp_wake(qp, x->connect.begun + TRIAL_MS * SRDMA_MS);
	if (x->conn != x->own)
		return; /* srdma_path_up() schedules OPEN */
	srdma_qp_schedule(qp, SRDMA_SAY_OPEN);
	srdma_path_restart(qp);
	srdma_qp_activate(qp);
}

void srdma_connect_proven(struct srdma_qp *qp)
{
	struct srdma_connect *c = &srdma_qp_path(qp)->connect;

	c->trial = 0;
	c->failures = 0;
	srdma_connect_note(qp);
}

/* Wait after n failures in a row: 10 ms, 20 ms, ... 1 s. n is at least 1. */
static uint64_t wait_after(uint32_t failures)
{
	uint64_t ms = MOST_WAIT_MS;

	if (failures <= 7)
		ms = (uint64_t)FIRST_WAIT_MS << (failures - 1);
	return (ms < MOST_WAIT_MS ? ms : MOST_WAIT_MS) * SRDMA_MS;
}

/* Reconnects a validated path at once, but at least 10 ms apart, so that a peer
 * that closes every connection cannot occupy this worker. */
void srdma_connect_ended(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	struct srdma_connect *c = &x->connect;

	if (c->trial)
		c->due = x->env->now + wait_after(++c->failures);
	else
		c->due = c->begun + FIRST_WAIT_MS * SRDMA_MS;
	c->trial = 0;
	srdma_qp_wake(qp, c->due);
}

/* Connects the own path. 0, or the error of the port: nothing changed. */
static int open_own(struct srdma_qp_path *x)
{
	struct srdma_port *wire = x->env->wire;
	struct srdma_conn *conn;
	int err;

	wire->why = NULL;
	err = wire->ops->connect(wire, x->connect.address, &conn);
	if (err)
		return err;
	err = srdma_path_own(x->qp, conn);
	if (err)
		wire->ops->close(conn);
	return err;
}

void srdma_connect_await(struct srdma_qp *qp, const char *address)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->connect = (struct srdma_connect){ .lost = x->env->now };
	srdma_qp_wake(qp, x->env->now + x->env->silence);
	memcpy(x->connect.address, address, sizeof(x->connect.address));
}

int srdma_connect_begin(struct srdma_qp *qp, const char *address)
{
	srdma_connect_await(qp, address);
	return open_own(srdma_qp_path(qp));
}

static uint64_t reconnect(struct srdma_qp_path *x, uint64_t now)
{
	struct srdma_path_table *t = x->env->paths;
	struct srdma_connect *c = &x->connect;

	if (now < c->due)
		return c->due;
	if (t->connects >= TURN_CONNECTS)
		return now + SRDMA_MS;
	t->connects++;
	x->env->stats.wires_dialed++;
	c->trial = 1;
	if (!open_own(x))
		return now + TRIAL_MS * SRDMA_MS;
	srdma_connect_ended(x->qp);
	return c->due;
}

static uint64_t expire_own(struct srdma_qp_path *x, uint64_t now)
{
	uint64_t end = x->connect.begun + TRIAL_MS * SRDMA_MS;

	if (srdma_qp_keyed(x->qp)->role)
		return SRDMA_NEVER;
	if (!x->own)
		return reconnect(x, now);
	if (!x->connect.trial)
		return SRDMA_NEVER;
	if (now < end)
		return end;
	srdma_path_give_up(x->qp);
	return x->connect.due;
}

uint64_t srdma_connect_expire(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	uint64_t next = expire_own(x, now);
	uint64_t end;

	if (x->connect.lost == SRDMA_NEVER)
		return next;
	end = srdma_env_silent(x->env, x->connect.lost);
	if (now < end)
		return srdma_time_earlier(next, end);
	srdma_qp_fail(qp, SRDMA_REASON_WIRE_LOST, SRDMA_OLDEST, 1);
	return SRDMA_NEVER;
}

void srdma_connect_turn(struct srdma_env *env)
{
	env->paths->connects = 0;
}
