#include "kdf.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"
#include "cmac.h"

enum {
	COUNTER_LEN = 4,
	LABEL_MAX = 32,
	CONTEXT_MAX = 64,
	BLOCK = SRDMA_CMAC_LEN, /* with any key */
	OUT_MAX = 255,
	/* i | label | 0x00 | context | L | K(0) */
	INPUT_MAX = COUNTER_LEN + LABEL_MAX + 1 + CONTEXT_MAX + 4 + BLOCK,
};

/* Write label | 0x00 | context | L to in; returns its length. */
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

int srdma_kdf_with(struct srdma_cmac *c, uint8_t *out, size_t out_len,
		   const uint8_t *parent, const struct srdma_kdf_info *info)
{
	uint8_t in[INPUT_MAX], block[BLOCK];
	size_t len;
	int r = -EINVAL;

	if (out_len < 1 || out_len > OUT_MAX ||
	    strlen(info->label) > LABEL_MAX || info->context_len > CONTEXT_MAX)
		goto wipe;
	r = srdma_cmac_key(c, parent);
	if (r)
		goto wipe;
	len = fixed_data(in + COUNTER_LEN, info, out_len);
	r = srdma_cmac_sum(c, in + COUNTER_LEN + len, in + COUNTER_LEN, len);
	for (size_t at = 0; !r && at < out_len; at += BLOCK) {
		const size_t left = out_len - at;

		srdma_store32(in, (uint32_t)(at / BLOCK) + 1);
		r = srdma_cmac_sum(c, block, in, COUNTER_LEN + len + BLOCK);
		if (!r)
			memcpy(out + at, block, left < BLOCK ? left : BLOCK);
	}
wipe:
	if (r)
		srdma_wipe(out, out_len);
	srdma_wipe(in, sizeof(in));
	srdma_wipe(block, sizeof(block));
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
