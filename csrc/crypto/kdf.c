#include "crypto/kdf.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/cmac.h"
#include "crypto/suite.h"

enum {
	LANES = SRDMA_SUITE_LANES,
	COUNTER_LEN = 4,
	LABEL_MAX = 32,
	CONTEXT_MAX = 64,
	BLOCK = SRDMA_CMAC_LEN, /* independent of the key size */
	OUT_MAX = 255,
	/* i | label | 0x00 | context | L | K(0) */
	INPUT_MAX = COUNTER_LEN + LABEL_MAX + 1 + CONTEXT_MAX + 4 + BLOCK,
};

/* Inputs and outputs of CMACs computed in parallel: once K(0) is known, each
 * K(i) is independent of the others. */
struct work {
	uint8_t in[LANES][INPUT_MAX];
	uint8_t block[LANES][BLOCK];
};

/* Writes label | 0x00 | context | L to in and returns its length. */
static size_t fixed_data(uint8_t *in, const struct srdma_kdf_info *info,
			 size_t out_len)
{
	const size_t label_len = strlen(info->label);

	memcpy(in, info->label, label_len);
	in[label_len] = 0;
	memcpy(in + label_len + 1, info->context, info->context_len);
	srdma_store32(in + label_len + 1 + info->context_len,
		      (uint32_t)out_len * 8);
	return label_len + 1 + info->context_len + 4;
}

/* Writes K(1) | K(2) ... to out, LANES at a time. w->in[0] holds the complete
 * input (len bytes) but for the counter. */
static int expand(struct srdma_cmac *c, struct work *w, size_t len,
		  uint8_t *out, size_t out_len)
{
	struct srdma_suite_inputs each = { w->in[0], INPUT_MAX, len, 0 };
	uint32_t number = 1;
	size_t n;
	int r = 0;

	for (size_t at = 0; !r && at < out_len; at += n) {
		n = out_len - at < sizeof(w->block) ? out_len - at
						    : sizeof(w->block);
		for (each.n = 0; each.n * BLOCK < n; each.n++) {
			if (each.n)
				memcpy(w->in[each.n], w->in[0], len);
			srdma_store32(w->in[each.n], number++);
		}
		r = srdma_cmac_sums(c, w->block[0], &each);
		memcpy(out + at, w->block, n);
	}
	return r;
}

int srdma_kdf_with(struct srdma_cmac *c, uint8_t *out, size_t out_len,
		   const uint8_t *parent, const struct srdma_kdf_info *info)
{
	struct work w;
	uint8_t *in = w.in[0] + COUNTER_LEN;
	size_t len;
	int r = -EINVAL;

	if (out_len < 1 || out_len > OUT_MAX ||
	    strlen(info->label) > LABEL_MAX || info->context_len > CONTEXT_MAX)
		goto wipe;
	r = srdma_cmac_key(c, parent);
	if (r)
		goto wipe;
	len = fixed_data(in, info, out_len);
	r = srdma_cmac_sum(c, in + len, in, len);
	if (!r)
		r = expand(c, &w, COUNTER_LEN + len + BLOCK, out, out_len);
wipe:
	if (r)
		srdma_wipe(out, out_len);
	srdma_wipe(&w, sizeof(w));
	return r;
}

int srdma_kdf(uint8_t *out, size_t out_len, const uint8_t *parent,
	      size_t parent_len, const struct srdma_kdf_info *info)
{
	struct srdma_cmac c;
	int r = srdma_cmac_create(&c, parent_len, NULL);

	if (!r)
		r = srdma_kdf_with(&c, out, out_len, parent, info);
	else
		srdma_wipe(out, out_len);
	srdma_cmac_destroy(&c);
	return r;
}
