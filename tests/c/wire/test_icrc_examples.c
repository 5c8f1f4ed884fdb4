/* The invariant CRC of the datagrams of docs/worked-examples.md. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/addr.h"
#include "wire/icrc_examples.h"
#include "wire/icrc.h"

enum { PACKET = 256 };

static uint32_t unhex(uint8_t *out, uint32_t size, const char *hex)
{
	static const char digits[] = "0123456789abcdef";
	uint32_t n = 0;

	for (; hex[2 * n]; n++) {
		const char *high = strchr(digits, hex[2 * n]);
		const char *low = strchr(digits, hex[2 * n + 1]);

		assert_true(n < size && high && low);
		out[n] = (uint8_t)((high - digits) << 4 | (low - digits));
	}
	return n;
}

static void examples(void **state)
{
	uint8_t packet[PACKET], wanted[SRDMA_ICRC_LEN], got[SRDMA_ICRC_LEN];
	struct sockaddr_storage a, b;
	struct srdma_icrc c;

	(void)state;
	for (size_t i = 0; i < sizeof(icrc_examples) / sizeof(*icrc_examples);
	     i++) {
		uint32_t len =
			unhex(packet, sizeof(packet), icrc_examples[i].packet);

		assert_int_equal(srdma_addr_parse(&a, icrc_examples[i].from,
						  SRDMA_ADDR_NO_PORT),
				 0);
		assert_int_equal(srdma_addr_parse(&b, icrc_examples[i].to,
						  SRDMA_ADDR_NO_PORT),
				 0);
		assert_int_equal(
			unhex(wanted, sizeof(wanted), icrc_examples[i].icrc),
			sizeof(wanted));
		srdma_icrc_init(&c, (struct sockaddr *)&a,
				(struct sockaddr *)&b);
		srdma_icrc_compute(&c, packet, len, got);
		assert_memory_equal(got, wanted, sizeof(got));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(examples) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
