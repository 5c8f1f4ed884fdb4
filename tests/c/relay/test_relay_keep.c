/*
 * Data that an agent keeps for its sessions: KEEP and ADOPT of the control
 * socket (docs/local-interface.md 3.8).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { QPS = 4 };

static uint32_t qpn(const struct pair *p, int i)
{
	return p->side[0].qp[i].qpn;
}

/* Data of len bytes for the QPs i, ...; -1 ends the list, -2 is a place without
 * a QP. */
static struct srdma_keep keep_of(const struct pair *p, uint8_t byte,
				 uint32_t len, const int *qps)
{
	struct srdma_keep k = { .len = len };

	for (; *qps != -1; qps++)
		k.qpn[k.n++] = *qps < 0 ? 0 : qpn(p, *qps);
	memset(k.data, byte, len);
	return k;
}

#define KEEP_OF(p, byte, len, ...)                                             \
	keep_of(p, byte, len, (const int[]){ __VA_ARGS__, -1 })

static int keep(struct pair *p, const struct srdma_keep *k)
{
	return srdma_relay_keep(p->side[0].relay, k);
}

static void keep_ok(struct pair *p, struct srdma_keep k)
{
	assert_int_equal(keep(p, &k), 0);
}

#define KEPT(p, byte, len, ...) keep_ok(p, KEEP_OF(p, byte, len, __VA_ARGS__))

static int adopt(struct pair *p, uint64_t after, struct srdma_kept *out)
{
	return srdma_relay_adopt(p->side[0].relay, after, out);
}

/* The next data after this serial have one byte len times, for these QPs. */
static uint64_t expect(struct pair *p, uint64_t after, uint8_t byte,
		       uint32_t len, const int *qps)
{
	struct srdma_kept k;
	uint32_t n = 0;

	assert_int_equal(adopt(p, after, &k), 0);
	assert_true(k.serial > after);
	assert_int_equal(k.leg, srdma_relay_leg_id(p->side[0].leg));
	assert_int_equal(k.len, len);
	for (uint32_t i = 0; i < SRDMA_KEEP_MAX; i++)
		assert_int_equal(k.data[i], i < len ? byte : 0);
	for (; qps[2 * n] != -1; n++) {
		const struct srdma_qp_info *peer =
			&p->side[1].qp[qps[2 * n + 1]];

		assert_int_equal(k.qp[n].index, qps[2 * n]);
		assert_int_equal(k.qp[n].qpn, qpn(p, qps[2 * n + 1]));
		assert_int_equal(k.qp[n].peer_qpn, peer->qpn);
		assert_memory_equal(k.qp[n].peer_eid, peer->eid, SRDMA_EID_LEN);
	}
	assert_int_equal(k.n, n);
	return k.serial;
}

/* Pairs of index and QP. */
#define EXPECT(p, after, byte, len, ...)                                       \
	expect(p, after, byte, len, (const int[]){ __VA_ARGS__, -1 })

static void nothing(struct pair *p, uint64_t after)
{
	struct srdma_kept k;

	assert_int_equal(adopt(p, after, &k), -ENOENT);
}

static void open_(struct pair *p)
{
	pair_defaults(p);
	pair_open(p);
	for (int i = 0; i < QPS; i++)
		pair_connect(p, i);
}

static void expire(struct pair *p, int i)
{
	assert_int_equal(srdma_relay_qp_expire(p->side[0].relay, p->side[0].leg,
					       qpn(p, i)),
			 0);
}

static const struct srdma_keep_list *list(const struct pair *p)
{
	return &p->side[0].relay->kept;
}

static void test_kept_data_are_adopted_in_order(void **state)
{
	struct pair p;
	uint64_t at;

	(void)state;
	open_(&p);
	nothing(&p, 0);
	KEPT(&p, 0xaa, 1, 2);
	KEPT(&p, 0xbb, 1024, 3, 0);
	KEPT(&p, 0xcc, 77, 1);
	for (int again = 0; again < 2; again++) {
		at = EXPECT(&p, 0, 0xaa, 1, 0, 2);
		assert_int_equal(at, 1);
		at = EXPECT(&p, at, 0xbb, 1024, 0, 3, 1, 0);
		at = EXPECT(&p, at, 0xcc, 77, 0, 1);
		nothing(&p, at);
		nothing(&p, UINT64_MAX);
		EXPECT(&p, 1, 0xbb, 1024, 0, 3, 1, 0);
	}
	pair_close(&p);
}

static void test_later_data_replace_the_former(void **state)
{
	struct pair p;
	uint64_t at;

	(void)state;
	open_(&p);
	KEPT(&p, 1, 10, 0, 1, 2);
	EXPECT(&p, 0, 1, 10, 0, 0, 1, 1, 2, 2);
	KEPT(&p, 2, 10, 1);
	at = EXPECT(&p, 0, 1, 10, 0, 0, 2, 2);
	assert_int_equal(EXPECT(&p, at, 2, 10, 0, 1), 2);
	KEPT(&p, 3, 10, 2, 0, 1);
	assert_int_equal(EXPECT(&p, 0, 3, 10, 0, 2, 1, 0, 2, 1), 3);
	assert_ptr_equal(list(&p)->first, list(&p)->last);
	pair_close(&p);
}

/* A place without a QP keeps the indexes of the others. */
static void test_places_without_a_qp(void **state)
{
	struct srdma_keep k;
	struct pair p;

	(void)state;
	open_(&p);
	KEPT(&p, 1, 10, -2, 0, -2, 1);
	EXPECT(&p, 0, 1, 10, 1, 0, 3, 1);
	/* QPs that ended or are unknown are left out */
	expire(&p, 0);
	k = KEEP_OF(&p, 2, 10, 0, 2, 1);
	k.qpn[k.n++] = qpn(&p, 1) ^ 1;
	assert_int_equal(keep(&p, &k), 0);
	EXPECT(&p, 1, 2, 10, 1, 2, 2, 1);
	pair_close(&p);
}

static void test_ended_qps_are_not_adopted(void **state)
{
	struct pair p;
	uint64_t at;

	(void)state;
	open_(&p);
	KEPT(&p, 1, 10, 0, 1);
	KEPT(&p, 2, 10, 2);
	KEPT(&p, 3, 10, 3);
	expire(&p, 1);
	at = EXPECT(&p, 0, 1, 10, 0, 0);
	expire(&p, 2);
	EXPECT(&p, at, 3, 10, 0, 3);
	pair_close(&p);
}

/* The data are freed with the last QP, in any order, and the search goes on
 * after data that were found and are gone. */
static void test_data_are_freed_with_their_last_qp(void **state)
{
	struct pair p;
	uint64_t at;

	(void)state;
	for (int order = 0; order < 2; order++) {
		open_(&p);
		KEPT(&p, 1, 10, 0);
		KEPT(&p, 2, 10, 1, 2);
		KEPT(&p, 3, 10, 3);
		at = EXPECT(&p, 0, 1, 10, 0, 0);
		at = EXPECT(&p, at, 2, 10, 0, 1, 1, 2);
		pair_destroy_qp(&p, order ? 2 : 1);
		EXPECT(&p, 1, 2, 10, !order, order ? 1 : 2);
		pair_destroy_qp(&p, order ? 1 : 2);
		assert_ptr_not_equal(list(&p)->first, list(&p)->last);
		assert_int_equal(EXPECT(&p, at, 3, 10, 0, 3), 3);
		assert_int_equal(EXPECT(&p, 1, 3, 10, 0, 3), 3);
		pair_destroy_qp(&p, order ? 3 : 0);
		pair_destroy_qp(&p, order ? 0 : 3);
		assert_null(list(&p)->first);
		assert_null(list(&p)->last);
		assert_null(list(&p)->found);
		nothing(&p, 0);
		pair_close(&p);
	}
}

static void says(const struct pair *p, const char *text)
{
	const char *why = srdma_relay_why(p->side[0].relay);

	if (!strstr(why, text))
		fail_msg("\"%s\" is not in \"%s\"", text, why);
}

static void test_keep_refusals(void **state)
{
	struct srdma_keep good, k;
	struct pair p;

	(void)state;
	open_(&p);
	KEPT(&p, 1, 10, 0);
	good = KEEP_OF(&p, 2, 10, 0, 1);
#define REFUSED(err, text, ...)                                                \
	do {                                                                   \
		k = good;                                                      \
		__VA_ARGS__;                                                   \
		assert_int_equal(keep(&p, &k), err);                           \
		says(&p, text);                                                \
		EXPECT(&p, 0, 1, 10, 0, 0);                                    \
		nothing(&p, 1);                                                \
	} while (0)
	REFUSED(-EINVAL, "0 QPs", k.n = 0);
	REFUSED(-EINVAL, "257 QPs", k.n = 257);
	REFUSED(-EINVAL, "4294967295 QPs", k.n = UINT32_MAX);
	REFUSED(-EINVAL, "0 bytes", k.len = 0);
	REFUSED(-EINVAL, "1025 bytes", k.len = 1025);
	REFUSED(-EINVAL, "after the last one", k.data[10] = 1);
	REFUSED(-EINVAL, "after the last one", k.data[1023] = 1);
	REFUSED(-EINVAL, "after the last one", k.qpn[2] = 1);
	REFUSED(-EINVAL, "after the last one", k.qpn[255] = 1);
	REFUSED(-EINVAL, "twice", k.qpn[1] = k.qpn[0]);
	REFUSED(-ENOTCONN, "nothing is kept", k.qpn[0] = k.qpn[1] = 0);
	pair_init_qp(&p, QPS);
	REFUSED(-ENOTCONN, "no keys yet", k.qpn[1] = qpn(&p, QPS));
	expire(&p, 3);
	REFUSED(-ENOTCONN, "nothing is kept", k.n = 1, k.qpn[1] = 0,
		k.qpn[0] = qpn(&p, 3));
	pair_close(&p);
}

static struct srdma_leg *open_leg(struct pair *p)
{
	struct srdma_leg_params lp = { .ring = p->ring, .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct srdma_leg *leg;

	assert_int_equal(
		srdma_relay_leg_open(p->side[0].relay, &lp, &leg, &answer), 0);
	return leg;
}

/* The QPs of one KEEP are of one leg, which need not be the first. */
static void test_qps_of_two_legs(void **state)
{
	struct srdma_leg *first;
	struct srdma_keep k;
	struct srdma_kept found;
	struct pair p;

	(void)state;
	open_(&p);
	first = p.side[0].leg;
	p.side[0].leg = open_leg(&p);
	pair_connect(&p, QPS);
	k = KEEP_OF(&p, 1, 10, 0, QPS);
	assert_int_equal(keep(&p, &k), -EINVAL);
	says(&p, "of another leg");
	KEPT(&p, 1, 10, QPS);
	EXPECT(&p, 0, 1, 10, 0, QPS);
	/* the end of the leg is the end of its QPs */
	srdma_relay_leg_close(p.side[0].leg);
	nothing(&p, 0);
	p.side[0].leg = first;
	for (int i = 0; i < 2000 && list(&p)->first; i++)
		pair_wait_ms(&p, 1);
	assert_null(list(&p)->first);
	assert_int_equal(adopt(&p, 0, &found), -ENOENT);
	pair_close(&p);
}

static void test_level_none_keeps_nothing(void **state)
{
	struct srdma_keep k;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.suite = p.level = p.tag_len = 0;
	p.allow_unprotected = 1;
	pair_open(&p);
	pair_connect(&p, 0);
	k = KEEP_OF(&p, 1, 10, 0);
	assert_int_equal(keep(&p, &k), -EPERM);
	says(&p, "level none");
	nothing(&p, 0);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept_data_are_adopted_in_order),
		cmocka_unit_test(test_later_data_replace_the_former),
		cmocka_unit_test(test_places_without_a_qp),
		cmocka_unit_test(test_ended_qps_are_not_adopted),
		cmocka_unit_test(test_data_are_freed_with_their_last_qp),
		cmocka_unit_test(test_keep_refusals),
		cmocka_unit_test(test_qps_of_two_legs),
		cmocka_unit_test(test_level_none_keeps_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
