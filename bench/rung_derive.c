/*
 * Derivations alone, without the layers of srdma: CMACs and key schedules by
 * intel-ipsec-mb, in one loop over one buffer. Each uses the same manager as
 * the provider (csrc/crypto/provider_ipsecmb.h): GCM key schedules use all
 * features of the CPU; CMACs are computed one at a time with the AVX2 code,
 * which has few lanes.
 */
#include <stdlib.h>
#include <string.h>

#include "crypto/cmac.h"
#include "mb.h"
#include "memory/memkey.h"
#include "rung.h"

#ifdef SRDMA_HAVE_IPSECMB
enum {
	DEPTH = 30 - 11,	      /* for blocks of 2 KiB in a region of 1
					 GiB */
	CLAIM = 8 + 8 + RUNG_AD + 12, /* label, and the bytes covered by a
					 proof */
	MOST = 256,		      /* maximum input bytes */
};

struct derive {
	IMB_MGR *mgr, *narrow;
	struct gcm_key_data key __attribute__((aligned(64)));
	uint8_t rounds[16 * 16] __attribute__((aligned(16)));
	uint8_t unused[16 * 16] __attribute__((aligned(16)));
	uint8_t subkeys[2][16] __attribute__((aligned(16)));
	uint8_t in[MOST], sum[SRDMA_CMAC_LEN];
};

static void close_derive(void *state)
{
	struct derive *d = state;

	free_mb_mgr(d->mgr);
	free_mb_mgr(d->narrow);
	free(d);
}

static void *open_derive(const struct shape *s)
{
	struct derive *d;

	if (strcmp(s->suite->name, "aes-128-gcm"))
		return NULL;
	d = aligned_alloc(64, (sizeof(*d) + 63) / 64 * 64);
	if (!d)
		wrong("derive", "no memory");
	memset(d, 0, sizeof(*d));
	d->mgr = mb_manager(mb_init_auto);
	d->narrow = mb_manager(init_mb_mgr_avx2);
	if (d->mgr && d->narrow)
		return d;
	close_derive(d);
	return NULL;
}

/* AES-CMAC of len bytes of d->in. */
static void sum(struct derive *d, uint32_t len)
{
	IMB_JOB *job = IMB_GET_NEXT_JOB(d->narrow);

	job->cipher_mode = IMB_CIPHER_NULL;
	job->cipher_direction = IMB_DIR_ENCRYPT;
	job->chain_order = IMB_ORDER_HASH_CIPHER;
	job->hash_alg = IMB_AUTH_AES_CMAC;
	job->u.CMAC._key_expanded = d->rounds;
	job->u.CMAC._skey1 = d->subkeys[0];
	job->u.CMAC._skey2 = d->subkeys[1];
	job->src = d->in;
	job->hash_start_src_offset_in_bytes = 0;
	job->msg_len_to_hash_in_bytes = len;
	job->auth_tag_output = d->sum;
	job->auth_tag_output_len_in_bytes = SRDMA_CMAC_LEN;
	job = IMB_SUBMIT_JOB(d->narrow);
	if (!job)
		job = IMB_FLUSH_JOB(d->narrow);
	if (!job || job->status != IMB_STATUS_COMPLETED)
		wrong("derive", "it failed");
}

/* CMAC including its key schedule. */
static void schedule_and_sum(struct derive *d, uint32_t len)
{
	IMB_AES_KEYEXP_128(d->narrow, d->in, d->rounds, d->unused);
	IMB_AES_CMAC_SUBKEY_GEN_128(d->narrow, d->rounds, d->subkeys[0],
				    d->subkeys[1]);
	sum(d, len);
}

/*
 * Derive n blocks (protocol.md 3.1) with len bytes of label, context and
 * length: the parent's key schedule, K(0), K(1) ... K(n).
 */
static void derive(struct derive *d, uint32_t len, int n)
{
	schedule_and_sum(d, len);
	memcpy(d->in + 4 + len, d->sum, sizeof(d->sum));
	while (n--)
		sum(d, 4 + len + 16);
	memcpy(d->in, d->sum, sizeof(d->sum)); /* makes the next derivation
						  depend on this one */
}

/*
 * Label "traffic", 16 bytes of context: key and IV from S, and the key
 * schedule.
 */
static void derive_traffic(void *state, unsigned i)
{
	struct derive *d = state;

	(void)i;
	derive(d, 7 + 1 + 16 + 4, 2);
	IMB_AES128_GCM_PRE(d->mgr, d->in, &d->key);
}

/* As derive_traffic(), after S from K_PD: label "qp rx", 48 bytes. */
static void derive_both(void *state, unsigned i)
{
	derive(state, 5 + 1 + 48 + 4, 1);
	derive_traffic(state, i);
}

/* Label "node", 16 bytes. */
static void derive_node(void *state, unsigned i)
{
	(void)i;
	derive(state, 4 + 1 + 16 + 4, 1);
}

/* The CMAC of a memory proof (protocol.md 6.1). */
static void derive_proof(void *state, unsigned i)
{
	(void)i;
	schedule_and_sum(state, CLAIM);
}

/* Label "acc", 36 bytes, and a proof with the derived key. */
static void derive_access(void *state, unsigned i)
{
	derive(state, 3 + 1 + 36 + 4, 1);
	derive_proof(state, i);
}

/*
 * As derive_access(), after the nodes above it, from below the cached upper
 * levels of the tree down to the leaf.
 */
static void derive_judge(void *state, unsigned i)
{
	for (int depth = SRDMA_MEMKEY_UPPER; depth <= DEPTH; depth++)
		derive_node(state, i);
	derive_access(state, i);
}

DEFINE_RUN(run_tx, derive_traffic)
DEFINE_RUN(run_rx, derive_both)
DEFINE_RUN(run_step, derive_node)
DEFINE_RUN(run_proof, derive_proof)
DEFINE_RUN(run_access, derive_access)
DEFINE_RUN(run_judge, derive_judge)
#else
static void *open_none(const struct shape *s)
{
	(void)s;
	return NULL;
}
#endif

const struct rung rungs_derive[] = {
#ifdef SRDMA_HAVE_IPSECMB
	{ "derive tx", NULL, "key schedule and 3 CMACs, schedule of GCM",
	  open_derive, run_tx, close_derive },
	{ "derive rx", NULL, "the same behind 2 CMACs for S", open_derive,
	  run_rx, close_derive },
	{ "derive step", NULL, "key schedule and 2 CMACs of a tree's node",
	  open_derive, run_step, close_derive },
	{ "derive proof", NULL, "key schedule and CMAC of a memory proof",
	  open_derive, run_proof, close_derive },
	{ "derive access", NULL, "K_access, and a proof by it", open_derive,
	  run_access, close_derive },
	{ "derive judge", NULL, "the same behind 13 nodes of a tree",
	  open_derive, run_judge, close_derive },
#else
	{ "derive", NULL, "not in this build", open_none, NULL, NULL },
#endif
	{ 0 },
};
