/* Functions that the queues of a UD QP use, for the tests of this folder. */
#ifndef TESTS_C_VERBS_UD_FAKES_H
#define TESTS_C_VERBS_UD_FAKES_H

#include "verbs/ud.h"

enum { SLOTS = 256 };

static uint8_t slots[SLOTS][UD_SLOT];
static uint64_t drops[UD_DROPS];
static char cause[512]; /* of the last drop */
static struct ibv_wc found;
static int count, refusal, errors;
static int64_t now;

uint8_t *ud_slot(const struct srdma_mr *mr, uint32_t i)
{
	(void)mr;
	return slots[i];
}

uint32_t ud_key(const struct srdma_mr *mr)
{
	(void)mr;
	return 1;
}

int64_t ud_now(void)
{
	return now;
}

void ud_drop(struct verbs_ud *ud, enum ud_drop reason, uint32_t n,
	     const char *why)
{
	(void)ud;
	strncpy(cause, why ? why : "", sizeof(cause) - 1);
	drops[reason] += n;
}

void verbs_ud_error(struct verbs_qp *qp)
{
	qp->ibv.state = IBV_QPS_ERR;
	errors++;
}

void verbs_cq_put(struct verbs_cq *cq, const struct ibv_wc *wc)
{
	(void)cq;
	found = *wc;
	count++;
}

void *verbs_mr_at(struct ibv_pd *pd, const struct ibv_sge *sge, unsigned access)
{
	(void)pd;
	(void)access;
	return sge->lkey ? (void *)(uintptr_t)sge->addr : NULL;
}

static void reset_fakes(void)
{
	memset(drops, 0, sizeof(drops));
	memset(cause, 0, sizeof(cause));
	count = refusal = errors = 0;
	now = 77;
}

#endif
