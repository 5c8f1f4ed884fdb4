#include "legs.h"

#include <string.h>

#include "base/time.h"

static struct leg_entry *entry_of(struct legs *t, uint32_t id)
{
	struct leg_entry *e = &t->entry[id % SRDMA_MAX_LEGS];

	return id && e->id == id ? e : NULL;
}

static int has(const uint64_t *set, unsigned user)
{
	return set[user / 64] >> user % 64 & 1;
}

static void put(uint64_t *set, unsigned user)
{
	set[user / 64] |= UINT64_C(1) << user % 64;
}

static void drop(uint64_t *set, unsigned user)
{
	set[user / 64] &= ~(UINT64_C(1) << user % 64);
}

static int any(const uint64_t *set)
{
	for (unsigned i = 0; i < LEGS_USERS / 64; i++)
		if (set[i])
			return 1;
	return 0;
}

static int may_use(const struct legs *t, const struct leg_entry *e,
		   unsigned user)
{
	return has(e->users, user) || has(t->agents, user);
}

void legs_set_agent(struct legs *t, unsigned user, int is_agent)
{
	if (is_agent)
		put(t->agents, user);
	else
		drop(t->agents, user);
}

static struct srdma_leg *living(const struct legs *t, const struct leg_entry *e)
{
	return e->id ? srdma_relay_leg_by_id(t->relay, e->id) : NULL;
}

static void keep(struct legs *t, struct leg_entry *e)
{
	e->until = srdma_relay_now(t->relay) + e->opener.keep * SRDMA_SECOND;
	t->kept++;
}

static void unkeep(struct legs *t, struct leg_entry *e)
{
	if (!e->until)
		return;
	e->until = 0;
	t->kept--;
}

static void forget(struct legs *t, struct leg_entry *e)
{
	unkeep(t, e);
	memset(e, 0, sizeof(*e));
}

void legs_add(struct legs *t, unsigned user, struct srdma_leg *leg,
	      const struct legs_opener *opener)
{
	const uint32_t id = srdma_relay_leg_id(leg);
	/* Of living legs only one has this place (relay.h). */
	struct leg_entry *e = &t->entry[id % SRDMA_MAX_LEGS];

	/* A leg may have ended while its connection stays (verbs). */
	forget(t, e);
	e->id = id;
	e->opener = *opener;
	put(e->users, user);
	put(e->owners, user);
}

void legs_attach(struct legs *t, unsigned user, struct srdma_leg *leg)
{
	struct leg_entry *e = entry_of(t, srdma_relay_leg_id(leg));

	if (e)
		put(e->users, user);
}

void legs_adopt(struct legs *t, unsigned user, uint32_t keep_s,
		const struct srdma_leg *leg)
{
	struct leg_entry *e = entry_of(t, srdma_relay_leg_id(leg));

	/* The end of the former owner may be noticed later only. */
	if (!e || !e->opener.keep)
		return;
	unkeep(t, e);
	put(e->owners, user);
	e->opener.keep = keep_s;
}

struct srdma_leg *legs_find(struct legs *t, unsigned user, uint32_t id)
{
	const struct leg_entry *e = entry_of(t, id);

	if (!e || !may_use(t, e, user))
		return NULL;
	return srdma_relay_leg_by_id(t->relay, id);
}

const struct legs_opener *legs_opener(struct legs *t,
				      const struct srdma_leg *leg)
{
	const struct leg_entry *e = entry_of(t, srdma_relay_leg_id(leg));

	return e ? &e->opener : NULL;
}

int legs_used_by(const struct legs *t, unsigned user)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (has(t->entry[i].users, user) && living(t, &t->entry[i]))
			return 1;
	return 0;
}

struct srdma_leg *legs_find_qp(struct legs *t, unsigned user, uint32_t qpn)
{
	struct srdma_leg *leg = srdma_relay_leg_of_qp(t->relay, qpn);

	return leg ? legs_find(t, user, srdma_relay_leg_id(leg)) : NULL;
}

static void end(struct legs *t, struct leg_entry *e)
{
	struct srdma_leg *leg = living(t, e);

	forget(t, e);
	if (leg)
		srdma_relay_leg_close(leg);
}

static int is_kept(const struct legs *t, const struct leg_entry *e)
{
	const struct srdma_leg *leg = living(t, e);

	return e->opener.keep && leg && srdma_relay_leg_was_up(leg);
}

void legs_leave(struct legs *t, unsigned user)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		struct leg_entry *e = &t->entry[i];

		if (e->id == 0 || !has(e->users, user))
			continue;
		drop(e->users, user);
		if (!has(e->owners, user))
			continue;
		drop(e->owners, user);
		if (any(e->owners))
			continue;
		if (is_kept(t, e))
			keep(t, e);
		else
			end(t, e);
	}
}

void legs_expire(struct legs *t)
{
	const uint64_t now = srdma_relay_now(t->relay);

	for (int i = 0; t->kept && i < SRDMA_MAX_LEGS; i++) {
		struct leg_entry *e = &t->entry[i];

		if (e->until && (e->until <= now || !living(t, e)))
			end(t, e);
	}
}

uint64_t legs_timer(const struct legs *t)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; t->kept && i < SRDMA_MAX_LEGS; i++)
		if (t->entry[i].until && t->entry[i].until < first)
			first = t->entry[i].until;
	return first;
}
