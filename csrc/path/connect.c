#include "path/connect.h"

#include <errno.h>
#include <string.h>

#include "relay/relay_impl.h"

#define MS UINT64_C(1000000)

enum {
	FIRST_WAIT_MS = 10,
	MOST_WAIT_MS = 1000,
	TRIAL_MS = 2000,
	TURN_DIALS = 16, /* of all QPs: a turn stays short */
};

int srdma_connect_validated(const struct srdma_qp *qp)
{
	return qp->wire && (qp->wire != qp->home || !qp->dial.trial);
}

void srdma_connect_note(struct srdma_qp *qp)
{
	struct srdma_connect *d = &qp->dial;

	if (srdma_connect_validated(qp)) {
		d->lost = SRDMA_NEVER;
		return;
	}
	if (d->lost != SRDMA_NEVER)
		return;
	d->lost = qp->relay->now;
	srdma_relay_wake_qp(qp, d->lost + qp->relay->silence);
	qp->relay->stats.wires_lost++;
}

void srdma_connect_try(struct srdma_qp *qp)
{
	qp->dial.trial = 1;
	qp->dial.begun = qp->relay->now;
	srdma_connect_note(qp);
	if (qp->state == SRDMA_QP_ERR)
		return;
	srdma_relay_wake_qp(qp, qp->dial.begun + TRIAL_MS * MS);
	if (qp->wire != qp->home)
		return; /* when it is up */
	qp->ctl |= SRDMA_SAY_OPEN;
	srdma_retry_reset(qp);
	srdma_relay_activate(qp);
}

void srdma_connect_proven(struct srdma_qp *qp)
{
	qp->dial.trial = 0;
	qp->dial.failures = 0;
	srdma_connect_note(qp);
}

/* From the first failure on: 10 ms, 20 ms, ... 1 s. */
static uint64_t patience(uint32_t failures)
{
	uint64_t ms = MOST_WAIT_MS;

	if (failures <= 7)
		ms = (uint64_t)FIRST_WAIT_MS << (failures - 1);
	return (ms < MOST_WAIT_MS ? ms : MOST_WAIT_MS) * MS;
}

/* What stood is connected again at once; but a peer that lets each connection
 * end as soon as it was good is no reason to do nothing else. */
void srdma_connect_ended(struct srdma_qp *qp)
{
	struct srdma_connect *d = &qp->dial;
	uint64_t now = qp->relay->now;

	if (d->trial)
		d->due = now + patience(++d->failures);
	else
		d->due = d->begun + FIRST_WAIT_MS * MS;
	d->trial = 0;
	srdma_relay_wake_qp(qp, d->due);
}

/* 0, or what the wire says: home is as it was. */
static int dial(struct srdma_qp *qp)
{
	struct srdma_port *wire = qp->relay->wire;
	struct srdma_conn *conn;
	int err;

	wire->why = NULL;
	err = wire->ops->connect(wire, qp->dial.address, &conn);
	if (err)
		return err;
	err = srdma_path_wire(qp, conn);
	if (err)
		wire->ops->close(conn);
	return err;
}

int srdma_connect_begin(struct srdma_qp *qp, const char *address)
{
	struct srdma_relay *r = qp->relay;
	int err;

	qp->dial = (struct srdma_connect){ .lost = r->now };
	srdma_relay_wake_qp(qp, r->now + r->silence);
	if (!address)
		return 0;
	memcpy(qp->dial.address, address, sizeof(qp->dial.address));
	err = dial(qp);
	if (!err)
		return 0;
	return srdma_relay_refuse(r, err, "wire to %s: %s", address,
				  r->wire->why ? r->wire->why : strerror(-err));
}

/* Connect it again. */
static uint64_t redial(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_relay *r = qp->relay;

	if (now < qp->dial.due)
		return qp->dial.due;
	if (r->dials >= TURN_DIALS)
		return now + MS;
	r->dials++;
	r->stats.wires_dialed++;
	qp->dial.trial = 1;
	if (!dial(qp))
		return now + TRIAL_MS * MS;
	srdma_connect_ended(qp);
	return qp->dial.due;
}

static uint64_t expire_home(struct srdma_qp *qp, uint64_t now)
{
	uint64_t end = qp->dial.begun + TRIAL_MS * MS;

	if (qp->role)
		return SRDMA_NEVER;
	if (!qp->home)
		return redial(qp, now);
	if (!qp->dial.trial)
		return SRDMA_NEVER;
	if (now < end)
		return end;
	srdma_path_give_up(qp);
	return qp->dial.due;
}

uint64_t srdma_connect_expire(struct srdma_qp *qp, uint64_t now)
{
	uint64_t next = expire_home(qp, now);
	uint64_t end = qp->dial.lost + qp->relay->silence;

	if (qp->dial.lost == SRDMA_NEVER)
		return next;
	if (now < end)
		return next < end ? next : end;
	srdma_qp_fail(qp, SRDMA_REASON_WIRE_LOST, SRDMA_OLDEST, 1);
	return SRDMA_NEVER;
}
