#include "link.h"

#include <errno.h>
#include <stdlib.h>

#include "mutant.h"
#include "relay_impl.h"

enum { LOOKS = 8 }; /* of who asks in vain: a turn stays short */

static struct srdma_link *create(struct srdma_relay *r, struct srdma_conn *conn,
				 int accepted)
{
	struct srdma_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	*link = (struct srdma_link){ .next = r->links,
				     .conn = conn,
				     .up = (uint8_t)accepted,
				     .accepted = (uint8_t)accepted };
	conn->user = link;
	r->links = link;
	return link;
}

/* --- strangers: few, and they do not stay ------------------------------ */

/* Half of `silence` at most: a peer whose wire is held for a stranger's finds
 * it closed, and connects again, before a QP ends for it. */
static uint64_t stay(const struct srdma_relay *r)
{
	const uint64_t most = 10 * SRDMA_SECOND;

	return r->silence / 2 < most ? r->silence / 2 : most;
}

static void stop_being_strange(struct srdma_relay *r, struct srdma_link *link)
{
	if (!link->stranger)
		return;
	link->stranger = 0;
	TAILQ_REMOVE(&r->strangers, link, strangers);
	r->stranger_count--;
}

static void forget(struct srdma_relay *r, struct srdma_link *link)
{
	struct srdma_link **at = &r->links;

	stop_being_strange(r, link);
	if (r->look == link)
		r->look = link->next;
	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	free(link);
}

static void close_oldest(struct srdma_relay *r)
{
	struct srdma_link *link = TAILQ_LAST(&r->strangers, srdma_link_list);
	struct srdma_conn *conn = link->conn;

	forget(r, link);
	conn->port->ops->close(conn);
}

/* Room is made by the oldest: the newest may be a peer that comes back. */
static void be_strange(struct srdma_relay *r, struct srdma_link *link)
{
	link->stranger = 1;
	link->since = r->now;
	TAILQ_INSERT_HEAD(&r->strangers, link, strangers);
	r->stranger_count++;
	if (r->stranger_count > SRDMA_MAX_STRANGERS)
		close_oldest(r);
	srdma_relay_wake_at(r, r->now + stay(r));
}

void srdma_link_expire(struct srdma_relay *r)
{
	while (r->stranger_count) {
		const struct srdma_link *oldest =
			TAILQ_LAST(&r->strangers, srdma_link_list);

		if (r->now < oldest->since + stay(r)) {
			srdma_relay_wake_at(r, oldest->since + stay(r));
			return;
		}
		close_oldest(r);
	}
}

void srdma_link_accept(struct srdma_relay *r, struct srdma_conn *conn)
{
	struct srdma_link *link = create(r, conn, 1);

	if (link)
		be_strange(r, link);
	else
		conn->port->ops->close(conn);
}

/* --- QPs come and go ---------------------------------------------------- */

/* An accepted wire that no QP is on is a stranger's, again. */
static void leave(struct srdma_qp *qp)
{
	struct srdma_link *link = qp->wire ? qp->wire->user : NULL;

	qp->wire = NULL;
	if (!link)
		return;
	LIST_REMOVE(qp, wire_next);
	if (link->accepted && LIST_EMPTY(&link->users))
		be_strange(qp->relay, link);
}

static void join(struct srdma_qp *qp, struct srdma_conn *conn)
{
	struct srdma_link *link = conn->user;
	struct srdma_link *before = qp->wire ? qp->wire->user : NULL;

	/* First: what is left may push the oldest stranger out. */
	stop_being_strange(qp->relay, link);
	if (before)
		before->left_by = qp->qpn;
	leave(qp);
	qp->wire = conn;
	LIST_INSERT_HEAD(&link->users, qp, wire_next);
}

int srdma_link_wire(struct srdma_qp *qp, struct srdma_conn *conn)
{
	struct srdma_link *link = conn->user;

	if (!link)
		link = create(qp->relay, conn, 0);
	if (!link)
		return -ENOMEM;
	link->refs++;
	qp->home = conn;
	LIST_INSERT_HEAD(&link->homes, qp, home_next);
	if (!qp->wire || (link->up && qp->wire != conn))
		join(qp, conn);
	srdma_dial_try(qp);
	return 0;
}

/* Where those that are made carry nothing back: over UDP (11a). */
static int is_one_way(const struct srdma_conn *conn)
{
	return conn->port->ops->keep != NULL;
}

/* Where it is leads where it would go: it would be no change. */
static int is_home(const struct srdma_qp *qp)
{
	return is_one_way(qp->home) && qp->wire &&
	       qp->home->port->ops->same(qp->wire, qp->home);
}

/* To a home of which nothing is known, or nothing can be. */
static void return_home(struct srdma_qp *qp)
{
	join(qp, qp->home);
	if (is_one_way(qp->home) && !qp->dial.trial)
		srdma_relay_activate(qp);
	else
		srdma_dial_try(qp);
}

void srdma_link_go_home(struct srdma_qp *qp)
{
	const struct srdma_link *link = qp->home ? qp->home->user : NULL;

	if (link && link->up && qp->wire != qp->home && !is_home(qp))
		return_home(qp);
}

/* 1: it left this one, or who joined this one last sends to the same peer, as
 * all on a wire usually do. */
static int leads_to_peer(const struct srdma_link *link,
			 const struct srdma_qp *qp)
{
	const struct srdma_qp *user = LIST_FIRST(&link->users);

	return link->left_by == qp->qpn ||
	       (user && srdma_session_same_peer(user->session, qp->session));
}

void srdma_link_try_another(struct srdma_qp *qp)
{
	struct srdma_relay *r = qp->relay;
	const struct srdma_link *own = qp->wire ? qp->wire->user : NULL;
	struct srdma_link *first = r->look ? r->look : r->links, *link = first;
	int looks = 0;

	if (!own || qp->home)
		return;
	do {
		r->look = link->next;
		if (link != own && leads_to_peer(link, qp)) {
			join(qp, link->conn);
			return;
		}
		looks += link != own && !link->stranger;
		link = r->look ? r->look : r->links;
	} while (link != first && looks < LOOKS);
}

/* Guests go home; who has no other wire waits for one, or connects it. */
void srdma_link_down(struct srdma_relay *r, struct srdma_conn *conn)
{
	struct srdma_link *link = conn->user;
	uint32_t refs = link && link->refs ? link->refs : 1;
	struct srdma_qp *qp;

	if (link) {
		link->accepted = 0; /* no stranger's any more */
		while ((qp = LIST_FIRST(&link->homes))) {
			LIST_REMOVE(qp, home_next);
			qp->home = NULL;
			srdma_dial_ended(qp);
		}
		while ((qp = LIST_FIRST(&link->users))) {
			leave(qp);
			srdma_dial_note(qp);
			if (qp->home)
				return_home(qp);
		}
		forget(r, link);
	}
	while (refs--)
		conn->port->ops->close(conn);
}

/* One reference less; without the last one it is there for nobody. */
static void let_go(struct srdma_qp *qp)
{
	struct srdma_conn *home = qp->home;
	struct srdma_link *link = home->user;

	LIST_REMOVE(qp, home_next);
	qp->home = NULL;
	if (link->refs == 1) {
		srdma_link_down(qp->relay, home);
		return;
	}
	link->refs--;
	home->port->ops->close(home);
}

void srdma_link_unwire(struct srdma_qp *qp)
{
	leave(qp);
	if (qp->home)
		let_go(qp);
}

/* 1: somebody who sends on it has heard its peer since then. */
static int is_alive(const struct srdma_link *link, uint64_t since)
{
	const struct srdma_qp *qp;

	LIST_FOREACH(qp, &link->users, wire_next)
	if (srdma_dial_settled(qp) && qp->heard > since)
		return 1;
	return 0;
}

void srdma_link_give_up(struct srdma_qp *qp)
{
	if (!is_alive(qp->home->user, qp->dial.begun)) {
		srdma_link_down(qp->relay, qp->home);
		return;
	}
	if (qp->wire == qp->home)
		leave(qp);
	let_go(qp);
	srdma_dial_ended(qp);
	srdma_dial_note(qp);
}

void srdma_link_up(struct srdma_relay *r, struct srdma_conn *conn)
{
	struct srdma_link *link = conn->user;
	struct srdma_qp *qp;

	(void)r;
	if (!link)
		return;
	if (SRDMA_MUTANT(WIRE_TRUSTED_EARLY))
		LIST_FOREACH(qp, &link->homes, home_next)
	srdma_dial_proven(qp);
	if (link->up) /* told again, for each that shares it */
		return;
	link->up = 1;
	LIST_FOREACH(qp, &link->homes, home_next)
	if (qp->dial.trial && qp->wire != conn)
		return_home(qp);
	LIST_FOREACH(qp, &link->users, wire_next)
	srdma_relay_activate(qp);
}

/* --- where the newest packet verified ---------------------------------- */

/* A passing conn on which a packet verified. 0: there is no place for it. */
static int adopt(struct srdma_relay *r, struct srdma_conn *conn)
{
	srdma_link_expire(r);
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
	int home = qp->home == conn, asked = home && qp->dial.trial;

	if (srdma_dial_settled(qp) &&
	    (qp->wire == conn || p->pn != srdma_session_highest(qp->session)))
		return;
	if (!conn->user && !adopt(qp->relay, conn))
		return;
	if (qp->wire != conn)
		join(qp, conn);
	if (home || (qp->home && is_one_way(conn)))
		srdma_dial_proven(qp);
	srdma_dial_note(qp);
	srdma_retry_rewired(qp, !asked);
}
