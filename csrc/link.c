#include "link.h"

#include <errno.h>
#include <stdlib.h>

#include "relay_impl.h"

#define STRANGER_NS (10 * SRDMA_SECOND)

static struct srdma_link *find(struct srdma_relay *r,
			       const struct srdma_conn *conn)
{
	struct srdma_link *l = r->links;

	while (l && l->conn != conn)
		l = l->next;
	return l;
}

static void forget(struct srdma_relay *r, struct srdma_link *link)
{
	struct srdma_link **at = &r->links;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	free(link);
}

static struct srdma_link *create(struct srdma_relay *r, struct srdma_conn *conn,
				 int accepted)
{
	struct srdma_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	*link = (struct srdma_link){ .next = r->links,
				     .conn = conn,
				     .since = r->now,
				     .up = (uint8_t)accepted,
				     .accepted = (uint8_t)accepted };
	conn->user = link;
	r->links = link;
	return link;
}

/* An accepted wire that no QP is on is a stranger's, again. */
static void leave(struct srdma_qp *qp)
{
	struct srdma_link *link = qp->wire ? qp->wire->user : NULL;

	qp->wire = NULL;
	if (!link || --link->users || !link->accepted)
		return;
	link->since = qp->relay->now;
	srdma_relay_wake_at(qp->relay, link->since + STRANGER_NS);
}

static void join(struct srdma_qp *qp, struct srdma_conn *conn)
{
	struct srdma_link *link = conn->user;

	leave(qp);
	qp->wire = conn;
	link->users++;
}

int srdma_link_wire(struct srdma_qp *qp, struct srdma_conn *conn)
{
	struct srdma_link *link = find(qp->relay, conn);

	if (!link)
		link = create(qp->relay, conn, 0);
	if (!link)
		return -ENOMEM;
	link->refs++;
	qp->home = conn;
	join(qp, conn);
	return 0;
}

/* Guests go home; who has no other wire ends. */
void srdma_link_down(struct srdma_relay *r, struct srdma_conn *conn)
{
	struct srdma_link *link = find(r, conn);
	uint32_t refs = link && link->refs ? link->refs : 1;
	struct srdma_qp *qp = NULL;

	while ((qp = srdma_relay_next_qp(r, qp))) {
		if (qp->home == conn)
			qp->home = NULL;
		if (qp->wire != conn)
			continue;
		leave(qp);
		if (qp->home) {
			join(qp, qp->home);
			srdma_relay_activate(qp);
			continue;
		}
		qp->ctl = 0;
		if (!qp->ending) /* else it ends for what the peer said */
			srdma_qp_fail(qp, SRDMA_REASON_WIRE_LOST, SRDMA_OLDEST,
				      0);
	}
	if (link)
		forget(r, link);
	while (refs--)
		conn->port->ops->close(conn);
}

void srdma_link_unwire(struct srdma_qp *qp)
{
	struct srdma_conn *home = qp->home;
	struct srdma_link *link = home ? home->user : NULL;

	leave(qp);
	qp->home = NULL;
	if (!link)
		return;
	if (link->refs == 1) {
		srdma_link_down(qp->relay, home);
		return;
	}
	link->refs--;
	home->port->ops->close(home);
}

/* Strangers are few, and do not stay. */
static void close_strangers(struct srdma_relay *r)
{
	uint32_t kept = 0;
	struct srdma_link *l, *next;

	for (l = r->links; l; l = next) { /* newest first */
		next = l->next;
		if (!l->accepted || l->users)
			continue;
		if (++kept <= SRDMA_MAX_STRANGERS &&
		    r->now < l->since + STRANGER_NS)
			continue;
		l->conn->port->ops->close(l->conn);
		forget(r, l);
	}
}

void srdma_link_accept(struct srdma_relay *r, struct srdma_conn *conn)
{
	if (!create(r, conn, 1)) {
		conn->port->ops->close(conn);
		return;
	}
	close_strangers(r);
	srdma_relay_wake_at(r, r->now + STRANGER_NS);
}

void srdma_link_up(struct srdma_relay *r, struct srdma_conn *conn)
{
	struct srdma_link *link = find(r, conn);
	struct srdma_qp *qp = NULL;

	if (!link)
		return;
	link->up = 1;
	while ((qp = srdma_relay_next_qp(r, qp)))
		if (qp->wire == conn)
			srdma_relay_activate(qp);
}

void srdma_link_expire(struct srdma_relay *r)
{
	close_strangers(r);
	for (const struct srdma_link *l = r->links; l; l = l->next)
		if (l->accepted && !l->users)
			srdma_relay_wake_at(r, l->since + STRANGER_NS);
}

/* A passing conn on which a packet verified. 0: there is no place for it. */
static int adopt(struct srdma_relay *r, struct srdma_conn *conn)
{
	close_strangers(r);
	if (conn->port->ops->keep(conn))
		return 0;
	if (create(r, conn, 1))
		return 1;
	conn->port->ops->close(conn);
	return 0;
}

void srdma_link_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		       struct srdma_conn *conn)
{
	if (qp->wire == conn || p->pn != srdma_session_highest(qp->session))
		return;
	if (conn->user || adopt(qp->relay, conn))
		join(qp, conn);
}
