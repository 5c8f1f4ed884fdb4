/*
 * Datagrams that arrive as a train lie one behind the other (docs/protocol.md
 * 11a), so that a packet begins at any address. It is opened there by each
 * provider, in every suite and level.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "crypto/provider.h"
#include "support/traffic.h"

enum { OFFSETS = 16, ROOM = OFFSETS + SRDMA_MAX_PACKET };

/* Packets of different lengths, a short and a long one at each offset. The text
 * is written to another offset. */
static void open_at_offsets(const struct protection *p)
{
	static uint8_t room[ROOM], text_room[OFFSETS + SRDMA_MAX_PAYLOAD];
	struct pair pair;

	assert_int_equal(pair_create(&pair, p), 0);
	for (unsigned i = 0; i < 2 * OFFSETS; i++) {
		const uint32_t payload = (i & 1 ? 1000 : 33) + i;
		uint8_t *at = room + i / 2, *to = text_room + 15 - i / 2;
		const int len = send(pair.end[0], i, payload);
		struct srdma_packet got;

		assert_true(len > 0);
		memcpy(at, out, (size_t)len);
		assert_int_equal(srdma_session_open(pair.end[1], &got, at,
						    (size_t)len, to),
				 0);
		assert_int_equal(got.payload_len, payload);
		assert_memory_equal(to, text, payload);
	}
	pair_destroy(&pair);
}

static void test_packets_at_any_address(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++)
		open_at_offsets(&p);
	p = none();
	open_at_offsets(&p);
}

/* Runs the test with a provider, if this build and CPU have it. */
static int run(const char *name)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_packets_at_any_address),
	};
	int failed;

	if (srdma_provider_create(&pair_means.provider, name)) {
		print_message("%s does not run here\n", name);
		return 0;
	}
	failed = cmocka_run_group_tests_name(name, tests, fill_text, NULL);
	srdma_provider_destroy(pair_means.provider);
	pair_means.provider = NULL;
	return failed;
}

int main(void)
{
	return run("openssl") + run("ipsec-mb") + run("nettle");
}
