#include "legs.h"

#include <errno.h>
#include <string.h>

#include "base/time.h"

static struct leg_entry *entry_of(struct legs *t, uint32_t id)
{
	for (int i = 0; id != 0 && i < SRDMA_MAX_LEGS; i++)
		if (t->entry[i].id == id)
			return &t->entry[i];
	return NULL;
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
	accounts_hold(e->opener.account);
	t->kept++;
}

static void unkeep(struct legs *t, struct leg_entry *e)
{
	if (!e->until)
		return;
	e->until = 0;
	accounts_release(e->opener.account);
	t->kept--;
}

static void forget(struct legs *t, struct leg_entry *e)
{
	unkeep(t, e);
	memset(e, 0, sizeof(*e));
}

int legs_add(struct legs *t, unsigned user, struct srdma_leg *leg,
	     const struct legs_opener *opener)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		struct leg_entry *e = &t->entry[i];

		/* A leg may have ended while its connection stays (verbs). */
		if (living(t, e))
			continue;
		forget(t, e);
		e->id = srdma_relay_leg_id(leg);
		e->opener = *opener;
		put(e->users, user);
		put(e->owners, user);
		return 0;
	}
	return -ENOSPC;
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

struct legs_usage legs_usage(const struct legs *t, const struct account *a)
{
	struct legs_usage sum = { 0 };

	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		const struct leg_entry *e = &t->entry[i];
		const struct srdma_leg *leg;
		struct srdma_leg_memory memory;

		leg = e->opener.account == a ? living(t, e) : NULL;
		if (!leg)
			continue;
		memory = srdma_relay_leg_memory(leg);
		sum.legs++;
		sum.qps += e->qps;
		sum.regions += memory.regions;
		sum.bytes += memory.bytes;
	}
	return sum;
}

/* The leg of an entry if the QP is on it. */
static struct srdma_leg *has_qp(const struct legs *t, const struct leg_entry *e,
				uint32_t qpn)
{
	struct srdma_leg *leg;
	uint32_t reason;

	if (e->id == 0)
		return NULL;
	leg = srdma_relay_leg_by_id(t->relay, e->id);
	if (leg && srdma_relay_qp_state(t->relay, leg, qpn, &reason) > 0)
		return leg;
	return NULL;
}

struct srdma_leg *legs_find_qp(struct legs *t, unsigned user, uint32_t qpn)
{
	struct srdma_leg *leg = NULL;

	for (int i = 0; i < SRDMA_MAX_LEGS && !leg; i++) {
		if (may_use(t, &t->entry[i], user))
			leg = has_qp(t, &t->entry[i], qpn);
	}
	return leg;
}

int legs_know_qp(const struct legs *t, uint32_t qpn)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		if (has_qp(t, &t->entry[i], qpn))
			return 1;
	}
	return 0;
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

	return e->opener.account && e->opener.keep && leg &&
	       srdma_relay_leg_was_up(leg);
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

void legs_count_qp(struct legs *t, uint32_t id, int change)
{
	struct leg_entry *e = entry_of(t, id);

	if (e)
		e->qps += (uint32_t)change;
}

uint32_t legs_qps(const struct legs *t)
{
	uint32_t n = 0;

	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
		if (t->entry[i].id != 0 &&
		    srdma_relay_leg_by_id(t->relay, t->entry[i].id))
			n += t->entry[i].qps;
	return n;
}
