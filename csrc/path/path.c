#include "path/path.h"

#include <errno.h>
#include <stdlib.h>

#include "path/path_impl.h"
#include "qp/env.h"
#include "qp/qp.h"
#include "session/session.h"

enum {
	LOOKS = 8
}; /* paths that a search examines, so that a turn stays short */

static struct srdma_path *path_of(const struct srdma_conn *conn)
{
	return conn ? conn->user : NULL;
}

static struct srdma_path *create(struct srdma_path_table *t,
				 struct srdma_conn *conn, int accepted)
{
	struct srdma_path *path = calloc(1, sizeof(*path));

	if (!path)
		return NULL;
	*path = (struct srdma_path){ .next = t->paths,
				     .conn = conn,
				     .up = (uint8_t)accepted,
				     .accepted = (uint8_t)accepted };
	conn->user = path;
	t->paths = path;
	return path;
}

struct srdma_path_table *srdma_path_table_create(struct srdma_env *env)
{
	struct srdma_path_table *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->env = env;
	TAILQ_INIT(&t->unbound);
	return t;
}

void srdma_path_table_destroy(struct srdma_path_table *t)
{
	struct srdma_path *path;

	if (!t)
		return;
	while ((path = t->paths) != NULL) {
		t->paths = path->next;
		path->conn->port->ops->close(path->conn);
		free(path);
	}
	free(t);
}

/* --- unbound paths -------------------------------------------------------- */

/* At most half of `silence`: a peer whose path is closed as unbound notices it
 * and reconnects before a QP fails for it. */
static uint64_t stay(const struct srdma_env *env)
{
	const uint64_t most = 10 * SRDMA_SECOND;

	return env->silence / 2 < most ? env->silence / 2 : most;
}

static void bind_path(struct srdma_path_table *t, struct srdma_path *path)
{
	if (!path->unbound)
		return;
	path->unbound = 0;
	TAILQ_REMOVE(&t->unbound, path, unbound_next);
	t->unbound_count--;
}

static void forget(struct srdma_path_table *t, struct srdma_path *path)
{
	struct srdma_path **at = &t->paths;

	bind_path(t, path);
	if (t->look == path)
		t->look = path->next;
	while (*at != path)
		at = &(*at)->next;
	*at = path->next;
	free(path);
}

static void close_oldest(struct srdma_path_table *t)
{
	struct srdma_path *path = TAILQ_LAST(&t->unbound, srdma_path_list);
	struct srdma_conn *conn = path->conn;

	forget(t, path);
	conn->port->ops->close(conn);
}

/* Above the limit the oldest is closed: the newest may come from a peer that
 * reconnects. */
static void unbind_path(struct srdma_path_table *t, struct srdma_path *path)
{
	struct srdma_env *env = t->env;

	path->unbound = 1;
	path->since = env->now;
	TAILQ_INSERT_HEAD(&t->unbound, path, unbound_next);
	t->unbound_count++;
	if (t->unbound_count > SRDMA_MAX_UNBOUND)
		close_oldest(t);
	srdma_env_wake(env, env->now + stay(env));
}

void srdma_path_expire(struct srdma_env *env)
{
	struct srdma_path_table *t = env->paths;

	while (t->unbound_count) {
		const struct srdma_path *oldest =
			TAILQ_LAST(&t->unbound, srdma_path_list);

		if (env->now < oldest->since + stay(env)) {
			srdma_env_wake(env, oldest->since + stay(env));
			return;
		}
		close_oldest(t);
	}
}

void srdma_path_accept(struct srdma_env *env, struct srdma_conn *conn)
{
	struct srdma_path *path = create(env->paths, conn, 1);

	if (path)
		unbind_path(env->paths, path);
	else
		conn->port->ops->close(conn);
}

/* --- QPs join and leave --------------------------------------------------- */

void srdma_path_create(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	x->qp = qp;
	x->env = srdma_qp_env(qp);
}

/* An accepted path without users is unbound again. */
static void leave(struct srdma_qp_path *x)
{
	struct srdma_path *path = path_of(x->conn);

	x->conn = NULL;
	if (!path)
		return;
	LIST_REMOVE(x, user_next);
	if (path->accepted && LIST_EMPTY(&path->users))
		unbind_path(x->env->paths, path);
}

static void join(struct srdma_qp_path *x, struct srdma_conn *conn)
{
	struct srdma_path *path = path_of(conn);
	struct srdma_path *before = path_of(x->conn);

	/* First: leaving may close the oldest unbound path. */
	bind_path(x->env->paths, path);
	if (before)
		before->left_by = srdma_qp_number(x->qp);
	leave(x);
	x->conn = conn;
	LIST_INSERT_HEAD(&path->users, x, user_next);
}

int srdma_path_own(struct srdma_qp *qp, struct srdma_conn *conn)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	struct srdma_path *path = path_of(conn);

	if (!path)
		path = create(x->env->paths, conn, 0);
	if (!path)
		return -ENOMEM;
	path->refs++;
	x->own = conn;
	LIST_INSERT_HEAD(&path->owners, x, owner_next);
	if (!x->conn || (path->up && x->conn != conn))
		join(x, conn);
	srdma_connect_try(qp);
	return 0;
}

/* 1: over UDP, where no packet arrives on a connection that was opened here
 * (11a). */
static int is_one_way(const struct srdma_conn *conn)
{
	return conn->port->ops->keep != NULL;
}

/* 1: the QP's UDP connection leads to the same address as its own path. */
static int is_same_as_own(const struct srdma_qp_path *x)
{
	return is_one_way(x->own) && x->conn &&
	       x->own->port->ops->same(x->conn, x->own);
}

/* Moves to the own path, which is not validated; over UDP it need not be. */
static void return_to_own(struct srdma_qp_path *x)
{
	join(x, x->own);
	if (is_one_way(x->own) && !x->connect.trial)
		srdma_qp_activate(x->qp);
	else
		srdma_connect_try(x->qp);
}

void srdma_path_go_own(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	const struct srdma_path *path = path_of(x->own);

	if (path && path->up && x->conn != x->own && !is_same_as_own(x))
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

void srdma_path_try_another(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	struct srdma_path_table *t = x->env->paths;
	const struct srdma_path *current = path_of(x->conn);
	struct srdma_path *first = t->look ? t->look : t->paths, *path = first;
	int looks = 0;

	if (!current || x->own)
		return;
	do {
		t->look = path->next;
		if (path != current && leads_to_peer(path, qp)) {
			join(x, path->conn);
			return;
		}
		looks += path != current && !path->unbound;
		path = t->look ? t->look : t->paths;
	} while (path != first && looks < LOOKS);
}

/* --- the end of a path ---------------------------------------------------- */

/* The owners of the path reconnect; its other users return to their own path,
 * or wait for one. */
void srdma_path_down(struct srdma_env *env, struct srdma_conn *conn)
{
	struct srdma_path *path = path_of(conn);
	uint32_t refs = path && path->refs ? path->refs : 1;
	struct srdma_qp_path *x;

	if (path) {
		path->accepted = 0; /* it does not become unbound again */
		while ((x = LIST_FIRST(&path->owners))) {
			LIST_REMOVE(x, owner_next);
			x->own = NULL;
			srdma_connect_ended(x->qp);
		}
		while ((x = LIST_FIRST(&path->users))) {
			leave(x);
			srdma_connect_note(x->qp);
			if (x->own)
				return_to_own(x);
		}
		forget(env->paths, path);
	}
	while (refs--)
		conn->port->ops->close(conn);
}

/* Drops one reference; dropping the last one ends the path. */
static void release_own(struct srdma_qp_path *x)
{
	struct srdma_conn *own = x->own;
	struct srdma_path *path = path_of(own);

	LIST_REMOVE(x, owner_next);
	x->own = NULL;
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

	leave(x);
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

	if (!is_alive(path_of(x->own), x->connect.begun)) {
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
	struct srdma_path *path = path_of(conn);
	struct srdma_qp_path *x;

	/* A shared connection is reported once for each reference. */
	if (!path || path->up)
		return;
	path->up = 1;
	LIST_FOREACH(x, &path->owners, owner_next) {
		if (x->connect.trial && x->conn != conn)
			return_to_own(x);
	}
	LIST_FOREACH(x, &path->users, user_next) {
		srdma_qp_activate(x->qp);
	}
}

/* --- the path of the newest packet ----------------------------------------- */

/* Keeps a connection, on which a packet verified, beyond this event (port.h,
 * keep). 0: there is no room for it. */
static int adopt(struct srdma_path_table *t, struct srdma_conn *conn)
{
	srdma_path_expire(t->env);
	if (conn->port->ops->keep(conn))
		return 0;
	if (create(t, conn, 1))
		return 1;
	conn->port->ops->close(conn);
	return 0;
}

int srdma_path_follow(struct srdma_qp *qp, const struct srdma_packet *p,
		      struct srdma_conn *conn)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	const int own = x->own == conn, probed = own && x->connect.trial;

	if (srdma_connect_validated(qp) &&
	    (x->conn == conn ||
	     p->pn != srdma_session_highest(srdma_qp_session(qp))))
		return 0;
	if (!conn->user && !adopt(x->env->paths, conn))
		return 0;
	if (x->conn != conn)
		join(x, conn);
	if (own || (x->own && is_one_way(conn)))
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
	const struct srdma_path *path = path_of(srdma_qp_path(qp)->conn);

	return srdma_qp_session(qp) && path && path->up;
}

int srdma_path_has_own(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->own != NULL;
}
