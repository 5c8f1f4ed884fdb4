#include "ledger/ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/ledger_impl.h"

int srdma_ledger_create(struct srdma_ledger **out,
			const struct srdma_ledger_params *params)
{
	struct srdma_ledger *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	for (int side = 0; side < SRDMA_SIDES; side++)
		for (int r = 0; r < SRDMA_RESOURCES; r++) {
			l->stock[side][r].capacity = params->capacity[side][r];
			srdma_quota_init(&l->stock[side][r]);
		}
	l->minima = params->minima;
	memset(l->kind, 0xff, sizeof(l->kind)); /* SRDMA_QUOTA_DEFAULT */
	for (int kind = 0; kind < SRDMA_ACCOUNT_KINDS; kind++)
		l->kind[kind].idle = 0;
	srdma_quota_hold_back(l);
	*out = l;
	return 0;
}

void srdma_ledger_destroy(struct srdma_ledger *l)
{
	struct srdma_account *a, *next;

	if (!l)
		return;
	for (a = l->first; a; a = next) {
		next = a->after;
		free(a->quota);
		free(a);
	}
	free(l);
}

uint64_t srdma_ledger_used(const struct srdma_ledger *l, enum srdma_side side,
			   enum srdma_resource r)
{
	return l->stock[side][r].used;
}

struct srdma_account *srdma_ledger_next(struct srdma_ledger *l, uint64_t after)
{
	struct srdma_account *a = l->found;

	if (!a || a->serial > after)
		a = l->first;
	while (a && a->serial <= after)
		a = a->after;
	l->found = a;
	return a;
}
