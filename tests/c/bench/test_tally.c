/*
 * The benchmark ladder's check of its measurement (bench/tally.h), with relay
 * counters set by hand: it reports packets that were not protected as expected.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "rung.h"
#include "tally.h"

enum { N = 64, ACKS = 3 };

static struct pair p;
static const char *complaint;

/* Keeps the first report; in the ladder it would end the run. */
void wrong(const char *rung, const char *what)
{
	assert_string_equal(rung, "a rung");
	if (!complaint)
		complaint = what;
}

static struct srdma_stats *stats(int side)
{
	return &p.side[side].relay->env.stats;
}

static int set_up(void **state)
{
	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	pair_close(&p);
	return 0;
}

/*
 * Numbers of packets, by the side that counts them: side 0 sends `sealed` and
 * side 1 accepts `verified`; side 1 sends `answered` back and side 0 accepts
 * `heard`.
 */
struct moved {
	uint64_t sealed, verified, answered, heard;
};

struct row {
	struct moved secure, bare;
	const char *none, *aead; /* report expected at these levels */
};

#define ALL                                                                    \
	{                                                                      \
		N, N, ACKS, ACKS                                               \
	}
#define NOT_BARE   "not all packets were unprotected"
#define NOT_SECURE "not all packets were sealed and verified"

static const struct row rows[] = {
	{ .secure = ALL, .none = NOT_BARE },
	{ .bare = ALL, .aead = NOT_SECURE },
	{ .secure = { N + 1, N + 1, N, N }, .none = NOT_BARE },
	{ .none = NOT_BARE, .aead = NOT_SECURE },
	{ ALL, { 1, 0, 0, 0 }, NOT_BARE, NOT_SECURE },
	{ ALL, { 0, 1, 0, 0 }, NOT_BARE, NOT_SECURE },
	{ ALL, { 0, 0, 1, 0 }, NOT_BARE, NOT_SECURE },
	{ ALL, { 0, 0, 0, 1 }, NOT_BARE, NOT_SECURE },
	{ { 1, 0, 0, 0 }, ALL, NOT_BARE, NOT_SECURE },
	{ { 0, 0, 0, 1 }, ALL, NOT_BARE, NOT_SECURE },
	{ { N - 1, N, ACKS, ACKS }, { 0 }, NOT_BARE, NOT_SECURE },
	{ { N, N - 1, ACKS, ACKS }, { 0 }, NOT_BARE, NOT_SECURE },
	{ { N, N, 0, ACKS }, { 0 }, NOT_BARE, NOT_SECURE },
	{ { N, N, ACKS, 0 }, { 0 }, NOT_BARE, NOT_SECURE },
	{ { 0 }, { N, N - 1, ACKS, ACKS }, NOT_BARE, NOT_SECURE },
	{ { 0 }, { N, N, ACKS, 0 }, NOT_BARE, NOT_SECURE },
};

static void move(const struct row *row)
{
	stats(0)->packets_sealed += row->secure.sealed;
	stats(1)->packets_verified += row->secure.verified;
	stats(1)->packets_sealed += row->secure.answered;
	stats(0)->packets_verified += row->secure.heard;
	stats(0)->packets_unprotected_sent += row->bare.sealed;
	stats(1)->packets_unprotected_received += row->bare.verified;
	stats(1)->packets_unprotected_sent += row->bare.answered;
	stats(0)->packets_unprotected_received += row->bare.heard;
}

static void check(const struct row *row, uint8_t level, const char *expected)
{
	struct tally t;

	p.level = level;
	complaint = NULL;
	tally_begin(&t, &p);
	move(row);
	tally_check(&t, &p, "a rung", N);
	if (expected)
		assert_string_equal(complaint, expected);
	else
		assert_null(complaint);
}

static void test_unexpected_protection_is_reported(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		check(&rows[i], SRDMA_LEVEL_NONE, rows[i].none);
		check(&rows[i], SRDMA_LEVEL_AEAD, rows[i].aead);
	}
}

/*
 * Adds `tags` packets refused because of the tag, and `others` refused as
 * replays. Returns 1 if the check accepts these counts.
 */
static int refused(uint64_t tags, uint64_t others)
{
	struct tally t;

	complaint = NULL;
	tally_begin(&t, &p);
	stats(1)->refused[SRDMA_REFUSED_TAG] += tags;
	stats(1)->refused[SRDMA_REFUSED_REPLAY] += others;
	tally_check_refused(&t, &p, "a rung", SRDMA_REFUSED_TAG, N);
	return !complaint;
}

static void test_unexpected_refusals_are_reported(void **state)
{
	(void)state;
	assert_true(refused(N, 0));
	assert_false(refused(N - 1, 0));
	assert_false(refused(N + 1, 0));
	assert_false(refused(N - 1, 1));
	assert_false(refused(N, 1));
	assert_true(refused(N, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_unexpected_protection_is_reported, set_up,
			tear_down),
		cmocka_unit_test_setup_teardown(
			test_unexpected_refusals_are_reported, set_up,
			tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
