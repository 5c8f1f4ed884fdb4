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

static void forget(struct leg_entry *e)
{
	if (e->until)
		accounts_release(e->opener.account);
	memset(e, 0, sizeof(*e));
}

int legs_add(struct legs *t, struct srdma_leg *leg,
	     const struct legs_opener *opener)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		struct leg_entry *e = &t->entry[i];

		/* A leg may have ended while its connection stays (verbs). */
		if (living(t, e))
			continue;
		forget(e);
		e->id = srdma_relay_leg_id(leg);
		e->opener = *opener;
		put(e->users, opener->connection);
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

void legs_adopt(struct legs *t, unsigned user, const struct srdma_leg *leg)
{
	struct leg_entry *e = entry_of(t, srdma_relay_leg_id(leg));

	if (!e)
		return;
	put(e->heirs, user);
	if (!e->until)
		return;
	e->opener.connection = user;
	e->until = 0;
	accounts_release(e->opener.account);
}

/* 1 if the leg has another owner now. */
static int inherit(struct leg_entry *e)
{
	for (unsigned user = 0; user < LEGS_USERS; user++) {
		if (!has(e->heirs, user))
			continue;
		e->opener.connection = user;
		return 1;
	}
	return 0;
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

static void end(const struct legs *t, struct leg_entry *e)
{
	struct srdma_leg *leg = living(t, e);

	forget(e);
	if (leg)
		srdma_relay_leg_close(leg);
}

static int is_kept(const struct legs *t, const struct leg_entry *e)
{
	return e->opener.account && e->opener.keep && living(t, e);
}

void legs_leave(struct legs *t, unsigned user)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		struct leg_entry *e = &t->entry[i];

		if (e->id == 0 || !has(e->users, user))
			continue;
		drop(e->users, user);
		drop(e->heirs, user);
		if (e->until || e->opener.connection != user)
			continue;
		if (!is_kept(t, e)) {
			end(t, e);
			continue;
		}
		if (inherit(e))
			continue;
		e->until = srdma_relay_now(t->relay) +
			   e->opener.keep * SRDMA_SECOND;
		accounts_hold(e->opener.account);
	}
}

void legs_expire(struct legs *t)
{
	const uint64_t now = srdma_relay_now(t->relay);

	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		struct leg_entry *e = &t->entry[i];

		if (e->until && (e->until <= now || !living(t, e)))
			end(t, e);
	}
}

uint64_t legs_timer(const struct legs *t)
{
	uint64_t first = UINT64_MAX;

	for (int i = 0; i < SRDMA_MAX_LEGS; i++)
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
