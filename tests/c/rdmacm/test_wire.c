/* Messages of RDMA-CM (docs/run.md 5). */
#include "rdmacm/wire.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const struct cm_message full = {
	.kind = CM_REPLY,
	.qp_num = 0x123456,
	.responder_resources = 1,
	.initiator_depth = 2,
	.flow_control = 3,
	.retry_count = 4,
	.rnr_retry_count = 5,
	.srq = 6,
	.private_len = 3,
	.private_data = { 'a', 'b', 'c' },
};

static void test_bytes(void **state)
{
	static const uint8_t want[] = { 1, 2, 0, 0, 0, 0x12, 0x34, 0x56, 1,  2,
					3, 4, 5, 6, 0, 0,    'a',  'b',	 'c' };
	uint8_t out[CM_MESSAGE_MAX];
	struct cm_message m;

	(void)state;
	assert_int_equal(cm_wire_write(out, &full), sizeof(want));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(cm_wire_read(&m, out, sizeof(want)), 0);
	assert_memory_equal(&m, &full, sizeof(m));
}

static void test_bytes_of_ud(void **state)
{
	static const struct cm_message reply = {
		.kind = CM_UD_REPLY,
		.qp_num = 0x123456,
		.qkey = 0x789abcde,
		.private_len = 1,
		.private_data = { 'a' },
	};
	static const uint8_t want[] = { 1,    7,    0,	  0,	0,    0x12,
					0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde,
					0,    0,    0,	  0,	'a' };
	uint8_t out[CM_MESSAGE_MAX];
	struct cm_message m;

	(void)state;
	assert_int_equal(cm_wire_write(out, &reply), sizeof(want));
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(cm_wire_read(&m, out, sizeof(want)), 0);
	assert_memory_equal(&m, &reply, sizeof(m));
}

static void test_reason(void **state)
{
	const struct cm_message reject = { .kind = CM_REJECT, .reason = 28 };
	uint8_t out[CM_MESSAGE_MAX];
	struct cm_message m;

	(void)state;
	assert_int_equal(cm_wire_write(out, &reject), CM_HEAD);
	assert_int_equal(cm_wire_read(&m, out, CM_HEAD), 0);
	assert_int_equal(m.reason, 28);
}

enum { AT_QP_NUM = 4 };

static void test_versions_and_kinds(void **state)
{
	uint8_t in[CM_HEAD] = { [AT_QP_NUM] = 0, 0, 0, 1 };
	struct cm_message m;

	(void)state;
	for (unsigned version = 0; version < 256; version++)
		for (unsigned kind = 0; kind < 256; kind++) {
			in[0] = (uint8_t)version;
			in[1] = (uint8_t)kind;
			assert_int_equal(cm_wire_read(&m, in, sizeof(in)),
					 version == 1 && kind >= CM_REQUEST &&
							 kind <= CM_UD_REPLY
						 ? 0
						 : -EPROTO);
		}
}

static void test_lengths(void **state)
{
	static const struct {
		uint8_t kind;
		size_t most;
	} kinds[] = { { CM_REQUEST, 56 },  { CM_REPLY, 196 },
		      { CM_REJECT, 148 },  { CM_CONFIRM, 0 },
		      { CM_DEPART, 0 },	   { CM_UD_REQUEST, 180 },
		      { CM_UD_REPLY, 136 } };
	uint8_t in[CM_HEAD + 256] = { CM_VERSION, [AT_QP_NUM] = 0, 0, 0, 1 };
	struct cm_message m;

	(void)state;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		in[1] = kinds[i].kind;
		for (size_t len = 0; len <= sizeof(in); len++) {
			const int legal = len >= CM_HEAD &&
					  len <= CM_HEAD + kinds[i].most;

			assert_int_equal(cm_wire_read(&m, in, len),
					 legal ? 0 : -EPROTO);
			if (legal)
				assert_int_equal(m.private_len, len - CM_HEAD);
		}
	}
}

static void expect_read(const uint8_t *in, int result)
{
	struct cm_message m;

	assert_int_equal(cm_wire_read(&m, in, CM_HEAD), result);
}

/* Fields of requests and replies at their limits, and beyond them. */
static void test_ranges(void **state)
{
	static const struct {
		size_t at;
		uint8_t most;
	} fields[] = { { 8, 16 }, { 9, 16 }, { 11, 7 }, { 12, 7 } };
	uint8_t in[CM_MESSAGE_MAX];
	struct cm_message m = full;

	(void)state;
	m.private_len = 0;
	for (m.kind = CM_REQUEST; m.kind <= CM_REPLY; m.kind++) {
		for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
			for (unsigned value = 0; value < 256; value++) {
				cm_wire_write(in, &m);
				in[fields[i].at] = (uint8_t)value;
				expect_read(in, value <= fields[i].most
							? 0
							: -EPROTO);
			}
	}
}

static void test_qpns(void **state)
{
	static const enum cm_kind kinds[] = { CM_REQUEST, CM_REPLY,
					      CM_UD_REPLY };
	static const struct {
		uint32_t qpn;
		int result;
	} qpns[] = { { 0, -EPROTO },
		     { 1, 0 },
		     { 0xffffff, 0 },
		     { 0x1000000, -EPROTO },
		     { UINT32_MAX, -EPROTO } };
	uint8_t in[CM_MESSAGE_MAX];

	(void)state;
	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++)
		for (size_t i = 0; i < sizeof(qpns) / sizeof(*qpns); i++) {
			const struct cm_message m = { .kind = kinds[k],
						      .qp_num = qpns[i].qpn };

			cm_wire_write(in, &m);
			expect_read(in, qpns[i].result);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_bytes_of_ud),
		cmocka_unit_test(test_reason),
		cmocka_unit_test(test_versions_and_kinds),
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_qpns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
