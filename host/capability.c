#include "host/objects.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "host/error.h"
#include "memory/rights.h"
#include "memory/token.h"

_Static_assert((int)SRDMA_CAP_MIN == (int)SRDMA_CTL_TOKEN_MIN, "token");
_Static_assert((int)SRDMA_CAP_MAX == (int)SRDMA_CAPABILITY_MAX, "token");
_Static_assert((int)SRDMA_HOLDER_LEN == (int)SRDMA_MEMKEY_HOLDER_LEN, "holder");

static int check(const struct srdma_mr *mr, const struct srdma_cap_attr *a)
{
	if (!(mr->memory.access & SRDMA_ACCESS_PROOF))
		return srdma_error_set(-EPERM,
				       "the region was registered without "
				       "SRDMA_ACCESS_PROOF: it has no "
				       "capabilities");
	if (!a->access || (a->access & ~(uint32_t)SRDMA_RIGHTS_REMOTE))
		return srdma_error_set(-EACCES,
				       "access 0x%x: a capability grants one "
				       "or more of SRDMA_ACCESS_REMOTE_*",
				       a->access);
	return 0;
}

static int copy_token(uint8_t *out, size_t size,
		      const struct srdma_ctl_token *token)
{
	if (token->len > size)
		return srdma_error_set(-ENOSPC,
				       "the token has %u bytes, the buffer "
				       "%zu: give SRDMA_CAP_MAX bytes",
				       token->len, size);
	memcpy(out, token->bytes, token->len);
	return (int)token->len;
}

int srdma_make_cap(uint8_t *token, size_t size, struct srdma_mr *mr,
		   const struct srdma_cap_attr *attr)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_CAP };
	int whole = !attr->offset && !attr->length;
	int r = check(mr, attr);

	if (r)
		return r;
	m.cap.leg = mr->pd->number;
	m.cap.cap = (struct srdma_cap_params){
		.key = mr->key,
		.offset = attr->offset,
		.length = whole ? mr->memory.length : attr->length,
		.rights = srdma_rights_of(attr->access),
		.bearer.expiry = attr->expires,
	};
	if (attr->holder)
		memcpy(m.cap.cap.bearer.holder, attr->holder, SRDMA_HOLDER_LEN);
	r = srdma_pd_call(mr->pd, &m, NULL);
	if (!r)
		r = copy_token(token, size, &m.capability);
	srdma_wipe(&m, sizeof(m));
	return r;
}

static uint32_t access_of(uint8_t rights)
{
	return (rights & SRDMA_MEMKEY_READ ? SRDMA_ACCESS_REMOTE_READ : 0U) |
	       (rights & SRDMA_MEMKEY_WRITE ? SRDMA_ACCESS_REMOTE_WRITE : 0U) |
	       (rights & SRDMA_MEMKEY_ATOMIC ? SRDMA_ACCESS_REMOTE_ATOMIC : 0U);
}

int srdma_query_cap(struct srdma_cap_info *info, const uint8_t *token,
		    size_t len)
{
	uint64_t lo, hi, start, end;

	if (len < SRDMA_CAP_MIN || len > SRDMA_CAP_MAX ||
	    memcmp(token, SRDMA_TOKEN_MAGIC, SRDMA_TOKEN_FLAGS) != 0)
		return srdma_error_set(-EPROTO,
				       "these %zu bytes are no token "
				       "of a capability",
				       len);
	start = srdma_load64(token + SRDMA_TOKEN_START);
	end = srdma_load64(token + SRDMA_TOKEN_END);
	lo = srdma_load64(token + SRDMA_TOKEN_LO);
	hi = srdma_load64(token + SRDMA_TOKEN_HI);
	if (start >= end || lo >= hi || hi > end - start)
		return srdma_error_set(-EPROTO, "the token has an illegal "
						"range: it was damaged");
	*info = (struct srdma_cap_info){
		.remote_addr = start + lo,
		.length = hi - lo,
		.offset = lo,
		.rkey = srdma_load32(token + SRDMA_TOKEN_RKEY),
		.access = access_of(token[SRDMA_TOKEN_RIGHTS]),
		.expires = srdma_load32(token + SRDMA_TOKEN_EXPIRY),
		.sealed = token[SRDMA_TOKEN_FLAGS] & SRDMA_TOKEN_SEALED,
	};
	return 0;
}

int srdma_install_cap(uint32_t *handle, struct srdma_pd *pd,
		      const uint8_t *token, size_t len)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_INSTALL };
	int r;

	*handle = 0;
	if (len < SRDMA_CAP_MIN || len > SRDMA_CAP_MAX)
		return srdma_error_set(-EMSGSIZE,
				       "a token of %zu bytes: it has %d to %d",
				       len, SRDMA_CAP_MIN, SRDMA_CAP_MAX);
	m.install.leg = pd->number;
	m.install.token.len = (uint32_t)len;
	memcpy(m.install.token.bytes, token, len);
	r = srdma_pd_call(pd, &m, NULL);
	if (!r)
		*handle = m.handle;
	srdma_wipe(&m, sizeof(m));
	return r;
}

int srdma_uninstall_cap(struct srdma_pd *pd, uint32_t handle)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_UNINSTALL };
	int r;

	m.uninstall.leg = pd->number;
	m.uninstall.handle = handle;
	r = srdma_pd_call(pd, &m, NULL);
	if (r == -ETIMEDOUT)
		pd->uninstalling = 1;
	return r == -ENOENT && pd->uninstalling ? 0 : r;
}

int srdma_revoke_caps(struct srdma_mr *mr, uint64_t offset, uint64_t length)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REVOKE };

	m.revoke.leg = mr->pd->number;
	m.revoke.range.key = mr->key;
	m.revoke.range.offset = offset;
	m.revoke.range.length = length;
	return srdma_pd_call(mr->pd, &m, NULL);
}
