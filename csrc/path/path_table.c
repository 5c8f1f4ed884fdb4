/* The paths of a relay: those that no QP uses, and the addresses that they keep. */
#include <stdlib.h>

#include "ledger/ledger.h"
#include "path/path_impl.h"
#include "qp/env.h"
#include "qp/qp.h"

struct srdma_path *srdma_path_make(struct srdma_path_table *t,
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

static void give_address(struct srdma_path *path)
{
	struct srdma_account *a = path->account;

	path->account = NULL;
	if (!a)
		return;
	srdma_account_give(a, SRDMA_RES_ADDRESSES, 1);
	srdma_account_close(a);
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
		give_address(path);
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

void srdma_path_bind(struct srdma_path_table *t, struct srdma_path *path)
{
	if (!path->unbound)
		return;
	path->unbound = 0;
	TAILQ_REMOVE(&t->unbound, path, unbound_next);
	t->unbound_count--;
}

void srdma_path_forget(struct srdma_path_table *t, struct srdma_path *path)
{
	struct srdma_path **at = &t->paths;

	while (!LIST_EMPTY(&path->known_by))
		srdma_path_remember(LIST_FIRST(&path->known_by), NULL);
	srdma_path_bind(t, path);
	give_address(path);
	if (t->look == path)
		t->look = path->next;
	while (*at != path)
		at = &(*at)->next;
	*at = path->next;
	free(path);
}

static void close_unbound(struct srdma_path_table *t, struct srdma_path *path)
{
	struct srdma_conn *conn = path->conn;

	srdma_path_forget(t, path);
	conn->port->ops->close(conn);
}

static void close_oldest(struct srdma_path_table *t)
{
	close_unbound(t, TAILQ_LAST(&t->unbound, srdma_path_list));
}

/* Above the limit the oldest is closed: the newest may come from a peer that
 * reconnects. */
void srdma_path_unbind(struct srdma_path_table *t, struct srdma_path *path)
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
	struct srdma_path *path = srdma_path_make(env->paths, conn, 1);

	if (path)
		srdma_path_unbind(env->paths, path);
	else
		conn->port->ops->close(conn);
}

/* --- addresses of peers ---------------------------------------------------- */

/* 1: closing the unbound path makes room for an address of the account. */
static int is_in_the_way(const struct srdma_path *path,
			 const struct srdma_account *a)
{
	if (!path->account || path->account == a)
		return path->account == a;
	return srdma_account_is_short(a, SRDMA_RES_ADDRESSES, 1) &&
	       srdma_account_is_above(path->account, SRDMA_RES_ADDRESSES);
}

/* Closes the path that has been unbound longest of those in the way. */
static void evict(struct srdma_path_table *t, const struct srdma_account *a)
{
	struct srdma_path *path;

	TAILQ_FOREACH_REVERSE(path, &t->unbound, srdma_path_list, unbound_next)
	{
		if (!is_in_the_way(path, a))
			continue;
		close_unbound(t, path);
		return;
	}
}

/* Charges an address. 0, or -EDQUOT. */
static int take_address(struct srdma_path_table *t, struct srdma_account *a)
{
	if (!srdma_account_room(a, SRDMA_RES_ADDRESSES))
		evict(t, a);
	return srdma_account_take(a, SRDMA_RES_ADDRESSES, 1);
}

int srdma_path_adopt(struct srdma_path_table *t, struct srdma_conn *conn,
		     struct srdma_account *a)
{
	struct srdma_path *path;

	if (conn->user)
		return 1;
	srdma_path_expire(t->env);
	if (take_address(t, a))
		return 0;
	path = srdma_path_make(t, conn, 1);
	if (path && conn->port->ops->keep(conn)) {
		srdma_path_forget(t, path);
		conn->user = NULL;
		path = NULL;
	}
	if (path) {
		path->account = a;
		srdma_account_hold(a);
		return 1;
	}
	srdma_account_give(a, SRDMA_RES_ADDRESSES, 1);
	return 0;
}
