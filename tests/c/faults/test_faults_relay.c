/*
 * Each call of libcrypto and of the allocator fails once: in the creation of a
 * relay, in each control call, and in the data path. A control call that fails
 * reports an error, changes nothing, and succeeds when it is repeated. A request completes
 * once, with its data or with an error.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "faults/transfer.h"
#include "support/inside.h"
#include "support/relay_pair.h"

enum { MEMORY = TRANSFER_MEMORY, BLOCK = 4096, KEEP_LEN = 20 };

struct scene {
	struct pair p;
	uint32_t key; /* region of side 0 that demands proofs */
	size_t token_len;
	uint8_t token[SRDMA_CAPABILITY_MAX]; /* of side 1, for side 0 */
};

static const struct pair_region region = {
	.len = MEMORY,
	.access = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
	.log2_block = 12,
	.depth = 48,
};

/* Two relays with QP 0 in RTS, and QP 1 without keys. */
static void begin(struct scene *s, uint8_t mode)
{
	struct srdma_cap_params params = {
		.length = MEMORY,
		.rights = SRDMA_MEMKEY_ALL,
	};

	memset(s, 0, sizeof(*s));
	pair_defaults(&s->p);
	s->p.mode = mode;
	s->p.memory = MEMORY;
	s->p.ring = 128;
	s->p.depth = 8;
	pair_open(&s->p);
	pair_connect(&s->p, 0);
	pair_init_qp(&s->p, 1);
	s->key = pair_register(&s->p, 0, region);
	params.key = pair_register(&s->p, 1, region);
	s->token_len = pair_token(&s->p, 1, params, s->token);
}

/* --- control calls -------------------------------------------------------- */

static int open_leg(struct scene *s)
{
	struct srdma_leg_params params = { .ring = 64, .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_leg *leg;

	return srdma_relay_leg_open(s->p.side[0].relay, &params, &leg, &answer);
}

static int register_region(struct scene *s)
{
	const struct srdma_mr_params params = {
		.region = { .addr = (uintptr_t)s->p.side[0].memory,
			    .length = MEMORY,
			    .access = region.access,
			    .fd = -1 },
		.log2_block = region.log2_block,
		.depth = region.depth,
	};
	uint32_t key;

	return srdma_relay_mr_reg(s->p.side[0].relay, s->p.side[0].leg, &params,
				  &key);
}

static int make_capability(struct scene *s)
{
	const struct srdma_cap_params params = {
		.key = s->key,
		.offset = BLOCK,
		.length = 5 * BLOCK,
		.rights = SRDMA_MEMKEY_READ,
		.bearer.expiry = 99,
	};
	struct srdma_capability cap;
	int r = srdma_relay_mr_capability(s->p.side[0].relay, s->p.side[0].leg,
					  &params, &cap);

	srdma_capability_wipe(&cap);
	return r;
}

static int revoke(struct scene *s)
{
	const struct srdma_revoke_params params = {
		.key = s->key,
		.offset = BLOCK,
		.length = BLOCK,
	};
	uint64_t ticket;

	return srdma_relay_mr_revoke(s->p.side[0].relay, s->p.side[0].leg,
				     &params, &ticket);
}

static int install(struct scene *s)
{
	uint32_t handle;

	return srdma_relay_install(s->p.side[0].relay, s->p.side[0].leg,
				   s->token, s->token_len, &handle);
}

static int init(struct scene *s)
{
	const struct srdma_qp_params params = { .sq = 4, .rq = 4 };
	struct srdma_qp_info info;

	return srdma_relay_qp_init(s->p.side[0].relay, s->p.side[0].leg,
				   &params, &info);
}

static int secret(struct scene *s)
{
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_secret k;

	pair_key(&s->p, 0, 1, &k);
	return srdma_relay_qp_secret(s->p.side[0].relay, s->p.side[0].leg, &k,
				     &answer);
}

static int keys(struct scene *s)
{
	struct srdma_qp_keys k;

	pair_keys(&s->p, 0, 1, &k);
	k.peer_identity = "spiffe://example/peer";
	return srdma_relay_qp_keys(s->p.side[0].relay, s->p.side[0].leg, &k);
}

static int renew(struct scene *s)
{
	struct srdma_qp_rekey k = {
		.qpn = s->p.side[0].qp[0].qpn,
		.direction = SRDMA_TX,
		.secret_len = 16,
	};

	memset(k.secret, 0x42, k.secret_len);
	return srdma_relay_qp_rekey(s->p.side[0].relay, s->p.side[0].leg, &k);
}

static int prove(struct scene *s)
{
	const struct srdma_qp_prove params = {
		.qpn = s->p.side[0].qp[0].qpn,
	};
	struct srdma_qp_prove_answer answer;

	return srdma_relay_qp_prove(s->p.side[0].relay, s->p.side[0].leg,
				    &params, &answer);
}

static int keep(struct scene *s)
{
	const struct srdma_keep params = {
		.n = 1,
		.len = KEEP_LEN,
		.qpn = { s->p.side[0].qp[0].qpn },
	};

	return srdma_relay_keep(s->p.side[0].relay, &params);
}

static int rotate(struct scene *s)
{
	uint32_t serial;

	return srdma_relay_leg_rotate(s->p.side[0].relay, s->p.side[0].leg, 0,
				      &serial);
}

struct command {
	const char *name;
	int (*call)(struct scene *s);
	uint8_t mode;
	uint8_t fails; /* 1: it makes calls that can fail */
};

static const struct command commands[] = {
	{ "LEG", open_leg, SRDMA_MODE_BASIC, 1 },
	{ "REG_MR", register_region, SRDMA_MODE_MEM, 1 },
	{ "CAP", make_capability, SRDMA_MODE_MEM, 1 },
	{ "REVOKE", revoke, SRDMA_MODE_MEM, 1 },
	{ "INSTALL", install, SRDMA_MODE_MEM, 1 },
	{ "INIT", init, SRDMA_MODE_BASIC, 1 },
	{ "KEY", secret, SRDMA_MODE_PD, 1 },
	{ "KEYS", keys, SRDMA_MODE_BASIC, 1 },
	{ "KEYS", keys, SRDMA_MODE_PD | SRDMA_MODE_MEM, 1 },
	{ "REKEY", renew, SRDMA_MODE_BASIC, 0 },
	{ "PROVE", prove, SRDMA_MODE_BASIC, 1 },
	{ "KEEP", keep, SRDMA_MODE_BASIC, 1 },
	{ "ROTATE", rotate, SRDMA_MODE_PD, 0 },
};

static void judge(const struct scene *s, const char *command, const char *name,
		  int r)
{
	const char *why = srdma_relay_why(s->p.side[0].relay);

	if (!name && r)
		fail_msg("%s failed without a fault: %d, %s", command, r, why);
	if (r && r != -ENOMEM && r != -EIO)
		fail_msg("%s: %s failed, and the result is %d, %s", command,
			 name, r, why);
	if (r && !*why)
		fail_msg("%s: %s failed, and there is no text", command, name);
}

static void run_command(void *ctx, unsigned long n)
{
	const struct command *c = ctx;
	const char *name;
	struct scene s;
	int r;

	begin(&s, c->mode);
	faults_arm(n);
	r = c->call(&s);
	name = faults_disarm();
	judge(&s, c->name, name, r);
	if (r)
		assert_int_equal(c->call(&s), 0);
	pair_close(&s.p);
}

static void test_control_call_fails_and_is_repeated(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		struct command c = commands[i];
		unsigned long faults = faults_each(run_command, &c);

		if (c.fails && !faults)
			fail_msg("%s: no call failed", c.name);
	}
}

/* --- creation ------------------------------------------------------------- */

static int fill(void *ctx, uint8_t *out, size_t len)
{
	(void)ctx;
	memset(out, 0x11, len);
	return 0;
}

static void create(void *ctx, unsigned long n)
{
	struct srdma_relay_params params = { .mtu = 4096,
					     .window = 64,
					     .reads = 4,
					     .key_cache = 4,
					     .random = fill };
	struct srdma_relay *relay = NULL;
	struct srdma_port *far;
	const char *name;
	int r;

	(void)ctx;
	assert_int_equal(srdma_port_mem_wire_pair(&params.wire, &far, NULL), 0);
	assert_int_equal(srdma_port_mem_host(&params.host, NULL), 0);
	faults_arm(n);
	r = srdma_relay_create(&relay, &params);
	name = faults_disarm();
	if (name && r != -ENOMEM && r != -EIO)
		fail_msg("%s failed, and the result is %d", name, r);
	assert_int_equal(relay == NULL, r != 0);
	srdma_relay_destroy(relay);
	far->ops->destroy(far);
}

static void test_relay_is_created_or_not(void **state)
{
	(void)state;
	assert_true(faults_each(create, NULL) > 4);
}

/* --- data ------------------------------------------------------------------ */

static void transfer(void *ctx, unsigned long n)
{
	struct transfer t = { .done = 0 };
	const char *name;
	struct scene s;

	begin(&s, *(uint8_t *)ctx);
	transfer_post(&t, &s.p);
	faults_arm(n);
	pair_settle(&s.p);
	name = faults_disarm();
	transfer_finish(&t, &s.p, !name);
	pair_close(&s.p);
}

static void test_requests_complete_once(void **state)
{
	static const uint8_t modes[] = { SRDMA_MODE_BASIC, SRDMA_MODE_PD };

	(void)state;
	for (size_t i = 0; i < sizeof(modes); i++) {
		uint8_t mode = modes[i];

		assert_true(faults_each(transfer, &mode) > 50);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_relay_is_created_or_not),
		cmocka_unit_test(test_control_call_fails_and_is_repeated),
		cmocka_unit_test(test_requests_complete_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
