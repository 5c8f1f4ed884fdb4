/* The lowest rungs: copying, the bare primitives, the suite. */
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#ifdef SRDMA_HAVE_IPSECMB
#include <intel-ipsec-mb.h>
#endif

#include "memkey.h"
#include "rung.h"
#include "wire.h"

enum {
	DEPTH = 30 - 11,	      /* of 2 KiB in a region of 1 GiB */
	CLAIM = 8 + 8 + RUNG_AD + 12, /* label, and what a proof covers */
};

struct raw {
	uint8_t in[SRDMA_MAX_PAYLOAD];
	uint8_t out[RUNG_BATCH][SRDMA_MAX_PACKET]; /* as frames are */
	uint8_t back[SRDMA_MAX_PAYLOAD];
	uint8_t ad[RUNG_AD], nonce[16], tag[SRDMA_MAX_TAG];
	uint32_t payload;
	/* one of these */
	EVP_CIPHER_CTX *evp;
	const struct srdma_suite *suite;
	const struct srdma_suite_verbs *verbs;
	struct srdma_suite_ctx *ctx;
#ifdef SRDMA_HAVE_IPSECMB
	IMB_MGR *mgr;
	struct gcm_key_data key __attribute__((aligned(64)));
	struct gcm_context_data gcm;
	uint8_t rounds[16 * 16] __attribute__((aligned(16)));
	uint8_t unused[16 * 16] __attribute__((aligned(16)));
	uint8_t subkeys[2][16] __attribute__((aligned(16)));
#endif
};

static const uint8_t key[SRDMA_SUITE_MAX_KEY] = { 1, 2, 3 };

static void *open_raw(const struct shape *s)
{
	struct raw *x = aligned_alloc(64, (sizeof(*x) + 63) / 64 * 64);

	if (!x)
		return NULL;
	memset(x, 0, sizeof(*x));
	memset(x->in, 0x5a, sizeof(x->in));
	x->payload = s->payload;
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

static uint64_t run_copy(void *state, unsigned n)
{
	struct raw *x = state;
	const uint64_t start = ticks();

	while (n--) {
		memcpy(x->out[n], x->in, x->payload);
		__asm__ volatile("" ::"r"(x->out) : "memory");
	}
	return ticks() - start;
}

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
	if (EVP_EncryptInit_ex2(x->evp, cipher, key, x->nonce, NULL) != 1)
		wrong("raw openssl", "no such cipher");
	EVP_CIPHER_free(cipher);
	return x;
}

static uint64_t run_evp(void *state, unsigned n)
{
	struct raw *x = state;
	const uint64_t start = ticks();
	int len;

	while (n--) {
		x->nonce[0]++;
		if (EVP_EncryptInit_ex2(x->evp, NULL, NULL, x->nonce, NULL) !=
			    1 ||
		    EVP_EncryptUpdate(x->evp, NULL, &len, x->ad, RUNG_AD) !=
			    1 ||
		    EVP_EncryptUpdate(x->evp, x->out[n], &len, x->in,
				      (int)x->payload) != 1 ||
		    EVP_EncryptFinal_ex(x->evp, x->out[n] + len, &len) != 1 ||
		    EVP_CIPHER_CTX_ctrl(x->evp, EVP_CTRL_AEAD_GET_TAG, 16,
					x->tag) != 1)
			wrong("raw openssl", "it failed");
	}
	return ticks() - start;
}

/* One ciphertext again and again; its tag is right each time. */
static uint64_t run_evp_open(void *state, unsigned n)
{
	struct raw *x = state;
	uint64_t start;
	int len;

	if (EVP_EncryptInit_ex2(x->evp, NULL, NULL, x->nonce, NULL) != 1)
		wrong("decrypt openssl", "no encryption");
	run_evp(x, 1);
	if (EVP_DecryptInit_ex2(x->evp, NULL, NULL, x->nonce, NULL) != 1)
		wrong("decrypt openssl", "no decryption");
	start = ticks();
	while (n--)
		if (EVP_DecryptInit_ex2(x->evp, NULL, NULL, x->nonce, NULL) !=
			    1 ||
		    EVP_CIPHER_CTX_ctrl(x->evp, EVP_CTRL_AEAD_SET_TAG, 16,
					x->tag) != 1 ||
		    EVP_DecryptUpdate(x->evp, NULL, &len, x->ad, RUNG_AD) !=
			    1 ||
		    EVP_DecryptUpdate(x->evp, x->back, &len, x->out[0],
				      (int)x->payload) != 1 ||
		    EVP_DecryptFinal_ex(x->evp, x->back + len, &len) != 1)
			wrong("decrypt openssl", "a good tag was refused");
	return ticks() - start;
}

/* The associated data alone: what a header's tag costs. */
static void *open_evp_mac(const struct shape *s)
{
	struct raw *x = open_evp(s);

	if (x)
		x->payload = 0;
	return x;
}

/* --- intel-ipsec-mb without a layer: AES-128-GCM ------------------------ */

#ifdef SRDMA_HAVE_IPSECMB
static void *open_mb(const struct shape *s)
{
	struct raw *x =
		strcmp(s->suite->name, "aes-128-gcm") == 0 ? open_raw(s) : NULL;
	IMB_ARCH arch;

	if (!x)
		return NULL;
	x->mgr = alloc_mb_mgr(0);
	if (!x->mgr)
		wrong("raw ipsec-mb", "no memory");
	init_mb_mgr_auto(x->mgr, &arch);
	IMB_AES128_GCM_PRE(x->mgr, key, &x->key);
	return x;
}

static uint64_t run_mb(void *state, unsigned n)
{
	struct raw *x = state;
	const uint64_t start = ticks();

	while (n--) {
		x->nonce[0]++;
		IMB_AES128_GCM_ENC(x->mgr, &x->key, &x->gcm, x->out[n], x->in,
				   x->payload, x->nonce, x->ad, RUNG_AD, x->tag,
				   16);
	}
	return ticks() - start;
}

static uint64_t run_mb_open(void *state, unsigned n)
{
	struct raw *x = state;
	uint8_t tag[16];
	uint64_t start;

	run_mb(x, 1);
	start = ticks();
	while (n--) {
		IMB_AES128_GCM_DEC(x->mgr, &x->key, &x->gcm, x->back, x->out[0],
				   x->payload, x->nonce, x->ad, RUNG_AD, tag,
				   sizeof(tag));
		if (memcmp(tag, x->tag, sizeof(tag)))
			wrong("decrypt ipsec-mb", "another tag");
	}
	return ticks() - start;
}

static void *open_mb_mac(const struct shape *s)
{
	struct raw *x = open_mb(s);

	if (x)
		x->payload = 0;
	return x;
}

/* The fewest lanes: its CMACs are done one at a time. */
static void *open_derive(const struct shape *s)
{
	struct raw *x = open_mb(s);

	if (x)
		init_mb_mgr_avx2(x->mgr);
	return x;
}

/* AES-CMAC of len bytes of x->in, into x->tag. */
static void sum(struct raw *x, uint32_t len)
{
	IMB_JOB *job = IMB_GET_NEXT_JOB(x->mgr);

	job->cipher_mode = IMB_CIPHER_NULL;
	job->cipher_direction = IMB_DIR_ENCRYPT;
	job->chain_order = IMB_ORDER_HASH_CIPHER;
	job->hash_alg = IMB_AUTH_AES_CMAC;
	job->u.CMAC._key_expanded = x->rounds;
	job->u.CMAC._skey1 = x->subkeys[0];
	job->u.CMAC._skey2 = x->subkeys[1];
	job->src = x->in;
	job->hash_start_src_offset_in_bytes = 0;
	job->msg_len_to_hash_in_bytes = len;
	job->auth_tag_output = x->tag;
	job->auth_tag_output_len_in_bytes = sizeof(x->nonce);
	job = IMB_SUBMIT_JOB(x->mgr);
	if (!job)
		job = IMB_FLUSH_JOB(x->mgr);
	if (!job || job->status != IMB_STATUS_COMPLETED)
		wrong("raw derive", "it failed");
}

/* A CMAC with a key of its own. */
static void schedule_and_sum(struct raw *x, uint32_t len)
{
	x->in[0]++;
	IMB_AES_KEYEXP_128(x->mgr, x->in, x->rounds, x->unused);
	IMB_AES_CMAC_SUBKEY_GEN_128(x->mgr, x->rounds, x->subkeys[0],
				    x->subkeys[1]);
	sum(x, len);
}

/* A derivation of n blocks (protocol.md 3.1) with len bytes of label, context
 * and length: the parent's schedule, K(0), K(1) ... K(n). */
static void derive(struct raw *x, uint32_t len, int n)
{
	schedule_and_sum(x, len);
	memcpy(x->in + 4 + len, x->tag, sizeof(x->nonce));
	while (n--)
		sum(x, 4 + len + 16);
	memcpy(x->in, x->tag, sizeof(x->nonce)); /* what hangs on it waits */
}

/* "traffic", 16 bytes: key and IV from S; and the key's schedule. */
static void derive_traffic(struct raw *x)
{
	derive(x, 7 + 1 + 16 + 4, 2);
	IMB_AES128_GCM_PRE(x->mgr, x->in, &x->key);
}

static uint64_t run_derive(void *state, unsigned n)
{
	const uint64_t start = ticks();

	while (n--)
		derive_traffic(state);
	return ticks() - start;
}

/* And S from K_PD before: "qp rx", 48 bytes. */
static uint64_t run_derive_both(void *state, unsigned n)
{
	const uint64_t start = ticks();

	while (n--) {
		derive(state, 5 + 1 + 48 + 4, 1);
		derive_traffic(state);
	}
	return ticks() - start;
}

/* "node", 16 bytes. */
static void derive_node(struct raw *x)
{
	derive(x, 4 + 1 + 16 + 4, 1);
}

static uint64_t run_step(void *state, unsigned n)
{
	const uint64_t start = ticks();

	while (n--)
		derive_node(state);
	return ticks() - start;
}

/* The CMAC of a claim (protocol.md 6.2). */
static uint64_t run_proof(void *state, unsigned n)
{
	const uint64_t start = ticks();

	while (n--)
		schedule_and_sum(state, CLAIM);
	return ticks() - start;
}

/* "acc", 36 bytes, and the proof by it. */
static void derive_access(struct raw *x)
{
	derive(x, 3 + 1 + 36 + 4, 1);
	schedule_and_sum(x, CLAIM);
}

static uint64_t run_access(void *state, unsigned n)
{
	const uint64_t start = ticks();

	while (n--)
		derive_access(state);
	return ticks() - start;
}

/* And the nodes of a tree below its upper levels. */
static uint64_t run_judge(void *state, unsigned n)
{
	const uint64_t start = ticks();

	while (n--) {
		for (int depth = SRDMA_MEMKEY_UPPER; depth < DEPTH; depth++)
			derive_node(state);
		derive_access(state);
	}
	return ticks() - start;
}
#endif

/* --- the suite ----------------------------------------------------------- */

static void *open_suite(const struct shape *s)
{
	const struct srdma_suite_key k = { s->suite, SRDMA_SUITE_SEAL,
					   s->suite->tag_len, key };
	struct raw *x = open_raw(s);

	if (!x)
		return NULL;
	x->verbs = srdma_provider_verbs(s->provider, s->suite);
	if (x->verbs->create(&x->ctx, s->provider, &k))
		wrong("suite", "no context");
	return x;
}

static uint64_t run_suite(void *state, unsigned n)
{
	struct raw *x = state;
	struct srdma_suite_io io = { x->nonce, x->ad,	   RUNG_AD,
				     x->in,    x->payload, NULL };
	const uint64_t start = ticks();

	while (n--) {
		x->nonce[0]++;
		io.out = x->out[n];
		if (x->verbs->seal(x->ctx, &io, x->tag))
			wrong("suite", "it failed");
	}
	return ticks() - start;
}

/* Another key for the context that is there: what derived keys cost. */
static uint64_t run_again(void *state, unsigned n)
{
	struct raw *x = state;
	uint8_t other[SRDMA_SUITE_MAX_KEY] = { 0 };
	const struct srdma_suite_key k = { x->suite, SRDMA_SUITE_SEAL,
					   x->suite->tag_len, other };
	const uint64_t start = ticks();

	while (n--) {
		other[0]++;
		if (x->verbs->again(x->ctx, &k))
			wrong("rekey", "it failed");
	}
	return ticks() - start;
}

const struct rung rungs_raw[] = {
	{ "memcpy", NULL, "the payload, copied", open_raw, run_copy,
	  close_raw },
	{ "raw openssl", NULL, "the primitive over payload and 104 bytes of AD",
	  open_evp, run_evp, close_raw },
	{ "decrypt openssl", NULL, "the same the other way", open_evp,
	  run_evp_open, close_raw },
	{ "mac openssl", NULL, "a tag over 104 bytes of AD alone", open_evp_mac,
	  run_evp, close_raw },
#ifdef SRDMA_HAVE_IPSECMB
	{ "raw ipsec-mb", NULL, "the same by intel-ipsec-mb", open_mb, run_mb,
	  close_raw },
	{ "decrypt ipsec-mb", NULL, "the same the other way", open_mb,
	  run_mb_open, close_raw },
	{ "mac ipsec-mb", NULL, "a tag over 104 bytes of AD alone", open_mb_mac,
	  run_mb, close_raw },
	{ "derive tx", NULL, "key schedule and 3 CMACs, schedule of GCM",
	  open_derive, run_derive, close_raw },
	{ "derive rx", NULL, "the same behind 2 CMACs for S", open_derive,
	  run_derive_both, close_raw },
	{ "derive step", NULL, "key schedule and 2 CMACs of a tree's node",
	  open_derive, run_step, close_raw },
	{ "derive proof", NULL, "key schedule and CMAC of a memory proof",
	  open_derive, run_proof, close_raw },
	{ "derive access", NULL, "K_access, and a proof by it", open_derive,
	  run_access, close_raw },
	{ "derive judge", NULL, "the same, 12 levels down the tree",
	  open_derive, run_judge, close_raw },
#endif
	{ "suite", "raw", "the same through the suite's row", open_suite,
	  run_suite, close_raw },
	{ "rekey", NULL, "another key for a context", open_suite, run_again,
	  close_raw },
	{ 0 },
};
