#include "kdf.h"

#include <errno.h>
#include <string.h>

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include "bytes.h"

enum {
	COUNTER_LEN = 4,
	LABEL_MAX = 32,
	CONTEXT_MAX = 64,
	BLOCK = 16, /* of CMAC-AES, with any key */
	OUT_MAX = 255,
	/* i | label | 0x00 | context | L | K(0) */
	INPUT_MAX = COUNTER_LEN + LABEL_MAX + 1 + CONTEXT_MAX + 4 + BLOCK,
};

static EVP_MAC_CTX *cmac_create(const uint8_t *key, size_t key_len)
{
	char cipher[] = "AES-128-CBC", cipher_256[] = "AES-256-CBC";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(
			OSSL_MAC_PARAM_CIPHER,
			key_len == 16 ? cipher : cipher_256, 0),
		OSSL_PARAM_construct_end(),
	};
	EVP_MAC *mac = EVP_MAC_fetch(NULL, "CMAC", NULL);
	EVP_MAC_CTX *ctx = mac ? EVP_MAC_CTX_new(mac) : NULL;

	EVP_MAC_free(mac);
	if (ctx && EVP_MAC_init(ctx, key, key_len, params) != 1) {
		EVP_MAC_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

static int cmac(EVP_MAC_CTX *ctx, uint8_t out[BLOCK], const uint8_t *in,
		size_t len)
{
	size_t n = 0;

	if (EVP_MAC_init(ctx, NULL, 0, NULL) != 1 ||
	    EVP_MAC_update(ctx, in, len) != 1 ||
	    EVP_MAC_final(ctx, out, &n, BLOCK) != 1 || n != BLOCK)
		return -EIO;
	return 0;
}

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

int srdma_kdf(uint8_t *out, size_t out_len, const uint8_t *parent,
	      size_t parent_len, const struct srdma_kdf_info *info)
{
	uint8_t in[INPUT_MAX], block[BLOCK];
	EVP_MAC_CTX *ctx = NULL;
	size_t len;
	int r = -EINVAL;

	if (out_len < 1 || out_len > OUT_MAX ||
	    (parent_len != 16 && parent_len != 32) ||
	    strlen(info->label) > LABEL_MAX || info->context_len > CONTEXT_MAX)
		goto wipe;
	r = -EIO;
	ctx = cmac_create(parent, parent_len);
	if (!ctx)
		goto wipe;
	len = fixed_data(in + COUNTER_LEN, info, out_len);
	r = cmac(ctx, in + COUNTER_LEN + len, in + COUNTER_LEN, len);
	for (size_t at = 0; !r && at < out_len; at += BLOCK) {
		const size_t left = out_len - at;

		srdma_store32(in, (uint32_t)(at / BLOCK) + 1);
		r = cmac(ctx, block, in, COUNTER_LEN + len + BLOCK);
		if (!r)
			memcpy(out + at, block, left < BLOCK ? left : BLOCK);
	}
wipe:
	if (r)
		srdma_wipe(out, out_len);
	EVP_MAC_CTX_free(ctx);
	srdma_wipe(in, sizeof(in));
	srdma_wipe(block, sizeof(block));
	return r;
}
