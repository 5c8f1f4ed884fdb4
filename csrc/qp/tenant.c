#include "qp/tenant.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

static struct srdma_tenant **
bucket_of(struct srdma_tenant_table *t,
	  const uint8_t identity[SRDMA_MEMKEY_HOLDER_LEN])
{
	return &t->bucket[srdma_hash_bucket(srdma_load32(identity),
					    SRDMA_TENANT_BUCKETS - 1)];
}

struct srdma_tenant *
srdma_tenant_join(struct srdma_tenant_table *t,
		  const uint8_t identity[SRDMA_MEMKEY_HOLDER_LEN])
{
	struct srdma_tenant **bucket = bucket_of(t, identity);
	struct srdma_tenant *tenant = *bucket;

	while (tenant &&
	       memcmp(tenant->identity, identity, sizeof(tenant->identity)))
		tenant = tenant->next;
	if (!tenant) {
		tenant = calloc(1, sizeof(*tenant));
		if (!tenant)
			return NULL;
		memcpy(tenant->identity, identity, sizeof(tenant->identity));
		tenant->turn = t->turn - 1; /* it did not work in this one */
		tenant->next = *bucket;
		*bucket = tenant;
	}
	tenant->qps++;
	return tenant;
}

void srdma_tenant_leave(struct srdma_tenant_table *t,
			struct srdma_tenant *tenant)
{
	struct srdma_tenant **at;

	if (!tenant || --tenant->qps)
		return;
	at = bucket_of(t, tenant->identity);
	while (*at != tenant)
		at = &(*at)->next;
	*at = tenant->next;
	free(tenant);
}

void srdma_tenant_begin(struct srdma_tenant_table *t, uint64_t now)
{
	if (!t->seen)
		return;
	if (t->seen > 1)
		t->until = now + SRDMA_SECOND;
	t->seen = t->most = 0;
	t->turn++;
}

static uint32_t cost_of(uint32_t payload)
{
	return SRDMA_TENANT_PACKET + SRDMA_TENANT_KIB * (payload / 1024);
}

static void work(struct srdma_tenant_table *t, struct srdma_tenant *tenant)
{
	if (tenant->turn == t->turn)
		return;
	tenant->turn = t->turn;
	tenant->urgent = tenant->sent = 0;
	t->seen++;
}

void srdma_tenant_urgent(struct srdma_tenant_table *t,
			 struct srdma_tenant *tenant, uint32_t payload)
{
	work(t, tenant);
	tenant->urgent += cost_of(payload);
	if (tenant->urgent > t->most)
		t->most = tenant->urgent;
}

void srdma_tenant_sent(struct srdma_tenant_table *t,
		       struct srdma_tenant *tenant, uint32_t payload)
{
	work(t, tenant);
	tenant->sent += cost_of(payload);
}

int srdma_tenant_is_spent(const struct srdma_tenant_table *t,
			  const struct srdma_tenant *tenant, uint64_t now)
{
	return now < t->until && tenant->turn == t->turn &&
	       tenant->sent >= SRDMA_TENANT_SENDS &&
	       tenant->urgent + tenant->sent >= t->most;
}
