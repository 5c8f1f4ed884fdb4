/*
 * Multicast groups of a UD QP (ud.h). The agent says which UD QPs are members
 * (docs/agent.md 14). A group stays with its QP also while the QP is in RESET or ERR;
 * the agent knows it while the QP is in RTR or RTS.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/channel.h"
#include "host/error.h"
#include "host/talk.h"
#include "verbs/ud.h"

enum {
	AGAIN_MS = 1000, /* after a failure, before the next attempt */
	JOIN_MS = 10000, /* until the agent has asked all hosts */
	PAUSE_NS = 1000000,
};

/* --- the agent ---------------------------------------------------------------------- */

static void close_channel(const struct verbs_root *root, struct ud_group *g)
{
	verbs_loop_end(root, g->channel);
	g->channel = NULL;
	g->joined = 0;
}

/* There is no channel. The next attempt is later. */
static void fail(const struct verbs_ud *ud, struct ud_group *g, int r)
{
	close_channel(ud->root, g);
	g->err = -r;
	strncpy(g->why, srdma_error_text(), sizeof(g->why) - 1);
	g->open_at = ud_now() + AGAIN_MS;
}

/* The program has been told that the QP is a member. */
static void complain(const struct verbs_ud *ud, struct ud_group *g)
{
	char text[INET6_ADDRSTRLEN];

	if (!g->lasting || g->told == g->err)
		return;
	g->told = g->err;
	inet_ntop(AF_INET6, g->gid, text, sizeof(text));
	fprintf(stderr, "srdma: UD QP 0x%06x is no member of %s: %s\n",
		ud->qp->ibv.qp_num, text, g->why);
}

/* The agent has refused or ended the use. */
static void lose(const struct verbs_ud *ud, struct ud_group *g, int r)
{
	fail(ud, g, r);
	complain(ud, g);
}

static void open_channel(struct verbs_ud *ud, struct ud_group *g)
{
	const struct srdma_pd *pd = ud_leg(ud);
	const struct verbs_policy *policy = ud->root->policy;
	const char *patterns[VERBS_PATTERNS];
	const struct srdma_talk_self self = {
		.agent = &pd->device->agent,
		.worker = pd->path,
		.identity = policy->identity,
		.peers = patterns,
		.n_peers = verbs_policy_patterns(policy, patterns),
	};
	const struct srdma_talk_group group = { .gid = g->gid,
						.qp_num = ud->qp->ibv.qp_num,
						.token = pd->token,
						.member = g->attached };
	int r = srdma_talk_group(&g->channel, &self, &group);

	g->round++;
	if (!r)
		r = -verbs_loop_watch(ud->root, srdma_channel_fd(g->channel));
	if (r)
		lose(ud, g, r);
}

/* 0 or -errno. */
static int set_members(const struct verbs_ud *ud, struct ud_group *g,
		       const struct srdma_agent_event *e)
{
	const int here =
		!memcmp(e->gid, ud->root->attr.gid, sizeof(ud->root->attr.gid));
	const struct ud_told told = {
		.gid = e->gid,
		.qpns = e->peer.data,
		.len = e->peer.data_len,
		.round = g->round,
		.own = here ? ud->qp->ibv.qp_num : 0,
	};

	return ud_members_set(&g->members, &told);
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
		ud_members_keep(&g->members, g->round);
		g->joined = 1;
		g->err = 0;
	} else if (!strcmp(e->event, "error")) {
		r = srdma_channel_error(e);
		ud_members_forget(&g->members);
	}
	if (r)
		lose(ud, g, r);
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
			fail(ud, g, r);
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
	close_channel(verbs_root_of(qp->ibv.context), g);
	ud_members_forget(&g->members);
	free(g);
}

void ud_group_drop_all(struct verbs_qp *qp)
{
	while (qp->groups)
		drop(qp, qp->groups);
}

void ud_group_pause(struct verbs_qp *qp)
{
	const struct verbs_root *root = verbs_root_of(qp->ibv.context);

	for (struct ud_group *g = qp->groups; g; g = g->next) {
		close_channel(root, g);
		g->open_at = 0;
		g->err = 0;
	}
}

void ud_group_forget(struct verbs_qp *qp)
{
	for (struct ud_group *g = qp->groups; g; g = g->next)
		ud_members_forget(&g->members);
}

/* 0, or -ENOMEM: the QP is attached to as many groups as it can be. Otherwise the
 * group that was used least recently gives way, but not to messages while it is in
 * use, so that they do not open channels all the time. */
static int make_room(struct verbs_qp *qp, int for_message)
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
	if (!oldest || (for_message && ud_now() - oldest->used < UD_IN_USE_MS))
		return -ENOMEM;
	drop(qp, oldest);
	return 0;
}

/* NULL: no room, or no memory. */
static struct ud_group *get(struct verbs_qp *qp, const uint8_t *gid,
			    int for_message)
{
	struct ud_group *g = find(qp, gid);

	if (g || make_room(qp, for_message))
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

static void begin(const struct verbs_qp *qp, struct ud_group *g, int attach)
{
	if (attach)
		close_channel(verbs_root_of(qp->ibv.context), g);
	g->attached = attach;
	g->err = 0;
	g->open_at = 0;
}

int ud_group_use(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN],
		 int attach)
{
	struct ud_group *g = get(qp, gid, 0);
	int begins, err;

	if (!g)
		return ENOMEM;
	g->used = ud_now();
	begins = !g->attached && (attach || !g->joined);
	if (begins)
		begin(qp, g, attach);
	if (g->joined)
		return 0;
	err = settle(qp, gid);
	g = find(qp, gid);
	if (g && begins && err)
		drop(qp, g);
	else if (g && !err)
		g->lasting = g->attached;
	return err;
}

void ud_group_leave(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN])
{
	struct ud_group *g = find(qp, gid);

	if (g && !g->attached)
		drop(qp, g);
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
	struct ud_group *g = get(ud->qp, gid, 1);

	*why = "the QP uses too many groups";
	if (!g)
		return NULL;
	g->used = ud_now();
	if (ud->ready) /* else no thread reads the agent's answers */
		look(ud, g);
	*why = g->err ? g->why : "the agent has not told the members yet";
	return g->joined || g->members.n ? g : NULL;
}
