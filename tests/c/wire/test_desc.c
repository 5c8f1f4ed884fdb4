#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/wire.h"

static const struct srdma_desc sample = {
	.opcode = SRDMA_DESC_WRITE_IMM,
	.flags = SRDMA_DESC_SIGNALED | SRDMA_DESC_FENCE,
	.qpn = 0x00123456,
	.id = 0x1122334455667788,
	.consumed = 0xfffffff0,
	.length = 300,
	.local_addr = 0x7f0000001000,
	.local_key = 0xa1b2c3d4,
	.rkey = 0x01020304,
	.remote_addr = 0x7f0000002000,
	.imm = 0xcafebabe,
	.capability = 0x0badcab1,
};

/* Decodes a copy that fills its allocation exactly, for ASan. */
static int decode(struct srdma_desc *d, const uint8_t *in, size_t len)
{
	uint8_t *copy = malloc(len + !len);
	int r;

	assert_non_null(copy);
	memcpy(copy, in, len);
	r = srdma_desc_decode(d, copy, len);
	free(copy);
	return r;
}

static void assert_same(const struct srdma_desc *a, const struct srdma_desc *b)
{
	assert_int_equal(a->opcode, b->opcode);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->qpn, b->qpn);
	assert_int_equal(a->id, b->id);
	assert_int_equal(a->consumed, b->consumed);
	assert_int_equal(a->length, b->length);
	assert_int_equal(a->local_addr, b->local_addr);
	assert_int_equal(a->local_key, b->local_key);
	assert_int_equal(a->rkey, b->rkey);
	assert_int_equal(a->remote_addr, b->remote_addr);
	assert_int_equal(a->imm, b->imm);
	assert_int_equal(a->capability, b->capability);
	assert_int_equal(a->swap_add, b->swap_add);
	assert_int_equal(a->compare, b->compare);
}

/* The bytes of the table of docs/local-interface.md 2.1. */
static void test_descriptor_bytes(void **state)
{
	static const uint8_t want[SRDMA_DESC_LEN] =
		"\x02\x03\x00\x00\x00\x12\x34\x56"
		"\x11\x22\x33\x44\x55\x66\x77\x88"
		"\xff\xff\xff\xf0\x00\x00\x01\x2c"
		"\x00\x00\x7f\x00\x00\x00\x10\x00"
		"\xa1\xb2\xc3\xd4\x01\x02\x03\x04"
		"\x00\x00\x7f\x00\x00\x00\x20\x00"
		"\xca\xfe\xba\xbe\x0b\xad\xca\xb1";
	uint8_t out[SRDMA_DESC_LEN];
	struct srdma_desc d;

	(void)state;
	memset(out, 0xee, sizeof(out));
	srdma_desc_encode(out, &sample);
	assert_memory_equal(out, want, sizeof(want));
	assert_int_equal(decode(&d, out, sizeof(out)), 0);
	assert_same(&d, &sample);
}

static void test_illegal_descriptors_are_refused(void **state)
{
	static const struct {
		int at, value, len, want;
	} rows[] = {
		{ 0, 0, 64, -EPROTO },	     { 0, 6, 64, -EPROTO },
		{ 0, 15, 64, -EPROTO },	     { 0, 18, 64, -EPROTO },
		{ 0, 255, 64, -EPROTO },     { 1, 0x08, 64, -EPROTO },
		{ 1, 0x80, 64, -EPROTO },    { 2, 1, 79, -EPROTO },
		{ 3, 1, 64, -EPROTO },	     { 56, 1, 64, -EPROTO },
		{ 58, 1, 64, -EPROTO },	     { 63, 1, 64, -EPROTO },
		{ 0, 1, 63, -EPROTO },	     { 0, 1, 0, -EPROTO },
		{ 0, 1, 513, -EPROTO },	     { 0, 1, 512, 0 },
		{ 1, 0x04, 64, -EPROTO },    { 1, 0x04, 363, -EPROTO },
		{ 1, 0x04, 364, 0 },	     { 20, 0x40, 64, -EMSGSIZE },
		{ 20, 0xff, 64, -EMSGSIZE }, { 20, 0x3f, 64, 0 },
	};
	uint8_t in[SRDMA_DESC_SLOT + 1] = { 0 };
	struct srdma_desc d;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		srdma_desc_encode(in, &sample);
		in[rows[i].at] = (uint8_t)rows[i].value;
		assert_int_equal(decode(&d, in, (size_t)rows[i].len),
				 rows[i].want);
	}
}

/* INLINE is legal only where the NIC would read host memory. */
static void test_inline_needs_local_source(void **state)
{
	static const struct {
		uint8_t opcode;
		int want;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0 },	{ SRDMA_DESC_WRITE_IMM, 0 },
		{ SRDMA_DESC_READ, -EPROTO },	{ SRDMA_DESC_SEND, 0 },
		{ SRDMA_DESC_SEND_IMM, 0 },	{ SRDMA_DESC_RECV, -EPROTO },
		{ SRDMA_DESC_CREDIT, -EPROTO },
	};
	uint8_t in[SRDMA_DESC_SLOT] = { 0 };
	struct srdma_desc d;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		d = sample;
		d.capability = 0;
		d.opcode = rows[i].opcode;
		d.length = SRDMA_MAX_INLINE;
		srdma_desc_encode(in, &d);
		assert_int_equal(decode(&d, in, sizeof(in)), 0);
		d.flags = SRDMA_DESC_INLINE;
		srdma_desc_encode(in, &d);
		assert_int_equal(decode(&d, in, sizeof(in)), rows[i].want);
		d.length++;
		srdma_desc_encode(in, &d);
		assert_int_equal(decode(&d, in, sizeof(in)), -EPROTO);
	}
}

/* An SGL is legal where the request has local memory of any length, and where
 * the slot holds it. */
static void test_sgl(void **state)
{
	static const struct srdma_sge sgl[SRDMA_MAX_SGES] = {
		{ 0x1122334455667788, 5, 0xa1b2c3d4 }, { 9, 7, 3 }
	};
	static const uint8_t first[] = "\x11\x22\x33\x44\x55\x66\x77\x88"
				       "\x00\x00\x00\x05\xa1\xb2\xc3\xd4";
	static const struct {
		uint8_t opcode, flags, sges;
		uint32_t length;
		size_t len;
		int want;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0, 1, 5, 80, 0 },
		{ SRDMA_DESC_WRITE, 0, 1, 5, 79, -EPROTO },
		{ SRDMA_DESC_WRITE, 0, 1, 4, 80, -EPROTO },
		{ SRDMA_DESC_WRITE, 0, 2, 12, 96, 0 },
		{ SRDMA_DESC_WRITE, 0, 2, 12, 95, -EPROTO },
		{ SRDMA_DESC_WRITE, 0, 2, 13, 96, -EPROTO },
		{ SRDMA_DESC_WRITE_IMM, 0, 2, 12, 512, 0 },
		{ SRDMA_DESC_READ, 0, 28, 12, 512, 0 },
		{ SRDMA_DESC_READ, 0, 29, 12, 512, -EPROTO },
		{ SRDMA_DESC_READ, 0, 255, 12, 512, -EPROTO },
		{ SRDMA_DESC_SEND, 0, 28, 12, 511, -EPROTO },
		{ SRDMA_DESC_SEND, SRDMA_DESC_INLINE, 2, 12, 512, -EPROTO },
		{ SRDMA_DESC_SEND_IMM, 0, 3, 12, 512, 0 },
		{ SRDMA_DESC_RECV, 0, 2, 12, 96, 0 },
		{ SRDMA_DESC_CREDIT, 0, 2, 12, 96, -EPROTO },
		{ SRDMA_DESC_FETCH_ADD, 0, 2, 8, 512, -EPROTO },
		{ SRDMA_DESC_COMPARE_SWAP, 0, 2, 8, 512, -EPROTO },
	};
	struct srdma_sge back[SRDMA_MAX_SGES];
	uint8_t in[SRDMA_DESC_SLOT];
	struct srdma_desc d;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		d = (struct srdma_desc){ .opcode = rows[i].opcode,
					 .flags = rows[i].flags,
					 .sges = rows[i].sges,
					 .length = rows[i].length };
		srdma_desc_encode(in, &d);
		srdma_sgl_encode(in + SRDMA_DESC_LEN, sgl, SRDMA_MAX_SGES);
		assert_int_equal(decode(&d, in, rows[i].len), rows[i].want);
		assert_int_equal(d.sges, rows[i].sges);
	}
	assert_memory_equal(in + SRDMA_DESC_LEN, first, SRDMA_SGE_LEN);
	srdma_sgl_decode(back, in + SRDMA_DESC_LEN, SRDMA_MAX_SGES);
	assert_memory_equal(back, sgl, sizeof(sgl));
}

/* The sum of an SGL cannot wrap around to the length of the message, and a
 * message that is too long is reported as such. */
static void test_long_sgl(void **state)
{
	const struct srdma_sge wraps[] = { { 0, UINT32_MAX, 1 }, { 0, 11, 1 } };
	const struct srdma_sge large[] = { { 0, SRDMA_MAX_MESSAGE, 1 },
					   { 0, 1, 1 } };
	struct srdma_desc d = { .opcode = SRDMA_DESC_SEND,
				.sges = 2,
				.length = 10 };
	uint8_t in[SRDMA_DESC_SLOT] = { 0 };

	(void)state;
	srdma_desc_encode(in, &d);
	srdma_sgl_encode(in + SRDMA_DESC_LEN, wraps, 2);
	assert_int_equal(decode(&d, in, sizeof(in)), -EPROTO);
	d.length = SRDMA_MAX_MESSAGE + 1;
	srdma_desc_encode(in, &d);
	srdma_sgl_encode(in + SRDMA_DESC_LEN, large, 2);
	assert_int_equal(decode(&d, in, sizeof(in)), -EMSGSIZE);
}

/* A capability is legal only where the request names the peer's memory. */
static void test_capability_needs_remote_memory(void **state)
{
	static const struct {
		uint8_t opcode;
		int want;
	} rows[] = {
		{ SRDMA_DESC_WRITE, 0 },	  { SRDMA_DESC_WRITE_IMM, 0 },
		{ SRDMA_DESC_READ, 0 },		  { SRDMA_DESC_SEND, -EPROTO },
		{ SRDMA_DESC_SEND_IMM, -EPROTO }, { SRDMA_DESC_RECV, -EPROTO },
		{ SRDMA_DESC_CREDIT, -EPROTO },
	};
	uint8_t in[SRDMA_DESC_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct srdma_desc d = sample;

		d.opcode = rows[i].opcode;
		srdma_desc_encode(in, &d);
		for (int at = 52; at < 56; at++) { /* each byte of the handle */
			memset(in + 52, 0, 4);
			assert_int_equal(decode(&d, in, sizeof(in)), 0);
			in[at] = 1;
			assert_int_equal(decode(&d, in, sizeof(in)),
					 rows[i].want);
		}
	}
}

/*
 * Atomics: the operands follow the descriptor, the length is 8, and FETCH_ADD
 * has no compare operand.
 */
static void test_atomic_operands(void **state)
{
	static const uint8_t behind[] = "\x01\x02\x03\x04\x05\x06\x07\x08"
					"\x11\x12\x13\x14\x15\x16\x17\x18";
	enum { ALL = SRDMA_DESC_LEN + SRDMA_OPERANDS_LEN };
	uint8_t in[SRDMA_DESC_SLOT] = { 0 };
	struct srdma_desc back, d = sample;

	(void)state;
	d.opcode = SRDMA_DESC_COMPARE_SWAP;
	d.length = SRDMA_ATOMIC_LEN;
	d.swap_add = 0x0102030405060708;
	d.compare = 0x1112131415161718;
	assert_int_equal(srdma_desc_encode(in, &d), ALL);
	assert_int_equal(in[0], 6);
	assert_memory_equal(in + SRDMA_DESC_LEN, behind, SRDMA_OPERANDS_LEN);
	assert_int_equal(decode(&back, in, ALL), 0);
	assert_same(&back, &d);
	assert_int_equal(decode(&back, in, sizeof(in)), 0);
	assert_int_equal(decode(&back, in, ALL - 1), -EPROTO);
	assert_int_equal(decode(&back, in, SRDMA_DESC_LEN), -EPROTO);
	in[1] |= SRDMA_DESC_INLINE;
	assert_int_equal(decode(&back, in, ALL), -EPROTO);
	d.opcode = SRDMA_DESC_FETCH_ADD;
	srdma_desc_encode(in, &d);
	assert_int_equal(decode(&back, in, ALL), -EPROTO);
	d.compare = 0;
	srdma_desc_encode(in, &d);
	assert_int_equal(in[0], 7);
	assert_int_equal(decode(&back, in, ALL), 0);
	assert_same(&back, &d);
	for (d.length = 0; d.length < 20; d.length++) {
		srdma_desc_encode(in, &d);
		assert_int_equal(decode(&back, in, ALL),
				 d.length == SRDMA_ATOMIC_LEN ? 0 : -EPROTO);
	}
}

/*
 * A refused descriptor still yields its QP and id, for the failed completion.
 */
static void test_refused_descriptor_yields_qp_and_id(void **state)
{
	uint8_t in[SRDMA_DESC_LEN];
	struct srdma_desc d;

	(void)state;
	srdma_desc_encode(in, &sample);
	in[0] = 99;
	assert_int_equal(decode(&d, in, sizeof(in)), -EPROTO);
	assert_int_equal(d.id, sample.id);
	assert_int_equal(d.qpn, sample.qpn);
	assert_int_equal(srdma_desc_qpn(in, 8), sample.qpn);
	assert_int_equal(srdma_desc_qpn(in, 7), 0);
}

/* The table of docs/local-interface.md 2.2. */
static void test_record_bytes(void **state)
{
	static const struct srdma_record r = {
		.id = 0x0102030405060708,
		.qpn = 0x00abcdef,
		.opcode = SRDMA_WC_RECV_RDMA_WITH_IMM,
		.status = 10,
		.flags = SRDMA_RECORD_WITH_IMM,
		.vendor_err = 3,
		.byte_len = 0x11223344,
		.imm = 0x55667788,
		.sequence = 0x99aabbcc,
	};
	static const uint8_t want[SRDMA_RECORD_LEN + 1] =
		"\x01\x02\x03\x04\x05\x06\x07\x08"
		"\x00\xab\xcd\xef\x81\x0a\x00\x01"
		"\x00\x00\x00\x03\x11\x22\x33\x44"
		"\x55\x66\x77\x88\x99\xaa\xbb\xcc";
	uint8_t out[SRDMA_RECORD_LEN], again[SRDMA_RECORD_LEN];
	struct srdma_record back;

	(void)state;
	srdma_record_encode(out, &r);
	assert_memory_equal(out, want, sizeof(out));
	srdma_record_decode(&back, out);
	assert_int_equal(back.id, r.id);
	assert_int_equal(back.vendor_err, r.vendor_err);
	srdma_record_encode(again, &back);
	assert_memory_equal(out, again, sizeof(out));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_descriptor_bytes),
		cmocka_unit_test(test_illegal_descriptors_are_refused),
		cmocka_unit_test(test_inline_needs_local_source),
		cmocka_unit_test(test_sgl),
		cmocka_unit_test(test_long_sgl),
		cmocka_unit_test(test_capability_needs_remote_memory),
		cmocka_unit_test(test_atomic_operands),
		cmocka_unit_test(test_refused_descriptor_yields_qp_and_id),
		cmocka_unit_test(test_record_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
