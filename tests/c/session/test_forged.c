/*
 * Forged packets in number: SRDMA_PACKETS of them (default 50,000) reach a
 * session between genuine ones. `make soak` runs 10^8.
 */
#include "session/session.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "support/traffic.h"
#include "wire/stats.h"

enum { RUN = 1000, LEN = 32, PSN_AT = 9, AHEAD = 1 << 16 };

static uint64_t forged_packets(void)
{
	const char *number = getenv("SRDMA_PACKETS");

	return number ? strtoull(number, NULL, 10) : 50000;
}

/* Another number that was not used yet, and another tag. */
static void forge(uint8_t *packet, int len, uint32_t psn, uint64_t serial)
{
	srdma_store24(packet + PSN_AT, (psn + 1 + serial % AHEAD) & 0xffffff);
	for (int i = 1; i <= 8; i++)
		packet[len - i] ^= (uint8_t)(serial >> 8 * (i - 1)) | 1;
}

/* RUN forged packets, then a genuine one, which is accepted. Returns the number
 * of forged packets that were not refused as such. */
static uint64_t a_run(struct pair *pair, uint64_t id)
{
	uint8_t genuine[SRDMA_MAX_PACKET];
	const int len = send(pair->end[0], id, LEN);
	const uint32_t psn = srdma_load24(out + PSN_AT);
	uint64_t wrong = 0;

	assert_in_range(len, SRDMA_BTH_LEN, SRDMA_MAX_PACKET);
	memcpy(genuine, out, (size_t)len);
	for (uint64_t i = 0; i < RUN; i++) {
		memcpy(out, genuine, (size_t)len);
		forge(out, len, psn, id * RUN + i);
		wrong += receive(pair->end[1], len) != -SRDMA_REFUSED_TAG;
	}
	memcpy(out, genuine, (size_t)len);
	assert_int_equal(receive(pair->end[1], len), 0);
	return wrong;
}

static void flood(struct protection p)
{
	struct pair pair;
	const uint64_t runs = forged_packets() / RUN;
	uint64_t wrong = 0;
	size_t before;

	assert_int_equal(pair_create(&pair, &p), 0);
	assert_int_equal(a_run(&pair, 1), 0);
	before = mallinfo2().uordblks;
	for (uint64_t i = 0; i < runs; i++)
		wrong += a_run(&pair, 2 + i);
	assert_int_equal(wrong, 0);
	assert_int_equal(mallinfo2().uordblks, before);
	pair_destroy(&pair);
}

/* RFC 5042 A6.4.4 */
static void test_forged_packets_take_no_memory(void **state)
{
	(void)state;
	flood(gcm());
}

/* With one key in the cache, which the sender's packets take. */
static void test_forged_packets_in_mode_pd(void **state)
{
	struct protection p = gcm();

	(void)state;
	p.mode = SRDMA_MODE_PD;
	assert_int_equal(pair_open(1), 0);
	flood(p);
	pair_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forged_packets_take_no_memory),
		cmocka_unit_test(test_forged_packets_in_mode_pd),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
