/*
 * What QPs and accounts have done: QPS and USAGE of the control socket
 * (docs/local-interface.md 3.10).
 */
#include <errno.h>

#include "ledger/ledger.h"
#include "relay/relay_impl.h"

enum { LOOKS = 1024 }; /* buckets examined per call */

/* --- sums of accounts ------------------------------------------------------ */

static void add(struct srdma_account_counts *sum,
		const struct srdma_account_counts *c)
{
#define X(name) sum->name += c->name;
	SRDMA_ACCOUNT_COUNTS(X)
#undef X
}

void srdma_relay_join_identity(struct srdma_qp *qp, struct srdma_account *a)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);
	struct srdma_qp **first = (struct srdma_qp **)srdma_account_objects(a);

	srdma_qp_set_identity(qp, a);
	e->identity_next = *first;
	if (e->identity_next)
		srdma_qp_entry(e->identity_next)->identity_at =
			&e->identity_next;
	e->identity_at = first;
	*first = qp;
}

static void leave_identity(struct srdma_qp *qp)
{
	struct srdma_relay_entry *e = srdma_qp_entry(qp);

	*e->identity_at = e->identity_next;
	if (e->identity_next)
		srdma_qp_entry(e->identity_next)->identity_at = e->identity_at;
}

void srdma_relay_fold_counts(struct srdma_qp *qp)
{
	const struct srdma_account_counts *c = srdma_qp_counts(qp);
	struct srdma_account *a = srdma_qp_entry(qp)->leg->account;
	struct srdma_account *identity = srdma_qp_identity(qp);

	for (; a; a = srdma_account_parent(a))
		add(srdma_account_counts(a), c);
	if (!identity)
		return;
	add(srdma_account_counts(identity), c);
	leave_identity(qp);
}

static void add_identity(struct srdma_account_counts *sum,
			 struct srdma_account *a)
{
	struct srdma_qp *qp = *srdma_account_objects(a);

	for (; qp; qp = srdma_qp_entry(qp)->identity_next)
		add(sum, srdma_qp_counts(qp));
}

static void add_local(struct srdma_account_counts *sum,
		      const struct srdma_relay *r,
		      const struct srdma_account *a)
{
	for (int i = 0; i < SRDMA_MAX_LEGS; i++) {
		const struct srdma_leg *leg = r->legs[i];
		struct srdma_qp *qp;

		if (!leg || (leg->account != a &&
			     srdma_account_parent(leg->account) != a))
			continue;
		for (qp = leg->qps; qp; qp = srdma_qp_entry(qp)->leg_next)
			add(sum, srdma_qp_counts(qp));
	}
}

void srdma_relay_counts(struct srdma_relay *r, struct srdma_account *a,
			struct srdma_account_counts *out)
{
	*out = *srdma_account_counts(a);
	if (srdma_account_kind(a) == SRDMA_ACCOUNT_IDENTITY)
		add_identity(out, a);
	else
		add_local(out, r, a);
}

/* --- QPs one by one -------------------------------------------------------- */

static void describe(const struct srdma_relay *r, struct srdma_qp *qp,
		     struct srdma_qp_report *out)
{
	const struct srdma_account *identity = srdma_qp_identity(qp);

	*out = (struct srdma_qp_report){
		.qpn = srdma_qp_number(qp),
		.state = (uint32_t)srdma_qp_state(qp),
		.reason = srdma_qp_reason(qp),
		.idle = srdma_relay_idle(qp, r->env.now),
		.identity = identity ? srdma_account_name(identity) : "",
		.counts = *srdma_qp_counts(qp),
	};
}

/* The QP of a bucket with the lowest QPN of at least `from`; NULL: none. */
static struct srdma_qp *in_bucket(const struct srdma_relay *r, uint32_t bucket,
				  uint32_t from)
{
	struct srdma_qp *found = NULL, *qp = r->qps[bucket];

	for (; qp; qp = srdma_qp_entry(qp)->hash_next) {
		const uint32_t qpn = srdma_qp_number(qp);

		if (qpn >= from && (!found || qpn < srdma_qp_number(found)))
			found = qp;
	}
	return found;
}

/* A cursor is the bucket << 32, and the lowest QPN to be looked for in it. */
int srdma_relay_qp_next(struct srdma_relay *r, uint64_t *cursor,
			struct srdma_qp_report *out, struct srdma_leg **leg)
{
	uint64_t bucket = *cursor >> 32;
	uint32_t from = (uint32_t)*cursor;

	*leg = NULL;
	if (bucket > r->qp_mask)
		return -ENOENT;
	for (int looks = 0; looks < LOOKS && bucket <= r->qp_mask; looks++) {
		struct srdma_qp *qp = in_bucket(r, (uint32_t)bucket, from);

		if (qp) {
			describe(r, qp, out);
			*leg = srdma_qp_entry(qp)->leg;
			*cursor = bucket << 32 | (srdma_qp_number(qp) + 1);
			return 0;
		}
		bucket++;
		from = 0;
	}
	*cursor = bucket << 32;
	return 0;
}
