/*
 * Multicast groups of a UD QP (ud.h). The agent says which UD QPs are members
 * (docs/agent.md 14). A group stays with its QP also while the QP is in RESET or ERR;
 * the agent knows it while the QP is in RTR or RTS.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/bytes.h"
#include "host/channel.h"
#include "host/error.h"
#include "host/talk.h"
#include "verbs/ud.h"

enum {
	AGAIN_MS = 1000, /* after a failure, before the next attempt */
	JOIN_MS = 10000, /* until the agent has asked all hosts */
	PAUSE_NS = 1000000,
	QPN_LEN = 4, /* bytes of a member in an event */
};

/* --- members ----------------------------------------------------------------------- */

static void remove_member(struct ud_group *g, unsigned i)
{
	g->n--;
	memmove(&g->members[i], &g->members[i + 1],
		(g->n - i) * sizeof(*g->members));
}

/* Members of a host that has told the others. */
static void remove_of(struct ud_group *g, const uint8_t *gid)
{
	for (unsigned i = g->n; i--;)
		if (!memcmp(g->members[i].gid, gid, SRDMA_GID_LEN))
			remove_member(g, i);
}

/* Members that a former agent has told. */
static void remove_former(struct ud_group *g)
{
	for (unsigned i = g->n; i--;)
		if (g->members[i].round != g->round)
			remove_member(g, i);
}

/* 0 or -ENOMEM. */
static int add_member(struct ud_group *g, const uint8_t *gid, uint32_t qp_num)
{
	struct ud_member *more;

	if (g->n == g->room) {
		const unsigned room = g->room ? 2 * g->room : UD_MEMBERS;

		more = realloc(g->members, room * sizeof(*more));
		if (!more)
			return -ENOMEM;
		g->members = more;
		g->room = room;
	}
	g->members[g->n] =
		(struct ud_member){ .qp_num = qp_num, .round = g->round };
	memcpy(g->members[g->n].gid, gid, SRDMA_GID_LEN);
	g->n++;
	return 0;
}

/* The QP itself gets its messages without a session. */
static int is_own(const struct verbs_ud *ud, const uint8_t *gid, uint32_t qpn)
{
	return qpn == ud->qp->ibv.qp_num &&
	       !memcmp(gid, ud->root->attr.gid, SRDMA_GID_LEN);
}

/* 0 or -errno. */
static int set_members(const struct verbs_ud *ud, struct ud_group *g,
		       const struct srdma_agent_event *e)
{
	int r = e->peer.data_len % QPN_LEN ? -EPROTO : 0;

	remove_of(g, e->gid);
	for (size_t at = 0; at < e->peer.data_len && !r; at += QPN_LEN) {
		const uint32_t qpn = srdma_load32(e->peer.data + at);

		if (!qpn || qpn > UD_QPN_MOST)
			r = -EPROTO;
		else if (!is_own(ud, e->gid, qpn))
			r = add_member(g, e->gid, qpn);
	}
	return r;
}

/* --- the agent ---------------------------------------------------------------------- */

static void close_channel(struct ud_group *g)
{
	srdma_channel_drop(g->channel);
	g->channel = NULL;
	g->joined = 0;
}

/* There is no channel. The next attempt is later. */
static void fail(struct ud_group *g, int r)
{
	close_channel(g);
	g->err = -r;
	strncpy(g->why, srdma_error_text(), sizeof(g->why) - 1);
	g->open_at = ud_now() + AGAIN_MS;
}

static void open_channel(struct verbs_ud *ud, struct ud_group *g)
{
	const struct srdma_pd *pd = ud_leg(ud);
	const struct srdma_talk_self self = {
		.agent = &pd->device->agent,
		.worker = pd->path,
		.identity = ud->root->policy->identity,
	};
	const struct srdma_talk_group group = { .gid = g->gid,
						.qp_num = ud->qp->ibv.qp_num,
						.token = pd->token,
						.member = g->attached };
	int r = srdma_talk_group(&g->channel, &self, &group);

	g->round++;
	if (!r)
		r = -ud_loop_watch(ud->root, srdma_channel_fd(g->channel));
	if (r)
		fail(g, r);
}

static void said(const struct verbs_ud *ud, struct ud_group *g,
		 const struct srdma_agent_event *e)
{
	int r = 0;

	if (!strcmp(e->event, "members")) {
		r = set_members(ud, g, e);
		if (r)
			srdma_error_set(r, "the agent told no members");
	} else if (!strcmp(e->event, "joined")) {
		remove_former(g);
		g->joined = 1;
		g->err = 0;
	} else if (!strcmp(e->event, "error")) {
		r = srdma_channel_error(e);
		g->n = 0;
	}
	if (r)
		fail(g, r);
}

static void hear(const struct verbs_ud *ud, struct ud_group *g)
{
	struct srdma_agent_event e;
	int r = 0;

	while (g->channel && !r) {
		r = srdma_channel_next(g->channel, &e, 0);
		if (!r)
			said(ud, g, &e);
		else if (r != -ETIMEDOUT && r != -EINTR)
			fail(g, r);
	}
}

static void look(struct verbs_ud *ud, struct ud_group *g)
{
	if (!g->channel && ud_now() >= g->open_at)
		open_channel(ud, g);
	hear(ud, g);
}

void ud_group_look(struct verbs_ud *ud)
{
	for (struct ud_group *g = ud->qp->groups; g; g = g->next)
		look(ud, g);
}

/* --- groups of a QP ----------------------------------------------------------------- */

static struct ud_group *find(const struct verbs_qp *qp, const uint8_t *gid)
{
	struct ud_group *g = qp->groups;

	while (g && memcmp(g->gid, gid, sizeof(g->gid)) != 0)
		g = g->next;
	return g;
}

static void drop(struct verbs_qp *qp, struct ud_group *g)
{
	struct ud_group **at = &qp->groups;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	close_channel(g);
	free(g->members);
	free(g);
}

void ud_group_drop_all(struct verbs_qp *qp)
{
	while (qp->groups)
		drop(qp, qp->groups);
}

void ud_group_pause(struct verbs_qp *qp)
{
	for (struct ud_group *g = qp->groups; g; g = g->next) {
		close_channel(g);
		g->n = 0;
		g->open_at = 0;
	}
}

/* 0, or -ENOMEM: the QP is attached to as many groups as it can be. Otherwise the
 * group that was used least recently gives way. */
static int make_room(struct verbs_qp *qp)
{
	struct ud_group *oldest = NULL;
	unsigned n = 0;

	for (struct ud_group *g = qp->groups; g; g = g->next) {
		n++;
		if (!g->attached && (!oldest || g->used < oldest->used))
			oldest = g;
	}
	if (n < UD_GROUPS)
		return 0;
	if (!oldest)
		return -ENOMEM;
	drop(qp, oldest);
	return 0;
}

/* NULL: no room, or no memory. */
static struct ud_group *get(struct verbs_qp *qp, const uint8_t *gid)
{
	struct ud_group *g = find(qp, gid);

	if (g || make_room(qp))
		return g;
	g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	memcpy(g->gid, gid, sizeof(g->gid));
	g->next = qp->groups;
	qp->groups = g;
	return g;
}

/* Waits until the agent has asked for members, so that messages that are sent next
 * arrive, without the lock of the context between two looks. 0 or errno. */
static int settle(struct verbs_qp *qp, const uint8_t *gid)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	pthread_mutex_t *lock = &verbs_root_of(qp->ibv.context)->lock;
	const int64_t end = ud_now() + JOIN_MS;
	const struct ud_group *g;

	while (qp->ud && qp->ud->ready) {
		ud_group_look(qp->ud);
		g = find(qp, gid);
		if (!g)
			return EINVAL;
		if (g->joined || g->err)
			return g->err;
		if (ud_now() >= end)
			return ETIMEDOUT;
		pthread_mutex_unlock(lock);
		nanosleep(&pause, NULL);
		pthread_mutex_lock(lock);
	}
	return 0;
}

int ud_group_use(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN],
		 int attach)
{
	struct ud_group *g = get(qp, gid);
	int err;

	if (!g)
		return ENOMEM;
	g->used = ud_now();
	if (g->attached || (!attach && g->joined))
		return 0;
	if (attach)
		close_channel(g);
	g->attached = attach;
	g->err = 0;
	g->open_at = 0;
	err = settle(qp, gid);
	g = find(qp, gid);
	if (err && g)
		drop(qp, g);
	return err;
}

int ud_group_detach(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN])
{
	struct ud_group *g = find(qp, gid);

	if (!g || !g->attached)
		return EINVAL;
	drop(qp, g);
	return 0;
}

int ud_group_attached(const struct verbs_qp *qp,
		      const uint8_t gid[SRDMA_GID_LEN])
{
	const struct ud_group *g = find(qp, gid);

	return g && g->attached;
}

const struct ud_group *ud_group_to(struct verbs_ud *ud,
				   const uint8_t gid[SRDMA_GID_LEN],
				   const char **why)
{
	struct ud_group *g = get(ud->qp, gid);

	*why = "the QP uses too many groups";
	if (!g)
		return NULL;
	g->used = ud_now();
	look(ud, g);
	*why = g->err ? g->why : "the agent has not told the members yet";
	return g->joined || g->n ? g : NULL;
}
