/*
 * QPs that are opened repeatedly with the same numbers in one PD: only the
 * generation makes their keys differ (docs/protocol.md 3.4).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "wire/stats.h"
#include "support/traffic.h"

enum { LIVES = 100000, TAG = 16, TAG_AT = 20, BYTES = 8 };

static uint8_t (*tags)[TAG];

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, TAG);
}

/* Like a new handshake: never the same value again. */
static void set_generation(struct srdma_session_params *s, uint64_t life)
{
	srdma_store64(s->generation, life * 0x9e3779b97f4a7c15);
}

static void open_life(struct pair *pair, const struct protection *p,
		      uint64_t life)
{
	for (uint8_t role = 0; role < 2; role++) {
		struct srdma_session_params s = pair_params(p, role);

		set_generation(&s, life);
		assert_int_equal(srdma_session_create(&pair->end[role], &s), 0);
	}
}

/*
 * One generation: seals the first packet of each direction, with the same text
 * and number in all generations. A packet of the generation before is refused.
 */
static void live(const struct protection *p, uint64_t life, uint8_t *kept,
		 int *kept_len)
{
	struct pair pair;

	open_life(&pair, p, life);
	if (life) {
		memcpy(out, kept, (size_t)*kept_len);
		assert_int_equal(receive(pair.end[1], *kept_len),
				 -SRDMA_REFUSED_TAG);
	}
	for (int from = 0; from < 2; from++) {
		const int len = send(pair.end[from], 0, BYTES);

		assert_int_equal(receive(pair.end[!from], len), 0);
		memcpy(tags[2 * life + (uint64_t)from], out + TAG_AT, TAG);
		if (from == 0) {
			memcpy(kept, out, (size_t)len);
			*kept_len = len;
		}
	}
	pair_destroy(&pair);
}

/* Sorts the tags and compares neighbors. */
static void check_all_differ(size_t count)
{
	qsort(tags, count, TAG, compare);
	for (size_t i = 1; i < count; i++)
		assert_int_not_equal(compare(tags[i - 1], tags[i]), 0);
}

/* RFC 5042 X7; review A3 */
static void test_generations_have_different_keys(void **state)
{
	struct protection p = by_name("aes-128-gmac", SRDMA_LEVEL_PACKET);
	uint8_t kept[64];
	int kept_len = 0;

	(void)state;
	p.mode = SRDMA_MODE_PD;
	p.shared = 1; /* K_PD and all numbers stay the same */
	assert_int_equal(pair_open(2), 0);
	for (uint64_t life = 0; life < LIVES; life++)
		live(&p, life, kept, &kept_len);
	pair_close();
	check_all_differ(2 * LIVES);
}

/* Validates the check above: the same generation gives the same key. */
static void test_same_generation_has_same_key(void **state)
{
	struct protection p = gcm();
	uint8_t kept[64];

	(void)state;
	p.mode = SRDMA_MODE_PD;
	assert_int_equal(pair_open(2), 0);
	for (int i = 0; i < 2; i++) {
		struct pair pair;
		int len;

		open_life(&pair, &p, 7);
		len = send(pair.end[0], 0, BYTES);
		if (i)
			assert_memory_equal(kept, out, (size_t)len);
		memcpy(kept, out, (size_t)len);
		pair_destroy(&pair);
	}
	pair_close();
}

static int open_all(void **state)
{
	tags = calloc(2 * LIVES, TAG);
	return tags ? fill_text(state) : -1;
}

static int close_all(void **state)
{
	(void)state;
	free(tags);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_generations_have_different_keys),
		cmocka_unit_test(test_same_generation_has_same_key),
	};

	return cmocka_run_group_tests(tests, open_all, close_all);
}
