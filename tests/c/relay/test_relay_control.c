/* Control calls of the relay: what they refuse, and their error texts. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "relay/leg.h"
#include "support/inside.h"
#include "support/relay_pair.h"

#define SAYS(relay, text) assert_non_null(strstr(srdma_relay_why(relay), text))

static int open_leg(struct pair *p, uint32_t ring, struct srdma_leg **leg)
{
	struct srdma_leg_params lp = { .ring = ring, .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;

	return srdma_relay_leg_open(p->side[0].relay, &lp, leg, &answer);
}

/* RFC 5042 R2.2.4-3 */
static void test_legs(void **state)
{
	struct pair p;
	struct srdma_leg *leg, *first;
	struct srdma_relay *r;
	uint8_t token[SRDMA_TOKEN_LEN];

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	r = p.side[0].relay;
	assert_int_equal(open_leg(&p, 32, &leg), -EINVAL);
	SAYS(r, "power of two");
	assert_int_equal(open_leg(&p, 100, &leg), -EINVAL);
	assert_int_equal(open_leg(&p, 131072, &leg), -EINVAL);
	assert_int_equal(open_leg(&p, 64, &first), 0);
	assert_ptr_equal(srdma_relay_leg_by_id(r, srdma_relay_leg_id(first)),
			 first);
	memcpy(token, first->token, sizeof(token));
	assert_ptr_equal(srdma_relay_leg_by_token(r, token), first);
	token[15] ^= 1;
	assert_null(srdma_relay_leg_by_token(r, token));
	token[15] ^= 1;
	while (r->leg_count < SRDMA_MAX_LEGS)
		assert_int_equal(open_leg(&p, 64, &leg), 0);
	assert_int_equal(open_leg(&p, 64, &leg), -EDQUOT);
	SAYS(r, "2048 legs");
	srdma_relay_leg_close(first);
	assert_null(srdma_relay_leg_by_token(r, token));
	pair_settle(&p);
	assert_int_equal(open_leg(&p, 64, &leg), 0);
	pair_close(&p);
}

/* RFC 5042 R3-2 */
static void test_regions(void **state)
{
	struct pair p;
	struct srdma_relay *r;
	struct srdma_leg *leg;
	struct srdma_mr_params mp = { .region = { .fd = -1 } };
	uint32_t key, last = 0;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	r = p.side[0].relay;
	leg = p.side[0].leg;
	mp.region.addr = (uintptr_t)p.side[0].memory;
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &key), -EINVAL);
	SAYS(r, "empty");
	mp.region.length = UINT64_MAX;
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &key), -EINVAL);
	mp.region.length = 4096;
	mp.region.access = 16;
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &key), -ENOTSUP);
	SAYS(r, "REMOTE_ATOMIC 8");
	mp.region.access = SRDMA_ACCESS_REMOTE_WRITE;
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &key), -EINVAL);
	SAYS(r, "LOCAL_WRITE");
	mp.region.access = SRDMA_ACCESS_REMOTE_ATOMIC;
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &key), -EINVAL);
	SAYS(r, "REMOTE_ATOMIC need LOCAL_WRITE");
	mp.region.access = SRDMA_ACCESS_ALL;
	while (leg->mrs < SRDMA_MAX_MRS) {
		assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &key), 0);
		assert_int_not_equal(key, last);
		last = key;
	}
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &last), -EDQUOT);
	SAYS(r, "4096 regions");
	assert_int_equal(srdma_relay_mr_dereg(r, leg, key), 0);
	assert_int_equal(srdma_relay_mr_dereg(r, leg, key), -ENOENT);
	assert_int_equal(srdma_relay_mr_reg(r, leg, &mp, &last), 0);
	assert_int_equal(
		srdma_relay_mr_dereg(p.side[1].relay, p.side[1].leg, last),
		-ENOENT);
	pair_close(&p);
}

static void test_qps(void **state)
{
	static const struct {
		struct srdma_qp_params params;
		int err;
		const char *says;
	} rows[] = {
		{ { .sq = 0, .rq = 1 }, -EINVAL, "1..4096" },
		{ { .sq = 1, .rq = 0 }, -EINVAL, "1..4096" },
		{ { .sq = 4097, .rq = 1 }, -EINVAL, "1..4096" },
		{ { .sq = 1, .rq = 1, .timeout_ms = 600001 },
		  -EINVAL,
		  "600000" },
		{ { .sq = 1, .rq = 1, .mtu = 255 }, -EINVAL, "256..4096" },
		{ { .sq = 1, .rq = 1, .mtu = 4097 }, -EINVAL, "256..4096" },
		{ { .sq = 512, .rq = 512 }, -ENOSPC, "larger ring" },
	};
	struct srdma_qp_info info;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(srdma_relay_qp_init(p.side[0].relay,
						     p.side[0].leg,
						     &rows[i].params, &info),
				 rows[i].err);
		SAYS(p.side[0].relay, rows[i].says);
	}
	assert_int_equal(p.side[0].relay->qp_count, 0);
	pair_close(&p);
}

static int init_qp(struct pair *p, uint32_t depth, struct srdma_qp_info *info)
{
	const struct srdma_qp_params params = { .sq = depth, .rq = depth };

	return srdma_relay_qp_init(p->side[0].relay, p->side[0].leg, &params,
				   info);
}

static void test_limit_of_qps(void **state)
{
	struct srdma_qp_info info, more;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.qps = 3;
	pair_open(&p);
	for (int i = 0; i < 3; i++)
		assert_int_equal(init_qp(&p, 1, &info), 0);
	assert_int_equal(init_qp(&p, 1, &more), -EDQUOT);
	SAYS(p.side[0].relay, "limit of 3 QPs");
	assert_int_equal(srdma_relay_qp_destroy(p.side[0].relay, p.side[0].leg,
						info.qpn),
			 0);
	assert_int_equal(init_qp(&p, 1, &more), 0);
	pair_close(&p);
}

/* Each QP reserves the records that it may need in the leg's ring. */
/* RFC 5042 R6.4.3.2-1, R6.4.3.2-3, R6.4.3.2-4, A6.4.3.2a */
static void test_qps_share_completion_ring(void **state)
{
	struct srdma_qp_info first, last;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	assert_int_equal(init_qp(&p, 250, &first), 0); /* 501 records */
	assert_int_equal(init_qp(&p, 262, &last), -ENOSPC);
	assert_int_equal(init_qp(&p, 261, &last), 0); /* 1024 in all */
	assert_int_equal(init_qp(&p, 1, &last), -ENOSPC);
	SAYS(p.side[0].relay, "larger ring");
	assert_int_equal(srdma_relay_qp_destroy(p.side[0].relay, p.side[0].leg,
						first.qpn),
			 0);
	assert_int_equal(init_qp(&p, 250, &last), 0);
	pair_close(&p);
}

/* Number of different values among n. */
static int distinct(const uint32_t *values, int n)
{
	int count = 0;

	for (int i = 0; i < n; i++) {
		int j = 0;

		while (j < i && values[j] != values[i])
			j++;
		count += j == i;
	}
	return count;
}

/*
 * A peer cannot guess rkeys, QP numbers and first packet numbers from others.
 * Of 100 random bytes at least 70 differ, and of 100 random numbers of 7 bits
 * at least 55.
 */
/* RFC 5042 R5.1.1-1, R6.1.1-4 */
static void test_names_are_random(void **state)
{
	enum { N = 100 };
	struct srdma_mr_params mp = { .region = { .length = 4096,
						  .access = SRDMA_ACCESS_ALL,
						  .fd = -1 } };
	uint32_t keys[2][N], qpns[2][N], pns[2][N];
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	mp.region.addr = (uintptr_t)p.side[0].memory;
	for (int i = 0; i < N; i++) {
		struct srdma_qp_info info;
		uint32_t key;

		assert_int_equal(srdma_relay_mr_reg(p.side[0].relay,
						    p.side[0].leg, &mp, &key),
				 0);
		assert_int_equal(init_qp(&p, 1, &info), 0);
		keys[0][i] = key & 0xff;
		keys[1][i] = key >> 24;
		qpns[0][i] = info.qpn & 0xff;
		qpns[1][i] = info.qpn >> 16;
		pns[0][i] = (uint32_t)info.pn & 0xff;
		pns[1][i] = (uint32_t)info.pn >> 16 & 0x7f;
	}
	for (int i = 0; i < 2; i++) {
		assert_in_range(distinct(keys[i], N), 70, 95);
		assert_in_range(distinct(qpns[i], N), 70, 95);
		assert_in_range(distinct(pns[i], N), i ? 55 : 70, 95);
	}
	pair_close(&p);
}

/* The QPNs of a process have its number as their remainder. With 5,000,000
 * processes the last QPNs belong to the first ones. */
static void test_processes_share_no_qpn(void **state)
{
	enum { N = 100 };
	static const uint32_t rows[][2] = {
		{ 5, 0 },	{ 5, 1 },	{ 5, 2 },
		{ 5, 3 },	{ 5, 4 },	{ 64, 63 },
		{ 5000000, 0 }, { 5000000, 1 }, { 5000000, 4999999 },
	};

	(void)state;
	for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
		uint32_t qpns[N];
		struct pair p;

		pair_defaults(&p);
		p.qps = 1;
		p.processes = rows[k][0];
		p.process = rows[k][1];
		pair_open(&p);
		for (int i = 0; i < N; i++) {
			struct srdma_qp_info info;

			assert_int_equal(init_qp(&p, 1, &info), 0);
			assert_in_range(info.qpn, 1, 0xffffff);
			assert_int_equal(info.qpn % p.processes, p.process);
			qpns[i] = info.qpn;
			assert_int_equal(srdma_relay_qp_destroy(p.side[0].relay,
								p.side[0].leg,
								info.qpn),
					 0);
		}
		assert_in_range(distinct(qpns, N), k < 6 ? 95 : 3, N);
		pair_close(&p);
	}
}

/* A leg has no access to the regions and QPs of another leg. */
/* RFC 5042 R3-1, R7.1-1 */
static void test_other_leg_is_refused(void **state)
{
	const struct pair_region region = {
		.len = 4096,
		.access = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
		.log2_block = 6,
		.depth = 48,
	};
	struct srdma_cap_params cap = { .length = 64,
					.rights = SRDMA_MEMKEY_READ };
	struct srdma_revoke_params all = { .offset = 0 };
	struct srdma_capability out;
	struct srdma_leg *other;
	struct srdma_relay *r;
	struct srdma_desc d = { .opcode = SRDMA_DESC_RECV, .length = 0 };
	uint8_t slot[SRDMA_DESC_SLOT];
	uint64_t ticket;
	uint32_t reason;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.mode = SRDMA_MODE_MEM;
	pair_open(&p);
	pair_connect(&p, 0);
	r = p.side[0].relay;
	assert_int_equal(open_leg(&p, 64, &other), 0);
	cap.key = all.key = pair_register(&p, 0, region);
	assert_int_equal(srdma_relay_mr_capability(r, other, &cap, &out),
			 -ENOENT);
	assert_int_equal(srdma_relay_mr_revoke(r, other, &all, &ticket),
			 -ENOENT);
	assert_int_equal(srdma_relay_mr_dereg(r, other, cap.key), -ENOENT);
	assert_int_equal(srdma_relay_mr_dereg(r, p.side[0].leg, cap.key), 0);
	d.qpn = p.side[0].qp[0].qpn;
	assert_int_equal(srdma_relay_qp_state(r, other, d.qpn, &reason),
			 -ENOENT);
	assert_int_equal(srdma_relay_qp_expire(r, other, d.qpn), -ENOENT);
	assert_int_equal(srdma_relay_qp_destroy(r, other, d.qpn), -ENOENT);
	for (int i = 0; i < 65; i++) { /* more than its RQ holds */
		assert_int_equal(
			srdma_port_mem_post(other->conn, slot,
					    srdma_desc_encode(slot, &d)),
			0);
		pair_settle(&p);
	}
	d.opcode = 0xff; /* a descriptor that cannot be decoded */
	assert_int_equal(srdma_port_mem_post(other->conn, slot,
					     srdma_desc_encode(slot, &d)),
			 0);
	pair_settle(&p);
	assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_RTS);
	pair_close(&p);
}

static void test_keys(void **state)
{
	struct srdma_qp_keys good, k;
	struct srdma_relay *r;
	struct srdma_leg *leg;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	r = p.side[0].relay;
	leg = p.side[0].leg;
	pair_keys(&p, 0, 0, &good);
#define REFUSED(err, text, ...)                                                \
	do {                                                                   \
		k = good;                                                      \
		__VA_ARGS__;                                                   \
		assert_int_equal(srdma_relay_qp_keys(r, leg, &k), err);        \
		SAYS(r, text);                                                 \
		assert_int_equal(pair_state(&p, 0, 0, NULL), SRDMA_QP_INIT);   \
	} while (0)
	REFUSED(-ENOENT, "no QP", k.qpn ^= 1);
	REFUSED(-EINVAL, "role", k.role = 2);
	REFUSED(-EINVAL, "limits", k.peer_mtu = 255);
	REFUSED(-EINVAL, "limits", k.peer_mtu = 4097);
	REFUSED(-EINVAL, "limits", k.peer_window = 0);
	REFUSED(-EINVAL, "limits", k.peer_window = 1025);
	REFUSED(-EINVAL, "limits", k.peer_reads = 0);
	REFUSED(-EINVAL, "limits", k.peer_reads = 129);
	REFUSED(-EINVAL, "2^23", k.peer_pn = 5);
	REFUSED(-EINVAL, "2^23", k.peer_pn = 1 << 24);
	REFUSED(-ENOTSUP, "not in this version", k.suite = 0x08);
	REFUSED(-ENOTSUP, "not in this version", k.mode = 4);
	REFUSED(-EINVAL, "outside the protocol", k.secret_len = 0);
	REFUSED(-EINVAL, "outside the protocol", k.tag_len = 12);
	REFUSED(-EPERM, "--allow-unprotected", k.level = 0; k.suite = 0;
		k.tag_len = 0; k.secret_len = 0);
	REFUSED(-ECONNREFUSED, "wire to", strcpy(k.peer_wire, "no-such-peer"));
	assert_int_equal(srdma_relay_qp_keys(r, leg, &good), 0);
	assert_int_equal(srdma_relay_qp_keys(r, leg, &good), -EISCONN);
	SAYS(r, "already");
	pair_close(&p);
}

/* RFC 5042 R7.2-1, A7.2 */
static void test_relay_params(void **state)
{
	static const struct srdma_relay_params rows[] = {
		{ .mtu = 255, .window = 1, .reads = 1 },
		{ .mtu = 4097, .window = 1, .reads = 1 },
		{ .mtu = 4096, .window = 0, .reads = 1 },
		{ .mtu = 4096, .window = 1025, .reads = 1 },
		{ .mtu = 4096, .window = 1, .reads = 0 },
		{ .mtu = 4096, .window = 1, .reads = 129 },
		{ .mtu = 4096, .window = 1, .reads = 1, .key_cache = 65537 },
		{ .mtu = 4096, .window = 1, .reads = 1, .process = 1 },
		{ .mtu = 4096,
		  .window = 1,
		  .reads = 1,
		  .processes = 3,
		  .process = 3 },
		{ .mtu = 4096,
		  .window = 1,
		  .reads = 1,
		  .processes = 16,
		  .qps = SRDMA_MAX_WORKER_QPS / 16 + 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_relay_params rp = rows[i];
		struct srdma_relay *r;
		struct srdma_port *other;

		assert_int_equal(
			srdma_port_mem_wire_pair(&rp.wire, &other, NULL), 0);
		assert_int_equal(srdma_port_mem_host(&rp.host, NULL), 0);
		assert_int_equal(srdma_relay_create(&r, &rp), -EINVAL);
		other->ops->destroy(other);
	}
	srdma_relay_destroy(NULL);
}

/* Unbound connections are limited in number and are closed after a while. */
static void test_unbound_connection_is_closed(void **state)
{
	struct srdma_relay *r;
	struct srdma_conn *conn;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	r = p.side[1].relay;
	assert_int_equal(
		p.side[0].wire->ops->connect(p.side[0].wire, "b", &conn), 0);
	pair_settle(&p);
	assert_non_null(r->env.paths->paths);
	pair_wait_ms(&p, 10001);
	assert_null(r->env.paths->paths);
	pair_close(&p);
}

/* A relay never announces a larger window than it can buffer. */
static void test_announced_window_fits_buffers(void **state)
{
	static const struct {
		uint32_t bufs, asked, told;
	} windows[] = {
		{ 1024, 512, 480 }, { 1024, 128, 128 }, { 256, 512, 96 },
		{ 256, 96, 96 },    { 80, 512, 16 },	{ 80, 9, 9 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(windows) / sizeof(*windows); i++) {
		struct pair p;

		pair_defaults(&p);
		p.window = windows[i].asked;
		p.host[0].bufs = windows[i].bufs;
		pair_open(&p);
		pair_connect(&p, 0);
		assert_int_equal(p.side[0].qp[0].window, windows[i].told);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_legs),
		cmocka_unit_test(test_regions),
		cmocka_unit_test(test_qps),
		cmocka_unit_test(test_limit_of_qps),
		cmocka_unit_test(test_qps_share_completion_ring),
		cmocka_unit_test(test_names_are_random),
		cmocka_unit_test(test_processes_share_no_qpn),
		cmocka_unit_test(test_other_leg_is_refused),
		cmocka_unit_test(test_keys),
		cmocka_unit_test(test_relay_params),
		cmocka_unit_test(test_unbound_connection_is_closed),
		cmocka_unit_test(test_announced_window_fits_buffers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
