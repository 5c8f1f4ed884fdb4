/*
 * The relay and its ledger (docs/local-interface.md 3.10, 5): capacities, and
 * charges with the text of their refusal.
 */
#include <errno.h>

#include "ledger/ledger.h"
#include "relay/relay_impl.h"

enum {
	/* A process may have 65,530 mappings by default (vm.max_map_count):
	 * one for each region of a memfd, three for each leg. */
	MAPPED_REGIONS = 49152,
	REGIONS = 1 << 20,
	ENTRIES_OF_QP = 1024,
	LEAST_ENTRIES = 1 << 20,
	CAPABILITIES = SRDMA_MAX_LEGS * SRDMA_CAPTABLE_MAX,
};

static const uint64_t mapped_bytes = UINT64_C(1) << 46;

static uint64_t entries_of(const struct srdma_relay *r)
{
	const uint64_t n = (uint64_t)r->params.qps * ENTRIES_OF_QP;

	return n > LEAST_ENTRIES ? n : LEAST_ENTRIES;
}

static struct srdma_ledger_params capacities(const struct srdma_relay *r)
{
	const int maps = r->env.host->kind == SRDMA_PORT_SHM;
	struct srdma_ledger_params p = { .minima = r->params.minima };
	uint64_t *local = p.capacity[SRDMA_SIDE_LOCAL];
	uint64_t *remote = p.capacity[SRDMA_SIDE_REMOTE];

	local[SRDMA_RES_CONNECTIONS] = SRDMA_MAX_CONNECTIONS;
	local[SRDMA_RES_LEGS] = SRDMA_MAX_LEGS;
	local[SRDMA_RES_QPS] = r->params.qps;
	local[SRDMA_RES_REGIONS] = maps ? MAPPED_REGIONS : REGIONS;
	local[SRDMA_RES_BYTES] = maps ? mapped_bytes : UINT64_C(1) << 63;
	local[SRDMA_RES_RECORDS] = (uint64_t)SRDMA_MAX_LEGS * SRDMA_MAX_RING;
	local[SRDMA_RES_ENTRIES] = entries_of(r);
	local[SRDMA_RES_CAPABILITIES] = CAPABILITIES;
	remote[SRDMA_RES_QPS] = r->params.qps;
	remote[SRDMA_RES_OPS] = SRDMA_OPS - SRDMA_OPS_KEPT;
	remote[SRDMA_RES_KEPT] = r->env.reorder->left;
	remote[SRDMA_RES_READS] = (uint64_t)r->params.qps * r->params.reads;
	remote[SRDMA_RES_ADDRESSES] = SRDMA_MAX_ADDRESSES;
	remote[SRDMA_RES_HOMES] = SRDMA_MAX_HOMES;
	return p;
}

int srdma_relay_ledger_create(struct srdma_relay *r)
{
	const struct srdma_ledger_params params = capacities(r);

	return srdma_ledger_create(&r->env.ledger, &params);
}

struct srdma_ledger *srdma_relay_ledger(const struct srdma_relay *r)
{
	return r->env.ledger;
}

int srdma_relay_charge(struct srdma_relay *r, struct srdma_account *a,
		       enum srdma_resource resource, uint64_t n)
{
	int err = srdma_account_take(a, resource, n);

	if (err)
		srdma_account_why(a, resource, n, r->why, sizeof(r->why));
	return err;
}

/* --- legs ------------------------------------------------------------------ */

static int charge_leg(struct srdma_relay *r, struct srdma_leg *leg,
		      struct srdma_account *a)
{
	int err = srdma_relay_charge(r, a, SRDMA_RES_LEGS, 1);

	if (err)
		return err;
	err = srdma_relay_charge(r, a, SRDMA_RES_RECORDS, leg->cq.ring);
	if (err) {
		srdma_account_give(a, SRDMA_RES_LEGS, 1);
		return err;
	}
	srdma_account_hold(a);
	leg->account = a;
	return 0;
}

int srdma_relay_charge_leg(struct srdma_relay *r, struct srdma_leg *leg,
			   struct srdma_account *a)
{
	int err;

	if (a)
		return charge_leg(r, leg, a);
	err = srdma_account_open(r->env.ledger, SRDMA_ACCOUNT_PROCESS, "", NULL,
				 &a);
	if (err)
		return srdma_relay_refuse(r, err, "no memory for a leg");
	err = charge_leg(r, leg, a);
	srdma_account_close(a);
	return err;
}

void srdma_relay_release_leg(struct srdma_leg *leg)
{
	struct srdma_account *a = leg->account;

	srdma_account_give(a, SRDMA_RES_CAPABILITIES, leg->captable.count);
	srdma_account_give(a, SRDMA_RES_RECORDS, leg->cq.ring);
	srdma_account_give(a, SRDMA_RES_LEGS, 1);
	srdma_account_close(a);
}

/* --- QPs ------------------------------------------------------------------- */

/* If the reserve is used up, an idle QP gives way. */
static int take_qp(struct srdma_relay *r, struct srdma_account *a)
{
	if (srdma_account_is_short(a, SRDMA_RES_QPS, 1))
		srdma_relay_reclaim(r, a);
	return srdma_relay_charge(r, a, SRDMA_RES_QPS, 1);
}

int srdma_relay_charge_qp(struct srdma_relay *r, struct srdma_account *a,
			  uint32_t entries)
{
	int err = srdma_relay_charge(r, a, SRDMA_RES_ENTRIES, entries);

	if (err)
		return err;
	err = take_qp(r, a); /* last: it may end an idle QP */
	if (err)
		srdma_account_give(a, SRDMA_RES_ENTRIES, entries);
	return err;
}

void srdma_relay_release_qp(struct srdma_account *a, uint32_t entries)
{
	srdma_account_give(a, SRDMA_RES_ENTRIES, entries);
	srdma_account_give(a, SRDMA_RES_QPS, 1);
}

/* --- regions --------------------------------------------------------------- */

int srdma_relay_charge_region(struct srdma_relay *r, struct srdma_account *a,
			      uint64_t length)
{
	int err = srdma_relay_charge(r, a, SRDMA_RES_REGIONS, 1);

	if (err)
		return err;
	err = srdma_relay_charge(r, a, SRDMA_RES_BYTES, length);
	if (err)
		srdma_account_give(a, SRDMA_RES_REGIONS, 1);
	return err;
}

void srdma_relay_release_region(struct srdma_account *a, uint64_t length)
{
	srdma_account_give(a, SRDMA_RES_BYTES, length);
	srdma_account_give(a, SRDMA_RES_REGIONS, 1);
}

void srdma_relay_free_mr(struct srdma_mr *mr)
{
	struct srdma_leg *leg = mr->leg;

	srdma_relay_release_region(leg->account, mr->region->length);
	leg->mrs--;
	srdma_mr_free(&leg->relay->env.mrs, mr);
}

/* --- identities ------------------------------------------------------------ */

int srdma_relay_charge_identity(struct srdma_relay *r, const char *name,
				struct srdma_account **out)
{
	const char *uri = name ? name : "";
	int err = srdma_account_open(r->env.ledger, SRDMA_ACCOUNT_IDENTITY, uri,
				     NULL, out);

	if (err)
		return srdma_relay_refuse(
			r, err == -ENOSPC ? -EDQUOT : err,
			"the worker has no room for the account of identity "
			"%s: close the QPs of other identities",
			uri);
	err = take_qp(r, *out);
	if (err)
		srdma_account_close(*out);
	return err;
}

void srdma_relay_release_identity(struct srdma_account *a)
{
	if (!a)
		return;
	srdma_account_give(a, SRDMA_RES_QPS, 1);
	srdma_account_close(a);
}
