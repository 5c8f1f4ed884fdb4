/*
 * Constant time (docs/verification.md): this program runs under valgrind and
 * declares secrets undefined. memcheck then reports each branch and each memory
 * address that depends on a secret.
 *
 * The result of a comparison is public: the peer sees whether a packet was
 * accepted. The link replaces CRYPTO_memcmp() by a wrapper that declares its
 * result defined (-Wl,--wrap). For those inside OpenSSL, libraries.supp
 * does that.
 *
 * `check_ct` exits with 0 if memcheck reports nothing. `check_ct broken` uses
 * comparisons and CMACs that depend on the secret, and exits with 0 if memcheck
 * reports an error in every check.
 */
/* RFC 5042 X5, review A28 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <valgrind/memcheck.h>

#include "crypto/kdf.h"
#include "crypto/provider.h"
#ifdef SRDMA_HAVE_IPSECMB
#include "crypto/provider_ipsecmb.h"
#endif
#include "memory/memkey.h"
#include "relay/relay_impl.h"
#include "support/pair.h"
#include "wire/stats.h"

static int broken;
static const uint8_t text[32] = "a payload of thirty-two bytes...";

static void require(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "check_ct: %s: unexpected result\n", what);
	exit(2);
}

/* --- wrappers of the link ------------------------------------------------- */

int __real_CRYPTO_memcmp(const void *a, const void *b, size_t len);
int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t len);
int __real_srdma_cmac_sum(struct srdma_cmac *c, uint8_t *out, const uint8_t *in,
			  size_t len);
int __wrap_srdma_cmac_sum(struct srdma_cmac *c, uint8_t *out, const uint8_t *in,
			  size_t len);

/* A comparison that ends at the first difference. */
static int early(const uint8_t *a, const uint8_t *b, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (a[i] != b[i])
			return 1;
	return 0;
}

int __wrap_CRYPTO_memcmp(const void *a, const void *b, size_t len)
{
	int r = broken ? early(a, b, len) : __real_CRYPTO_memcmp(a, b, len);

	VALGRIND_MAKE_MEM_DEFINED(&r, sizeof(r));
	return r;
}

int __wrap_srdma_cmac_sum(struct srdma_cmac *c, uint8_t *out, const uint8_t *in,
			  size_t len)
{
	int r = __real_srdma_cmac_sum(c, out, in, len);

	if (broken && out[0] == 0xff)
		out[0] = 0xfe;
	return r;
}

/*
 * intel-ipsec-mb branches on four bits when it derives the subkeys of a CMAC key
 * (docs/verification.md). Keying with it is exempt; sums are not.
 */
const struct srdma_suite_verbs *
__real_srdma_provider_verbs(const struct srdma_provider *p,
			    const struct srdma_suite *s);
const struct srdma_suite_verbs *
__wrap_srdma_provider_verbs(const struct srdma_provider *p,
			    const struct srdma_suite *s);

#ifdef SRDMA_HAVE_IPSECMB
static int exempt_create(struct srdma_suite_ctx **c, struct srdma_provider *p,
			 const struct srdma_suite_key *k)
{
	int r;

	VALGRIND_DISABLE_ERROR_REPORTING;
	r = srdma_suite_ipsecmb_cmac.create(c, p, k);
	VALGRIND_ENABLE_ERROR_REPORTING;
	return r;
}

static int exempt_again(struct srdma_suite_ctx *c,
			const struct srdma_suite_key *k)
{
	int r;

	VALGRIND_DISABLE_ERROR_REPORTING;
	r = srdma_suite_ipsecmb_cmac.again(c, k);
	VALGRIND_ENABLE_ERROR_REPORTING;
	return r;
}

const struct srdma_suite_verbs *
__wrap_srdma_provider_verbs(const struct srdma_provider *p,
			    const struct srdma_suite *s)
{
	static struct srdma_suite_verbs exempt;
	const struct srdma_suite_verbs *verbs =
		__real_srdma_provider_verbs(p, s);

	if (verbs != &srdma_suite_ipsecmb_cmac)
		return verbs;
	exempt = *verbs;
	exempt.create = exempt_create;
	exempt.again = exempt_again;
	return &exempt;
}
#else
const struct srdma_suite_verbs *
__wrap_srdma_provider_verbs(const struct srdma_provider *p,
			    const struct srdma_suite *s)
{
	return __real_srdma_provider_verbs(p, s);
}
#endif

/* --- sessions ------------------------------------------------------------- */

static void hide(struct srdma_session_params *p)
{
	VALGRIND_MAKE_MEM_UNDEFINED(p->tx_secret, sizeof(p->tx_secret));
	VALGRIND_MAKE_MEM_UNDEFINED(p->rx_secret, sizeof(p->rx_secret));
}

static void open_hidden(struct pair *pair, const struct protection *form)
{
	for (uint8_t role = 0; role < 2; role++) {
		struct srdma_session_params params = pair_params(form, role);

		params.rekey_packets = 1;
		hide(&params);
		require(!srdma_session_create(&pair->end[role], &params),
			form->suite->name);
	}
}

/* A right tag, and tags that are wrong in the first and in the last byte. */
static void open_packets(struct pair *pair, const struct protection *form)
{
	uint8_t sealed[SRDMA_MAX_PACKET], data[SRDMA_MAX_PACKET],
		plain[SRDMA_MAX_PAYLOAD];
	struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
				  .request_id = 1,
				  .payload_len = sizeof(text) };
	int len = srdma_session_seal(pair->end[0], &p, text, sealed,
				     sizeof(sealed));
	const uint32_t at[2] = { p.tag_at, p.tag_at + p.tag_len - 1 };

	require(len > 0, "seal");
	/* A packet on the wire is public. */
	VALGRIND_MAKE_MEM_DEFINED(sealed, (size_t)len);
	for (int i = 0; i < 2; i++) {
		memcpy(data, sealed, (size_t)len);
		data[at[i]] ^= 1;
		require(srdma_session_open(pair->end[1], &p, data, (size_t)len,
					   plain) == -SRDMA_REFUSED_TAG,
			form->suite->name);
	}
	require(!srdma_session_open(pair->end[1], &p, sealed, (size_t)len,
				    plain),
		form->suite->name);
}

/* The next epoch by the key chain, and with it a packet. */
static void change_epoch(struct pair *pair, const struct protection *form)
{
	require(srdma_session_advance(pair->end[0], 1, UINT64_MAX) == 1,
		"advance");
	open_packets(pair, form);
}

static void check_session(const struct protection *form)
{
	struct pair pair;

	open_hidden(&pair, form);
	open_packets(&pair, form);
	change_epoch(&pair, form);
	pair_destroy(&pair);
}

/* Every suite at every level, with its full tag. */
static void check_sessions(void)
{
	struct protection form;

	for (unsigned i = 0; protection_at(i, &form); i++)
		if (form.tag_len == form.suite->tag_len)
			check_session(&form);
}

static void check_sessions_of(const char *provider)
{
	if (srdma_provider_create(&pair_means.provider, provider)) {
		printf("check_ct: %s does not run here\n", provider);
		return;
	}
	check_sessions();
	srdma_provider_destroy(pair_means.provider);
	pair_means.provider = NULL;
}

static void check_sessions_ipsecmb(void)
{
	check_sessions_of("ipsec-mb");
}

static void check_sessions_nettle(void)
{
	check_sessions_of("nettle");
}

/* --- other secrets -------------------------------------------------------- */

/* Both ends prove a renewal; a wrong proof is refused (8.6). */
static void check_renewals(void)
{
	uint8_t context[SRDMA_PROVE_CONTEXT_LEN] = "context",
		proof[SRDMA_RENEWAL_LEN];
	struct protection form;
	struct pair pair;

	require(protection_at(0, &form), "suite");
	open_hidden(&pair, &form);
	require(!srdma_session_prove(pair.end[0], context, proof), "prove");
	VALGRIND_MAKE_MEM_DEFINED(proof, sizeof(proof));
	require(!srdma_session_check_proof(pair.end[1], context, proof),
		"proof");
	proof[0] ^= 1;
	require(srdma_session_check_proof(pair.end[1], context, proof) != 0,
		"wrong proof");
	pair_destroy(&pair);
}

/* Memory keys from K_PDmem to K_access, and proofs (6.1). */
static void check_memory_proofs(void)
{
	static struct srdma_memkey_cache cache;
	const struct srdma_memtree tree = { 0x10000, 0x20000, 12, 48 };
	const struct srdma_memkey_id id = { 7, 1, "salt of the tree" };
	const struct srdma_memkey_bearer nobody = { { 0 }, 0 };
	uint8_t pd[16] = "K_PDmem", key[16], proof[SRDMA_MEMKEY_PROOF_LEN];
	struct srdma_memnode node;
	struct srdma_cmac cmac;
	struct srdma_memkey_claim claim = {
		.right = SRDMA_MEMKEY_READ,
		.depth = 3,
		.addr = 0x11000,
		.len = 100,
		.ad = text,
		.ad_len = sizeof(text),
		.proof = proof,
	};

	VALGRIND_MAKE_MEM_UNDEFINED(pd, sizeof(pd));
	require(!srdma_cmac_create(&cmac, sizeof(pd), NULL), "cmac");
	require(!srdma_memkey_mr(&cmac, key, pd, &tree, &id), "K_MR");
	srdma_memkey_cache_init(&cache, &tree, key);
	require(!srdma_memkey_root(&cmac, key, key, claim.right), "root");
	require(!srdma_memtree_find(&tree, claim.depth, 0x1000, &node), "node");
	require(!srdma_memkey_walk(&cmac, key, &tree, 0, &node), "walk");
	require(!srdma_memkey_access(&cmac, key, key, &node, &nobody),
		"K_access");
	require(!srdma_memkey_proof(&cmac, proof, key, text, sizeof(text)),
		"proof");
	VALGRIND_MAKE_MEM_DEFINED(proof, sizeof(proof));
	require(!srdma_memkey_check(&cache, &cmac, &claim, 0), "right proof");
	proof[15] ^= 1;
	require(srdma_memkey_check(&cache, &cmac, &claim, 0) != 0,
		"wrong proof");
	srdma_cmac_destroy(&cmac);
}

/* Secrets of flows that are derived from K_PD (3.4). */
static void check_pd_keys(void)
{
	const struct srdma_pdkeys_flow flow = { .receiver.qpn = 5,
						.sender.qpn = 9 };
	struct srdma_pdkeys keys = { .serial = 1 };
	uint8_t secret[SRDMA_MAX_SECRET], next[SRDMA_GROUP_KEY_LEN] = "next";

	VALGRIND_MAKE_MEM_UNDEFINED(keys.pd, sizeof(keys.pd));
	VALGRIND_MAKE_MEM_UNDEFINED(next, sizeof(next));
	require(!srdma_pdkeys_secret(&keys, secret, 16, &flow), "S, 16 bytes");
	require(!srdma_pdkeys_secret(&keys, secret, 32, &flow), "S, 32 bytes");
	require(!srdma_pdkeys_rotate(&keys, next), "K_PD");
	require(!srdma_pdkeys_secret(&keys, secret, 16, &flow), "S, rotated");
}

/* The token that connects a host to its leg. */
static void check_leg_tokens(void)
{
	static struct srdma_relay relay;
	static struct srdma_leg legs[2];
	uint8_t given[SRDMA_TOKEN_LEN];

	for (int i = 0; i < 2; i++) {
		memset(legs[i].token, 0x40 + i, SRDMA_TOKEN_LEN);
		relay.legs[3 + i] = &legs[i];
		VALGRIND_MAKE_MEM_UNDEFINED(legs[i].token, SRDMA_TOKEN_LEN);
	}
	memset(given, 0x41, sizeof(given));
	require(srdma_relay_leg_by_token(&relay, given) == &legs[1], "token");
	given[SRDMA_TOKEN_LEN - 1] ^= 1;
	require(!srdma_relay_leg_by_token(&relay, given), "wrong token");
}

/* --- */

static const struct {
	const char *name;
	void (*run)(void);
} checks[] = {
	{ "sessions, OpenSSL", check_sessions },
	{ "sessions, ipsec-mb", check_sessions_ipsecmb },
	{ "sessions, nettle", check_sessions_nettle },
	{ "renewal proofs", check_renewals },
	{ "memory proofs", check_memory_proofs },
	{ "keys of a PD", check_pd_keys },
	{ "leg tokens", check_leg_tokens },
};

int main(int argc, char **argv)
{
	int failed = 0;

	if (!RUNNING_ON_VALGRIND) {
		fprintf(stderr, "check_ct: run it by `make check-ct`\n");
		return 2;
	}
	broken = argc > 1 && strcmp(argv[1], "broken") == 0;
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++) {
		const unsigned before = VALGRIND_COUNT_ERRORS;
		unsigned errors;

		checks[i].run();
		errors = VALGRIND_COUNT_ERRORS - before;
		failed += broken ? !errors : errors != 0;
		printf("  %-20s %s: %u reports\n", checks[i].name,
		       broken ? "broken" : "constant time", errors);
	}
	return failed != 0;
}
