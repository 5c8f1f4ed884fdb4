/* The lowest rungs: memcpy, the bare primitives, the suite. */
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "mb.h"
#include "rung.h"
#include "wire/wire.h"

enum { AD_MOST = RUNG_AD + SRDMA_MAX_PAYLOAD };

struct raw {
	uint8_t in[SRDMA_MAX_PAYLOAD];
	uint8_t out[RUNG_BATCH][SRDMA_MAX_PACKET]; /* one per packet, like
						      frames */
	uint8_t back[SRDMA_MAX_PAYLOAD];
	uint8_t ad[AD_MOST], nonce[RUNG_BATCH][16];
	uint8_t tag[RUNG_BATCH][SRDMA_MAX_TAG];
	uint32_t payload, ad_len;
	/* one of these is used */
	EVP_CIPHER_CTX *evp;
	const struct srdma_suite *suite;
	const struct srdma_suite_verbs *verbs;
	struct srdma_suite_ctx *ctx;
#ifdef SRDMA_HAVE_IPSECMB
	IMB_MGR *mgr;
	struct gcm_key_data key __attribute__((aligned(64)));
	struct gcm_context_data gcm;
#endif
};

static const uint8_t key[SRDMA_SUITE_MAX_KEY] = { 1, 2, 3 };

static void *open_raw(const struct shape *s)
{
	struct raw *x = aligned_alloc(64, (sizeof(*x) + 63) / 64 * 64);

	if (!x)
		wrong("raw", "out of memory");
	memset(x, 0, sizeof(*x));
	memset(x->in, 0x5a, sizeof(x->in));
	for (unsigned i = 0; i < RUNG_BATCH; i++)
		x->nonce[i][1] = (uint8_t)i; /* all nonces differ */
	x->payload = s->payload;
	x->ad_len = RUNG_AD;
	x->suite = s->suite;
	return x;
}

static void close_raw(void *state)
{
	struct raw *x = state;

	EVP_CIPHER_CTX_free(x->evp);
	if (x->ctx)
		x->verbs->destroy(x->ctx);
#ifdef SRDMA_HAVE_IPSECMB
	free_mb_mgr(x->mgr);
#endif
	free(x);
}

/*
 * Change each nonce before the time starts: a byte stored just before would
 * delay the load of the word that contains it (failed store forwarding).
 */
static struct raw *renew_nonces(struct raw *x, unsigned n)
{
	while (n--)
		x->nonce[n][0]++;
	return x;
}

/* Empty plaintext: a tag over associated data only. */
static void *without_text(struct raw *x, uint32_t ad_len)
{
	if (x) {
		x->payload = 0;
		x->ad_len = ad_len;
	}
	return x;
}

static void copy(void *state, unsigned i)
{
	struct raw *x = state;

	memcpy(x->out[i], x->in, x->payload);
	__asm__ volatile("" ::"r"(x->out) : "memory");
}

DEFINE_RUN(run_copy, copy)

/* --- OpenSSL without a layer ------------------------------------------- */

static void *open_evp(const struct shape *s)
{
	struct raw *x =
		s->suite->verbs == &srdma_suite_aead ? open_raw(s) : NULL;
	EVP_CIPHER *cipher;

	if (!x)
		return NULL;
	cipher = EVP_CIPHER_fetch(NULL, s->suite->algorithm, NULL);
	x->evp = EVP_CIPHER_CTX_new();
	if (EVP_EncryptInit_ex2(x->evp, cipher, key, x->nonce[0], NULL) != 1)
		wrong("raw openssl", "OpenSSL has no such cipher");
	EVP_CIPHER_free(cipher);
	return x;
}

static void evp_seal(void *state, unsigned i)
{
	struct raw *x = state;
	int len;

	if (EVP_EncryptInit_ex2(x->evp, NULL, NULL, x->nonce[i], NULL) != 1 ||
	    EVP_EncryptUpdate(x->evp, NULL, &len, x->ad, (int)x->ad_len) != 1 ||
	    EVP_EncryptUpdate(x->evp, x->out[i], &len, x->in,
			      (int)x->payload) != 1 ||
	    EVP_EncryptFinal_ex(x->evp, x->out[i] + len, &len) != 1 ||
	    EVP_CIPHER_CTX_ctrl(x->evp, EVP_CTRL_AEAD_GET_TAG, 16, x->tag[i]) !=
		    1)
		wrong("raw openssl", "it failed");
}

static uint64_t run_evp(void *state, unsigned n)
{
	return timed(renew_nonces(state, n), n, evp_seal);
}

static void evp_open(void *state, unsigned i)
{
	struct raw *x = state;
	int len;

	if (EVP_DecryptInit_ex2(x->evp, NULL, NULL, x->nonce[i], NULL) != 1 ||
	    EVP_CIPHER_CTX_ctrl(x->evp, EVP_CTRL_AEAD_SET_TAG, 16, x->tag[i]) !=
		    1 ||
	    EVP_DecryptUpdate(x->evp, NULL, &len, x->ad, (int)x->ad_len) != 1 ||
	    EVP_DecryptUpdate(x->evp, x->back, &len, x->out[i],
			      (int)x->payload) != 1 ||
	    EVP_DecryptFinal_ex(x->evp, x->back + len, &len) != 1)
		wrong("decrypt openssl", "a correct tag was refused");
}

/* The context changes direction outside of the measured time. */
static uint64_t run_evp_open(void *state, unsigned n)
{
	struct raw *x = state;

	if (EVP_EncryptInit_ex2(x->evp, NULL, NULL, x->nonce[0], NULL) != 1)
		wrong("decrypt openssl", "switching to encryption failed");
	run_evp(x, n);
	if (EVP_DecryptInit_ex2(x->evp, NULL, NULL, x->nonce[0], NULL) != 1)
		wrong("decrypt openssl", "switching to decryption failed");
	return timed(x, n, evp_open);
}

static void *open_evp_mac(const struct shape *s)
{
	return without_text(open_evp(s), RUNG_AD);
}

static void *open_evp_tag(const struct shape *s)
{
	return without_text(open_evp(s), RUNG_AD + s->payload);
}

/* --- intel-ipsec-mb without a layer: AES-128-GCM ------------------------ */

#ifdef SRDMA_HAVE_IPSECMB
static void *open_mb(const struct shape *s)
{
	struct raw *x =
		strcmp(s->suite->name, "aes-128-gcm") == 0 ? open_raw(s) : NULL;

	if (!x)
		return NULL;
	x->mgr = mb_manager(mb_init_auto);
	if (!x->mgr) {
		close_raw(x);
		return NULL;
	}
	IMB_AES128_GCM_PRE(x->mgr, key, &x->key);
	return x;
}

static void mb_seal(void *state, unsigned i)
{
	struct raw *x = state;

	IMB_AES128_GCM_ENC(x->mgr, &x->key, &x->gcm, x->out[i], x->in,
			   x->payload, x->nonce[i], x->ad, x->ad_len, x->tag[i],
			   16);
}

static uint64_t run_mb(void *state, unsigned n)
{
	return timed(renew_nonces(state, n), n, mb_seal);
}

static void mb_open(void *state, unsigned i)
{
	struct raw *x = state;
	uint8_t tag[16];

	IMB_AES128_GCM_DEC(x->mgr, &x->key, &x->gcm, x->back, x->out[i],
			   x->payload, x->nonce[i], x->ad, x->ad_len, tag,
			   sizeof(tag));
	if (memcmp(tag, x->tag[i], sizeof(tag)))
		wrong("decrypt ipsec-mb", "the tag differs");
}

static uint64_t run_mb_open(void *state, unsigned n)
{
	run_mb(state, n);
	return timed(state, n, mb_open);
}

static void *open_mb_mac(const struct shape *s)
{
	return without_text(open_mb(s), RUNG_AD);
}

static void *open_mb_tag(const struct shape *s)
{
	return without_text(open_mb(s), RUNG_AD + s->payload);
}
#endif

/* --- the suite ----------------------------------------------------------- */

static void *open_suite(const struct shape *s)
{
	const struct srdma_suite_key k = { s->suite, SRDMA_SUITE_SEAL,
					   s->suite->tag_len, key };
	struct raw *x = open_raw(s);

	x->verbs = srdma_provider_verbs(s->provider, s->suite);
	if (x->verbs->create(&x->ctx, s->provider, &k))
		wrong("suite", "cannot create a context");
	return x;
}

static void suite_seal(void *state, unsigned i)
{
	struct raw *x = state;
	const struct srdma_suite_io io = { x->nonce[i], x->ad,	    x->ad_len,
					   x->in,	x->payload, x->out[i] };

	if (x->verbs->seal(x->ctx, &io, x->tag[i]))
		wrong("suite", "it failed");
}

static uint64_t run_suite(void *state, unsigned n)
{
	return timed(renew_nonces(state, n), n, suite_seal);
}

/* Rekey an existing context: part of the cost of derived keys. */
static void key_again(void *state, unsigned i)
{
	struct raw *x = state;
	const uint8_t other[SRDMA_SUITE_MAX_KEY] = { (uint8_t)i };
	const struct srdma_suite_key k = { x->suite, SRDMA_SUITE_SEAL,
					   x->suite->tag_len, other };

	if (x->verbs->again(x->ctx, &k))
		wrong("rekey", "it failed");
}

DEFINE_RUN(run_again, key_again)

const struct rung rungs_raw[] = {
	{ "memcpy", NULL, "copies the payload", open_raw, run_copy, close_raw },
	{ "raw openssl", NULL, "the primitive over payload and 104 bytes of AD",
	  open_evp, run_evp, close_raw },
	{ "decrypt openssl", NULL, "the same the other way", open_evp,
	  run_evp_open, close_raw },
	{ "mac openssl", NULL, "a tag over 104 bytes of AD alone", open_evp_mac,
	  run_evp, close_raw },
	{ "tag openssl", NULL, "a tag over the AD and the payload",
	  open_evp_tag, run_evp, close_raw },
#ifdef SRDMA_HAVE_IPSECMB
	{ "raw ipsec-mb", NULL, "the primitive by intel-ipsec-mb", open_mb,
	  run_mb, close_raw },
	{ "decrypt ipsec-mb", NULL, "the same the other way", open_mb,
	  run_mb_open, close_raw },
	{ "mac ipsec-mb", NULL, "a tag over 104 bytes of AD alone", open_mb_mac,
	  run_mb, close_raw },
	{ "tag ipsec-mb", NULL, "a tag over the AD and the payload",
	  open_mb_tag, run_mb, close_raw },
#endif
	{ "suite", "raw", "the same through the suite's row", open_suite,
	  run_suite, close_raw },
	{ "rekey", NULL, "a new key for an existing context", open_suite,
	  run_again, close_raw },
	{ 0 },
};
