#include "memory/mr.h"

#include <stdlib.h>
#include <string.h>

#include "memory/memguard.h"
#include "memory/rights.h"

/* RFC 5042 A6.1.1b */
struct srdma_mr *srdma_mr_find(const struct srdma_mr_table *t, uint32_t key)
{
	struct srdma_mr *mr = t->bucket[key % SRDMA_MR_BUCKETS];

	while (mr && mr->key != key)
		mr = mr->next;
	return mr;
}

void srdma_mr_insert(struct srdma_mr_table *t, struct srdma_mr *mr)
{
	struct srdma_mr **b = &t->bucket[mr->key % SRDMA_MR_BUCKETS];

	mr->next = *b;
	*b = mr;
}

static void take_out(struct srdma_mr_table *t, const struct srdma_mr *mr)
{
	struct srdma_mr **at = &t->bucket[mr->key % SRDMA_MR_BUCKETS];

	while (*at != mr)
		at = &(*at)->next;
	*at = mr->next;
}

void srdma_mr_rename(struct srdma_mr_table *t, struct srdma_mr *mr,
		     uint32_t key)
{
	take_out(t, mr);
	mr->key = key;
	mr->moving = 0;
	srdma_mr_insert(t, mr);
	t->revision++;
}

void srdma_mr_end(struct srdma_mr_table *t, struct srdma_mr *mr)
{
	mr->dead = 1;
	t->revision++;
}

void srdma_mr_set_moving(struct srdma_mr_table *t, struct srdma_mr *mr,
			 int moving)
{
	mr->moving = moving;
	t->revision++;
}

void srdma_mr_withdraw(struct srdma_mr_table *t, struct srdma_mr *mr)
{
	mr->access &= ~(uint32_t)SRDMA_RIGHTS_REMOTE;
	t->revision++;
}

void srdma_mr_free(struct srdma_mr_table *t, struct srdma_mr *mr)
{
	take_out(t, mr);
	t->revision++;
	srdma_exposed_remove(&t->exposed, &mr->exposed);
	mr->region->leg->port->ops->region_close(mr->region);
	srdma_memguard_destroy(mr->guard);
	free(mr);
}

/* 1: a peer uses a region that is for another QP or another identity. */
static int is_out_of_scope(const struct srdma_mr *mr,
			   const struct srdma_mr_want *want)
{
	static const uint8_t any[SRDMA_MEMKEY_HOLDER_LEN];

	if (!(want->right & SRDMA_RIGHTS_REMOTE))
		return 0;
	if (mr->scope_qpn && mr->scope_qpn != want->qpn)
		return 1;
	return memcmp(mr->scope_holder, any, sizeof(any)) &&
	       memcmp(mr->scope_holder, want->holder, sizeof(any));
}

/* RFC 5042 R6.1.1-1, R6.1.1-2, R6.1.1-3, R6.2.1-1, R6.3.5-1
 * RFC 5042 A6.1.1a, A6.3.1, A6.3.5 */
static enum srdma_reason examine(const struct srdma_mr *mr,
				 const struct srdma_mr_want *want)
{
	if (!mr || mr->dead || mr->moving)
		return SRDMA_REASON_BAD_RKEY;
	if (mr->leg != want->leg)
		return SRDMA_REASON_WRONG_PD;
	if (is_out_of_scope(mr, want))
		return SRDMA_REASON_QP_SCOPE;
	if ((mr->access & want->right) != want->right)
		return SRDMA_REASON_NO_RIGHT;
	return srdma_mr_covers(mr, want->addr, want->len)
		       ? SRDMA_REASON_NONE
		       : SRDMA_REASON_OUT_OF_BOUNDS;
}

enum srdma_reason srdma_mr_check(const struct srdma_mr_table *t,
				 const struct srdma_mr_want *want,
				 struct srdma_mr **out)
{
	struct srdma_mr *mr = srdma_mr_find(t, want->key);
	const enum srdma_reason why = examine(mr, want);

	*out = why ? NULL : mr;
	return why;
}

enum srdma_reason srdma_mr_permit(const struct srdma_mr_table *t,
				  struct srdma_mr_permit *permit,
				  const struct srdma_mr_want *want,
				  struct srdma_mr **out)
{
	const enum srdma_reason why = srdma_mr_check(t, want, out);

	if (!why)
		*permit = (struct srdma_mr_permit){ *out, t->revision,
						    want->key, want->right };
	return why;
}

int srdma_mr_current(const struct srdma_mr *mr, uint64_t serial, uint64_t addr,
		     uint64_t len)
{
	const uint64_t lo = addr - mr->base;

	return !mr->guard ||
	       srdma_memguard_current(mr->guard, serial, lo, lo + len);
}
