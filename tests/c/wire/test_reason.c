#include "wire/reason.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A second copy of the table of docs/protocol.md 13.1. */
static const struct {
	uint32_t code;
	const char *name;
	uint8_t nak, status;
} page[] = {
	{ 0, "NONE", 0, 0 },
	{ 1, "BAD_RKEY", 0x62, 10 },
	{ 2, "WRONG_PD", 0x62, 10 },
	{ 3, "OUT_OF_BOUNDS", 0x62, 10 },
	{ 4, "NO_RIGHT", 0x62, 10 },
	{ 5, "QP_SCOPE", 0x62, 10 },
	{ 6, "PROOF_REQUIRED", 0x62, 10 },
	{ 7, "PROOF_UNSUPPORTED", 0x61, 9 },
	{ 8, "TOO_MANY_READS", 0x61, 9 },
	{ 9, "RECV_TOO_SHORT", 0x61, 9 },
	{ 10, "MALFORMED", 0x61, 9 },
	{ 11, "UNSUPPORTED", 0x61, 9 },
	{ 12, "TARGET_DMA", 0x63, 11 },
	{ 13, "NO_RECV", 0x61, 9 },
	{ 14, "PROOF_WRONG", 0x62, 10 },
	{ 15, "PROOF_RANGE", 0x62, 10 },
	{ 16, "PROOF_EXPIRED", 0x62, 10 },
	{ 17, "MISALIGNED", 0x61, 9 },
	{ 20, "DEADLINE", 0, 20 },
	{ 21, "NO_RECV_CREDIT", 0, 13 },
	{ 22, "PEER_CLOSED", 0, 12 },
	{ 23, "PEER_HOST_GONE", 0, 12 },
	{ 24, "WIRE_LOST", 0, 12 },
	{ 25, "PEER_SILENT", 0, 20 },
	{ 26, "KEY_LIMIT", 0, 19 },
	{ 27, "FORGERY_LIMIT", 0, 19 },
	{ 28, "PEER_ERROR", 0, 16 },
	{ 29, "PROVIDER", 0, 19 },
	{ 30, "RECLAIMED", 0, 19 },
	{ 40, "FLUSHED", 0, 5 },
	{ 41, "WORKER_GONE", 0, 19 },
	{ 42, "LOCAL_KEY", 0, 4 },
	{ 43, "LOCAL_DMA", 0, 4 },
	{ 44, "BAD_DESCRIPTOR", 0, 2 },
	{ 45, "MESSAGE_TOO_LONG", 0, 1 },
	{ 46, "QUEUE_FULL", 0, 2 },
	{ 47, "QP_STATE", 0, 5 },
	{ 48, "BAD_CAPABILITY", 0, 8 },
};

static void test_table_of_reasons(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(page) / sizeof(page[0]); i++) {
		const struct srdma_reason_row *row = srdma_reason(page[i].code);

		assert_string_equal(row->name, page[i].name);
		assert_int_equal(row->nak, page[i].nak);
		assert_int_equal(row->status, page[i].status);
		assert_int_equal(row->close,
				 page[i].code >= 20 && page[i].code <= 29);
		assert_true(strlen(row->text) > 0);
		assert_memory_equal(row->counter, "reason_", 7);
		assert_string_equal(row->counter + 7, row->name);
	}
}

/* A peer may send any number: codes outside the table have no row. */
static void test_unknown_codes_have_no_row(void **state)
{
	size_t used = 0;

	(void)state;
	for (uint32_t code = 0; code < 1000; code++)
		used += srdma_reason(code)->name != NULL;
	assert_int_equal(used, sizeof(page) / sizeof(page[0]));
	assert_null(srdma_reason(UINT32_MAX)->name);
	assert_int_equal(srdma_reason(UINT32_MAX)->nak, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_of_reasons),
		cmocka_unit_test(test_unknown_codes_have_no_row),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
