/*
 * Keys of AES for Nettle. Nettle's key schedule reads its S-box from a table, at
 * addresses that depend on the key. Where the CPU has ARM's instructions for
 * AES, the schedule is computed here by them.
 */
#include "crypto/provider_nettle.h"

#include <nettle/aes.h>
#include <nettle/cmac.h>
#include <nettle/gcm.h>

#ifdef __aarch64__
#include <arm_neon.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#define BY_INSTRUCTIONS __attribute__((target("+crypto")))

/* The S-box applied to each byte. AESE also moves bytes from column to column,
 * which has no effect because all columns are equal. */
BY_INSTRUCTIONS static uint32_t sub_word(uint32_t word)
{
	const uint8x16_t columns = vreinterpretq_u8_u32(vdupq_n_u32(word)),
			 boxed = vaeseq_u8(columns, vdupq_n_u8(0));

	return vgetq_lane_u32(vreinterpretq_u32_u8(boxed), 0);
}

static uint32_t load(const uint8_t *in)
{
	return in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 |
	       (uint32_t)in[3] << 24;
}

/* KeyExpansion() of FIPS 197, 5.2, n words at a time. The first byte of a word is
 * its lowest one, as in Nettle's contexts. */
BY_INSTRUCTIONS static void expand(uint32_t *w, unsigned n, const uint8_t *key)
{
	const unsigned all = 4 * (n + 7);
	uint32_t round = 1, word = 0;

	for (unsigned i = 0; i < n; i++)
		w[i] = word = load(key + 4 * (size_t)i);
	for (unsigned at = n; at < all; at += n) {
		word = sub_word(word >> 8 | word << 24) ^ round;
		round = round << 1 ^ (round >> 7) * 0x11b;
		for (unsigned i = at; i < at + n && i < all; i++) {
			if (n > 6 && i == at + 4)
				word = sub_word(word);
			w[i] = word ^= w[i - n];
		}
	}
}

/* Writes the round keys of a key of n words to w. Returns 1, or 0 if this CPU
 * lacks the instructions. */
static int expanded(uint32_t *w, unsigned n, const uint8_t *key)
{
	if (!(getauxval(AT_HWCAP) & HWCAP_AES))
		return 0;
	expand(w, n, key);
	return 1;
}
#else
static int expanded(uint32_t *w, unsigned n, const uint8_t *key)
{
	(void)w;
	(void)n;
	(void)key;
	return 0;
}
#endif

/* Nettle has types and functions for each length of a key, in bits. */
#define AES(bits)                                                              \
	static void key##bits(struct aes##bits##_ctx *c, const uint8_t *key)   \
	{                                                                      \
		if (!expanded(c->keys, AES##bits##_KEY_SIZE / 4, key))         \
			aes##bits##_set_encrypt_key(c, key);                   \
	}
#define GCM(bits)                                                              \
	void srdma_nettle_key_gcm##bits(void *ctx, const uint8_t *key)         \
	{                                                                      \
		struct gcm_aes##bits##_ctx *c = ctx;                           \
                                                                               \
		GCM_SET_KEY(c, key##bits, aes##bits##_encrypt, key);           \
	}
#define CMAC(bits)                                                             \
	void srdma_nettle_key_cmac##bits(void *ctx, const uint8_t *key)        \
	{                                                                      \
		struct cmac_aes##bits##_ctx *c = ctx;                          \
                                                                               \
		CMAC128_SET_KEY(c, key##bits, aes##bits##_encrypt, key);       \
	}

AES(128)
AES(192)
AES(256)
GCM(128)
GCM(192)
GCM(256)
CMAC(128)
CMAC(256)
