#include "path/path.h"

#include <errno.h>

#include "ledger/ledger.h"
#include "path/bare.h"
#include "path/path_impl.h"
#include "path/probe.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "session/session.h"

enum {
	LOOKS = 8
}; /* paths that a search examines, so that a turn stays short */

/* --- QPs join and leave --------------------------------------------------- */

void srdma_path_create(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->qp = qp;
	x->env = srdma_qp_env(qp);
	x->home_due = SRDMA_NEVER;
}

/* An accepted path that no QP needs is unbound again. */
static void unbind_unused(struct srdma_path_table *t, struct srdma_path *path)
{
	if (path->accepted && LIST_EMPTY(&path->users) && !path->candidates)
		srdma_path_unbind(t, path);
}

void srdma_path_hold(struct srdma_path_table *t, struct srdma_conn *conn)
{
	struct srdma_path *path = srdma_path_of(conn);

	srdma_path_bind(t, path);
	path->candidates++;
}

void srdma_path_release(struct srdma_path_table *t, struct srdma_conn *conn)
{
	struct srdma_path *path = srdma_path_of(conn);

	path->candidates--;
	unbind_unused(t, path);
}

void srdma_path_remember(struct srdma_qp_path *x, struct srdma_path *path)
{
	if (x->remembered)
		LIST_REMOVE(x, known_next);
	x->remembered = path;
	if (!path)
		return;
	x->shown_by = UINT64_MAX;
	LIST_INSERT_HEAD(&path->known_by, x, known_next);
}

static void leave(struct srdma_qp_path *x)
{
	struct srdma_path *path = srdma_path_of(x->conn);

	x->conn = NULL;
	x->current = (struct srdma_probe){ 0 };
	x->held = 0;
	srdma_bare_end(x->qp);
	if (!path)
		return;
	LIST_REMOVE(x, user_next);
	unbind_unused(x->env->paths, path);
}

void srdma_path_move(struct srdma_qp_path *x, struct srdma_conn *conn)
{
	struct srdma_path *path = srdma_path_of(conn);
	struct srdma_path *before = srdma_path_of(x->conn);

	/* First: leaving may close the oldest unbound path. */
	srdma_path_bind(x->env->paths, path);
	if (before)
		before->left_by = srdma_qp_number(x->qp);
	leave(x);
	x->conn = conn;
	LIST_INSERT_HEAD(&path->users, x, user_next);
	if (x->remembered)
		x->shown_by = srdma_session_next_pn(srdma_qp_session(x->qp));
	else
		srdma_path_remember(x, path);
}

int srdma_path_attach(struct srdma_qp_path *x, struct srdma_conn *conn)
{
	struct srdma_path *path = srdma_path_of(conn);

	if (!path)
		path = srdma_path_make(x->env->paths, conn, 0);
	if (!path)
		return -ENOMEM;
	path->refs++;
	x->own = conn;
	LIST_INSERT_HEAD(&path->owners, x, owner_next);
	return 0;
}

int srdma_path_is_one_way(const struct srdma_conn *conn)
{
	return conn->port->ops->keep != NULL;
}

int srdma_path_same(const struct srdma_conn *a, const struct srdma_conn *b)
{
	return a == b || a->port->ops->same(a, b);
}

int srdma_path_own(struct srdma_qp *qp, struct srdma_conn *conn)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	if (srdma_path_attach(x, conn))
		return -ENOMEM;
	if (!x->conn || (srdma_path_of(conn)->up && x->conn != conn &&
			 !srdma_path_is_one_way(conn)))
		srdma_path_move(x, conn);
	srdma_connect_try(qp);
	return 0;
}

/* Moves to the own path, which is not validated. */
static void return_to_own(struct srdma_qp_path *x)
{
	srdma_path_move(x, x->own);
	srdma_connect_try(x->qp);
}

void srdma_path_go_own(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	const struct srdma_path *path = srdma_path_of(x->own);

	if (!path || !path->up || x->conn == x->own)
		return;
	if (srdma_path_is_one_way(x->own))
		srdma_probe_home(qp);
	else
		return_to_own(x);
}

/* 1: the QP left this path last, or the newest user sends to the same peer, as
 * all users of a path usually do. */
static int leads_to_peer(const struct srdma_path *path,
			 const struct srdma_qp *qp)
{
	const struct srdma_qp_path *user = LIST_FIRST(&path->users);

	return path->left_by == srdma_qp_number(qp) ||
	       (user && srdma_session_same_peer(srdma_qp_session(user->qp),
						srdma_qp_session(qp)));
}

/* Moves a QP without an own path to the one that it remembers, not over UDP, if
 * that is another one than `than`. 1: it did. */
static int go_remembered(struct srdma_qp_path *x, const struct srdma_path *than)
{
	struct srdma_path *path = x->remembered;

	if (!path || path == than || x->own ||
	    srdma_path_is_one_way(path->conn))
		return 0;
	srdma_path_move(x, path->conn);
	return 1;
}

void srdma_path_try_another(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	struct srdma_path_table *t = x->env->paths;
	const struct srdma_path *current = srdma_path_of(x->conn);
	struct srdma_path *first = t->look ? t->look : t->paths, *path = first;
	int looks = 0;

	if (!current || x->own || srdma_path_is_one_way(x->conn) ||
	    go_remembered(x, current))
		return;
	do {
		t->look = path->next;
		if (path != current && leads_to_peer(path, qp)) {
			srdma_path_move(x, path->conn);
			return;
		}
		looks += path != current && !path->unbound;
		path = t->look ? t->look : t->paths;
	} while (path != first && looks < LOOKS);
}

/* --- the end of a path ---------------------------------------------------- */

static void disown(struct srdma_qp_path *x)
{
	srdma_probe_end(x->qp);
	if (srdma_qp_keyed(x->qp)->role)
		srdma_account_give(srdma_qp_identity(x->qp), SRDMA_RES_HOMES,
				   1);
	LIST_REMOVE(x, owner_next);
	x->own = NULL;
}

/* The QP's path ended. */
static void replace(struct srdma_qp_path *x, const struct srdma_path *ended)
{
	leave(x);
	if (go_remembered(x, ended))
		srdma_qp_activate(x->qp);
	srdma_connect_note(x->qp);
	if (x->own)
		return_to_own(x);
}

/* The owners of the path reconnect; its other users return to their own path or to
 * the one that they remember, or wait for one. */
void srdma_path_down(struct srdma_env *env, struct srdma_conn *conn)
{
	struct srdma_path *path = srdma_path_of(conn);
	uint32_t refs = path && path->refs ? path->refs : 1;
	struct srdma_qp_path *x;

	if (path) {
		path->accepted = 0; /* it does not become unbound again */
		while ((x = LIST_FIRST(&path->owners))) {
			disown(x);
			srdma_connect_ended(x->qp);
		}
		while ((x = LIST_FIRST(&path->users)))
			replace(x, path);
		srdma_path_forget(env->paths, path);
	}
	while (refs--)
		conn->port->ops->close(conn);
}

/* Drops one reference; dropping the last one ends the path. */
static void release_own(struct srdma_qp_path *x)
{
	struct srdma_conn *own = x->own;
	struct srdma_path *path = srdma_path_of(own);

	disown(x);
	if (path->refs == 1) {
		srdma_path_down(x->env, own);
		return;
	}
	path->refs--;
	own->port->ops->close(own);
}

void srdma_path_leave(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	srdma_probe_end(qp);
	leave(x);
	srdma_path_remember(x, NULL);
	if (x->own)
		release_own(x);
}

/* 1: a user of the path received a packet after that time. */
static int is_alive(const struct srdma_path *path, uint64_t since)
{
	const struct srdma_qp_path *x;

	LIST_FOREACH(x, &path->users, user_next) {
		if (srdma_connect_validated(x->qp) &&
		    srdma_qp_heard(x->qp) > since)
			return 1;
	}
	return 0;
}

void srdma_path_give_up(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	if (!is_alive(srdma_path_of(x->own), x->connect.begun)) {
		srdma_path_down(x->env, x->own);
		return;
	}
	if (x->conn == x->own)
		leave(x);
	release_own(x);
	srdma_connect_ended(qp);
	srdma_connect_note(qp);
}

void srdma_path_up(struct srdma_conn *conn)
{
	struct srdma_path *path = srdma_path_of(conn);
	struct srdma_qp_path *x;

	/* A shared connection is reported once for each reference. */
	if (!path || path->up)
		return;
	path->up = 1;
	LIST_FOREACH(x, &path->owners, owner_next) {
		if (!x->connect.trial || x->conn == conn)
			continue;
		if (srdma_path_is_one_way(conn))
			srdma_probe_home(x->qp);
		else
			return_to_own(x);
	}
	LIST_FOREACH(x, &path->users, user_next) {
		srdma_qp_activate(x->qp);
	}
}

/* --- the path of the newest packet ----------------------------------------- */

/* RFC 5042 A5.1.2 */
int srdma_path_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		      struct srdma_conn *conn)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	const int own = x->own == conn, probed = own && x->connect.trial;

	if (srdma_path_is_one_way(conn)) {
		srdma_bare_note(x, p);
		srdma_probe_follow(qp, p, conn);
		return 0;
	}
	if (srdma_connect_validated(qp) &&
	    (x->conn == conn ||
	     p->pn != srdma_session_highest(srdma_qp_session(qp))))
		return 0;
	if (x->conn != conn)
		srdma_path_move(x, conn);
	if (own)
		srdma_connect_proven(qp);
	srdma_connect_note(qp);
	return probed ? 2 : 1;
}

void srdma_path_restart(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	srdma_rtt_reset(&x->rtt);
	x->env->path_restarted(qp);
	x->progress = x->env->now;
	if (x->answered)
		x->answered = x->env->now;
}

struct srdma_conn *srdma_path_conn(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->conn;
}

int srdma_path_is_up(const struct srdma_qp *qp)
{
	const struct srdma_path *path = srdma_path_of(srdma_qp_path(qp)->conn);

	return srdma_qp_session(qp) && path && path->up;
}

int srdma_path_has_own(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->own != NULL;
}
