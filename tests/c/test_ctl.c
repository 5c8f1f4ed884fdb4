/* Codec of the control messages (docs/protocol.md 10). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "ctl.h"

static const enum srdma_ctl_side REQ = SRDMA_CTL_REQUEST;
static const enum srdma_ctl_side ANS = SRDMA_CTL_ANSWER;

/* Lengths of the bodies as the table of 10 gives them; -1: not fixed. */
static const struct {
	const char *name;
	int len[2];
} bodies[SRDMA_CTL_KINDS] = {
	[SRDMA_CTL_HELLO] = { "HELLO", { 4, 16 + 3 * 64 + 32 } },
	[SRDMA_CTL_OPEN] = { "OPEN", { 4, 4 + 16 + 64 } },
	[SRDMA_CTL_ATTACH] = { "ATTACH", { 16, 4 } },
	[SRDMA_CTL_REG_MR] = { "REG_MR", { 40, 4 } },
	[SRDMA_CTL_DEREG_MR] = { "DEREG_MR", { 8, 0 } },
	[SRDMA_CTL_INIT] = { "INIT", { 20, 4 + 16 + 8 + 12 + 32 + 64 } },
	[SRDMA_CTL_KEYS] = { "KEYS", { 444, 0 } },
	[SRDMA_CTL_WAIT] = { "WAIT", { 4, 8 } },
	[SRDMA_CTL_DESTROY] = { "DESTROY", { 4, 0 } },
	[SRDMA_CTL_STATS] = { "STATS", { 0, -1 } },
	[SRDMA_CTL_KEY] = { "KEY", { -1, 0 } },
};

/* A message whose body is all zero, which every layout accepts. */
static int zero_message(uint8_t out[SRDMA_CTL_MAX], uint8_t kind, int len)
{
	memset(out, 0, SRDMA_CTL_MAX);
	out[1] = kind;
	out[7] = 9; /* tag */
	return SRDMA_CTL_HEADER_LEN + len;
}

static void test_lengths(void **state)
{
	uint8_t in[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;

	(void)state;
	for (uint8_t k = 1; k < SRDMA_CTL_KINDS; k++) {
		assert_string_equal(srdma_ctl_name(k), bodies[k].name);
		for (unsigned side = REQ; side <= ANS; side++) {
			int want = bodies[k].len[side];
			int len = zero_message(in, k, want);

			assert_int_equal(srdma_ctl_body_len(k, side), want);
			if (want < 0)
				continue;
			assert_int_equal(srdma_ctl_decode(&m, side, in, len),
					 0);
			assert_int_equal(m.kind, k);
			assert_int_equal(m.tag, 9);
			assert_int_equal(
				srdma_ctl_decode(&m, side, in, len + 1),
				-EPROTO);
			assert_int_equal(
				srdma_ctl_decode(&m, side, in, len - 1),
				-EPROTO);
		}
	}
}

static void test_unknown_kind(void **state)
{
	uint8_t in[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;

	(void)state;
	zero_message(in, 0, 0);
	assert_int_equal(srdma_ctl_decode(&m, REQ, in, 12), -EOPNOTSUPP);
	zero_message(in, SRDMA_CTL_KINDS, 0);
	assert_int_equal(srdma_ctl_decode(&m, REQ, in, 12), -EOPNOTSUPP);
	assert_int_equal(srdma_ctl_decode(&m, ANS, in, 12), -EOPNOTSUPP);
	assert_null(srdma_ctl_name(0));
	assert_null(srdma_ctl_name(SRDMA_CTL_KINDS));
	assert_int_equal(srdma_ctl_body_len(0, REQ), -1);
	m.kind = SRDMA_CTL_KINDS;
	m.status = 0;
	assert_int_equal(srdma_ctl_encode(in, ANS, &m), -EINVAL);
}

static void test_broken_headers(void **state)
{
	uint8_t in[SRDMA_CTL_MAX + 1] = { 0 };
	struct srdma_ctl_msg m;
	int len = zero_message(in, SRDMA_CTL_STATS, 0);

	(void)state;
	assert_int_equal(srdma_ctl_peek(&m, in, len), 0);
	assert_int_equal(m.kind, SRDMA_CTL_STATS);
	assert_int_equal(m.tag, 9);
	assert_int_equal(srdma_ctl_peek(&m, in, len - 1), -EPROTO);
	assert_int_equal(srdma_ctl_peek(&m, in, 0), -EPROTO);
	assert_int_equal(srdma_ctl_peek(&m, in, sizeof(in)), -EPROTO);
	for (int i = 2; i < 4; i++) {
		in[i] = 1;
		assert_int_equal(srdma_ctl_peek(&m, in, len), -EPROTO);
		assert_int_equal(srdma_ctl_decode(&m, REQ, in, len), -EPROTO);
		in[i] = 0;
	}
	in[11] = EPERM; /* a request has no status */
	assert_int_equal(srdma_ctl_peek(&m, in, len), 0);
	assert_int_equal(srdma_ctl_decode(&m, REQ, in, len), -EPROTO);
}

static void keys_fill(struct srdma_ctl_msg *m)
{
	struct srdma_qp_keys *k = &m->keys.qp;

	memset(m, 0, sizeof(*m));
	m->kind = SRDMA_CTL_KEYS;
	m->tag = 0x01020304;
	k->qpn = 0xabcdef;
	k->role = 1;
	k->suite = 7;
	k->level = 3;
	k->tag_len = 16;
	k->secret_len = 32;
	memset(k->generation, 0x11, sizeof(k->generation));
	memset(k->peer_eid, 0x22, sizeof(k->peer_eid));
	k->peer_qpn = 0x123456;
	k->peer_pn = 0x0011223344556677;
	k->peer_mtu = 4096;
	k->peer_window = 128;
	k->peer_reads = 16;
	strcpy(k->peer_wire, "b");
	memset(k->tx_secret, 0x33, sizeof(k->tx_secret));
	memset(k->rx_secret, 0x44, sizeof(k->rx_secret));
	strcpy(m->keys.identity, "spiffe://x/\xc3\xa4");
}

/* Offsets written out by hand from the table of 10. */
static void test_keys_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m, back;

	(void)state;
	keys_fill(&m);
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 12 + 444);
	assert_memory_equal(out, "\0\7\0\0\1\2\3\4\0\0\0\0", 12);
	assert_memory_equal(out + 12, "\0\xab\xcd\xef\1\7\3\x10\0\x20\0\0", 12);
	assert_int_equal(out[24], 0x11);
	assert_int_equal(out[32], 0x22);
	assert_memory_equal(out + 48, "\0\x12\x34\x56", 4);
	assert_memory_equal(out + 52, "\0\x11\x22\x33\x44\x55\x66\x77", 8);
	assert_memory_equal(out + 60, "\0\0\x10\0\0\0\0\x80\0\0\0\x10", 12);
	assert_string_equal((char *)out + 72, "b");
	assert_string_equal((char *)out + 136, m.keys.identity);
	assert_int_equal(out[392], 0x33);
	assert_int_equal(out[424], 0x44);
	assert_int_equal(out[455], 0x44);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 456), 0);
	assert_memory_equal(&back, &m, sizeof(m));
	out[22] = 1; /* the zero field */
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 456), -EPROTO);
}

static void test_reg_mr_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REG_MR }, back;

	(void)state;
	m.reg_mr.leg = 1;
	m.reg_mr.mr.region.access = 7;
	m.reg_mr.mr.region.addr = 0x0102030405060708;
	m.reg_mr.mr.region.length = 9;
	m.reg_mr.mr.region.host_rkey = 10;
	m.reg_mr.mr.scope_qpn = 11;
	m.reg_mr.mr.region.fd_offset = 12;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 52);
	assert_memory_equal(out + 12,
			    "\0\0\0\1\0\0\0\7\1\2\3\4\5\6\7\x08"
			    "\0\0\0\0\0\0\0\x09\0\0\0\x0a\0\0\0\x0b"
			    "\0\0\0\0\0\0\0\x0c",
			    40);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 52), 0);
	assert_int_equal(back.reg_mr.mr.region.fd_offset, 12);
	assert_int_equal(back.reg_mr.mr.scope_qpn, 11);
}

/* Text of 64 bytes in INIT's answer, at its end. */
static int text_decodes(const char *text, size_t len)
{
	uint8_t in[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;
	int total = zero_message(in, SRDMA_CTL_INIT,
				 bodies[SRDMA_CTL_INIT].len[ANS]);

	memcpy(in + total - SRDMA_NAME_LEN, text, len);
	return srdma_ctl_decode(&m, ANS, in, (size_t)total);
}

static void test_text_fields(void **state)
{
	static const char *const bad[] = {
		"\x80",
		"\xc0\xaf",
		"\xc1\x81",
		"\xe0\x80\x80",
		"\xed\xa0\x80",
		"\xf0\x80\x80\x80",
		"\xf4\x90\x80\x80",
		"\xf5\x80\x80\x80",
		"\xff",
		"a\xc3",
		"a\xe2\x82",
		"\xe2(\xa1",
	};
	static const char *const good[] = {
		"",
		"a",
		"\xc3\xa4",
		"\xe2\x82\xac",
		"\xed\x9f\xbf",
		"\xee\x80\x80",
		"\xf0\x90\x8d\x88",
		"\xf4\x8f\xbf\xbf",
	};
	char full[SRDMA_NAME_LEN];

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		assert_int_equal(text_decodes(good[i], strlen(good[i])), 0);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(text_decodes(bad[i], strlen(bad[i])), -EPROTO);
	memset(full, 'x', sizeof(full));
	assert_int_equal(text_decodes(full, sizeof(full)), -EPROTO);
	assert_int_equal(text_decodes(full, sizeof(full) - 1), 0);
	assert_int_equal(text_decodes("a\0b", 3), -EPROTO);
}

static void test_encode_refuses_text_without_end(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_OPEN };

	(void)state;
	memset(m.open.address, 'x', sizeof(m.open.address));
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), -EINVAL);
	m.status = EPERM;
	memset(m.text, 'x', sizeof(m.text));
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), -EINVAL);
	m.text[SRDMA_CTL_MAX_BODY] = '\0';
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), SRDMA_CTL_MAX);
}

static void test_refusals(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = 99, .tag = 7, .status = EPROTO };
	struct srdma_ctl_msg back;

	(void)state;
	strcpy(m.text, "no such kind");
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), 24);
	assert_int_equal(srdma_ctl_decode(&back, ANS, out, 24), 0);
	assert_int_equal(back.kind, 99);
	assert_int_equal(back.status, EPROTO);
	assert_string_equal(back.text, "no such kind");
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), -EINVAL);
	out[14] = 0xff;
	assert_int_equal(srdma_ctl_decode(&back, ANS, out, 24), -EPROTO);
}

static void test_stats(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_STATS }, back;

	(void)state;
	m.stats.count = SRDMA_CTL_MAX_COUNTERS;
	m.stats.counter[0] = 1;
	m.stats.counter[SRDMA_CTL_MAX_COUNTERS - 1] = 0x0102030405060708;
	assert_int_equal(srdma_ctl_encode(out, ANS, &m),
			 12 + 8 * SRDMA_CTL_MAX_COUNTERS);
	assert_int_equal(srdma_ctl_decode(&back, ANS, out, 28), 0);
	assert_int_equal(back.stats.count, 2);
	assert_int_equal(back.stats.counter[0], 1);
	assert_int_equal(srdma_ctl_decode(&back, ANS, out, 27), -EPROTO);
	m.stats.count++;
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), -EINVAL);
}

static void test_key_is_opaque(void **state)
{
	uint8_t in[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;

	(void)state;
	memset(in, 0xff, sizeof(in));
	zero_message(in, SRDMA_CTL_KEY, 0);
	assert_int_equal(srdma_ctl_decode(&m, REQ, in, sizeof(in)), 0);
	assert_int_equal(srdma_ctl_decode(&m, REQ, in, 12), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lengths),
		cmocka_unit_test(test_unknown_kind),
		cmocka_unit_test(test_broken_headers),
		cmocka_unit_test(test_keys_layout),
		cmocka_unit_test(test_reg_mr_layout),
		cmocka_unit_test(test_text_fields),
		cmocka_unit_test(test_encode_refuses_text_without_end),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_stats),
		cmocka_unit_test(test_key_is_opaque),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
