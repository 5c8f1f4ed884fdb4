/* Codec of the control messages (docs/local-interface.md 3). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "relay/ctl.h"

static const enum srdma_ctl_side REQ = SRDMA_CTL_REQUEST;
static const enum srdma_ctl_side ANS = SRDMA_CTL_ANSWER;

enum { TOKEN_MIN = 88, TOKEN_MAX = 4584 }; /* 6.2 */

/* Body lengths of docs/local-interface.md 3.4 to 3.9. */
static const struct {
	const char *name;
	struct srdma_ctl_span len[2];
} bodies[SRDMA_CTL_KINDS] = {
#define FIXED(N)                                                               \
	{                                                                      \
		N, N                                                           \
	}
	[SRDMA_CTL_HELLO] = { "HELLO", { FIXED(4), FIXED(16 + 3 * 64 + 56) } },
	[SRDMA_CTL_OPEN] = { "OPEN", { FIXED(8), FIXED(4 + 16 + 64) } },
	[SRDMA_CTL_ATTACH] = { "ATTACH", { FIXED(16), FIXED(72) } },
	[SRDMA_CTL_REG_MR] = { "REG_MR", { FIXED(308), FIXED(4) } },
	[SRDMA_CTL_DEREG_MR] = { "DEREG_MR", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_INIT] = { "INIT",
			     { FIXED(20), FIXED(4 + 16 + 8 + 12 + 32 + 64) } },
	[SRDMA_CTL_KEYS] = { "KEYS", { FIXED(492), FIXED(0) } },
	[SRDMA_CTL_WAIT] = { "WAIT", { FIXED(4), FIXED(8) } },
	[SRDMA_CTL_DESTROY] = { "DESTROY", { FIXED(4), FIXED(0) } },
	[SRDMA_CTL_STATS] = { "STATS", { FIXED(0), { 0, 8176 } } },
	[SRDMA_CTL_KEY] = { "KEY", { FIXED(36), FIXED(80) } },
	[SRDMA_CTL_CAP] = { "CAP", { FIXED(48), { TOKEN_MIN, TOKEN_MAX } } },
	[SRDMA_CTL_INSTALL] = { "INSTALL",
				{ { 4 + TOKEN_MIN, 4 + TOKEN_MAX },
				  FIXED(4) } },
	[SRDMA_CTL_UNINSTALL] = { "UNINSTALL", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_REVOKE] = { "REVOKE", { FIXED(24), FIXED(0) } },
	[SRDMA_CTL_ROTATE] = { "ROTATE", { FIXED(8), FIXED(8) } },
	[SRDMA_CTL_REKEY] = { "REKEY", { FIXED(40), FIXED(0) } },
	[SRDMA_CTL_EXPIRE] = { "EXPIRE", { FIXED(4), FIXED(0) } },
	[SRDMA_CTL_END] = { "END", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_LIFE] = { "LIFE", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_AGENT] = { "AGENT", { FIXED(4), FIXED(0) } },
	[SRDMA_CTL_PROVE] = { "PROVE", { FIXED(72), FIXED(40) } },
	[SRDMA_CTL_KEEP] = { "KEEP", { FIXED(2056), FIXED(0) } },
	[SRDMA_CTL_ADOPT] = { "ADOPT", { FIXED(8), FIXED(7188) } },
	[SRDMA_CTL_RESTRICT] = { "RESTRICT", { FIXED(156), FIXED(0) } },
	[SRDMA_CTL_QUOTA] = { "QUOTA", { FIXED(528), FIXED(0) } },
	[SRDMA_CTL_USAGE] = { "USAGE", { FIXED(8), FIXED(1128) } },
	[SRDMA_CTL_QPS] = { "QPS", { FIXED(8), FIXED(376) } },
	[SRDMA_CTL_WITHDRAW] = { "WITHDRAW", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_MODIFY] = { "MODIFY", { FIXED(20), FIXED(0) } },
	[SRDMA_CTL_SHARE] = { "SHARE", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_RESET] = { "RESET", { FIXED(8), FIXED(0) } },
	[SRDMA_CTL_REINIT] = { "REINIT", { FIXED(20), FIXED(140) } },
	[SRDMA_CTL_REPLACE] = { "REPLACE", { FIXED(12), FIXED(0) } },
#undef FIXED
};

/* Builds a message with a zero body, which is legal for every kind. */
static size_t zero_message(uint8_t out[SRDMA_CTL_MAX], uint8_t kind,
			   unsigned len)
{
	memset(out, 0, SRDMA_CTL_MAX);
	out[1] = kind;
	out[7] = 9; /* tag */
	return SRDMA_CTL_HEADER_LEN + len;
}

/* every possible length */
static void test_body_lengths(void **state)
{
	uint8_t in[SRDMA_CTL_MAX], out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;

	(void)state;
	for (uint8_t k = 1; k < SRDMA_CTL_KINDS; k++) {
		assert_string_equal(srdma_ctl_name(k), bodies[k].name);
		for (unsigned side = REQ; side <= ANS; side++) {
			const struct srdma_ctl_span want = bodies[k].len[side];
			const struct srdma_ctl_span got =
				srdma_ctl_body_len(k, side);

			assert_int_equal(got.least, want.least);
			assert_int_equal(got.most, want.most);
			for (unsigned n = 0; n <= SRDMA_CTL_MAX_BODY; n++) {
				size_t len = zero_message(in, k, n);
				int good = n >= want.least && n <= want.most;

				if (k == SRDMA_CTL_STATS && n % 8)
					good = 0;
				assert_int_equal(
					srdma_ctl_decode(&m, side, in, len),
					good ? 0 : -EPROTO);
				if (!good)
					continue;
				assert_int_equal(m.kind, k);
				assert_int_equal(m.tag, 9);
				assert_int_equal(
					srdma_ctl_encode(out, side, &m), len);
				assert_memory_equal(out, in, len);
			}
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
	assert_int_equal(srdma_ctl_body_len(0, REQ).most, 0);
	assert_int_equal(srdma_ctl_body_len(SRDMA_CTL_KINDS, ANS).most, 0);
	m.kind = SRDMA_CTL_KINDS;
	m.status = 0;
	assert_int_equal(srdma_ctl_encode(in, ANS, &m), -EINVAL);
}

static void test_broken_headers(void **state)
{
	uint8_t in[SRDMA_CTL_MAX + 1] = { 0 };
	struct srdma_ctl_msg m;
	size_t len = zero_message(in, SRDMA_CTL_STATS, 0);

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
	in[11] = EPERM; /* a request must have status 0 */
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
	memset(k->group_key, 0x55, sizeof(k->group_key));
	strcpy(m->keys.identity, "spiffe://x/\xc3\xa4");
}

/* Offsets of docs/local-interface.md 3.6, written out by hand. */
static void test_keys_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m, back;

	(void)state;
	keys_fill(&m);
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 12 + 492);
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
	assert_int_equal(out[456], 0x55);
	assert_int_equal(out[503], 0x55);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 504), 0);
	assert_memory_equal(&back, &m, sizeof(m));
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
	m.reg_mr.mr.log2_block = 13;
	m.reg_mr.mr.depth = 14;
	m.reg_mr.mr.bias = 0x1112131415161718;
	strcpy(m.reg_mr.identity, "spiffe://x/y");
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 320);
	assert_memory_equal(out + 12,
			    "\0\0\0\1\0\0\0\7\1\2\3\4\5\6\7\x08"
			    "\0\0\0\0\0\0\0\x09\0\0\0\x0a\0\0\0\x0b"
			    "\0\0\0\0\0\0\0\x0c\x0d\x0e\0\0",
			    44);
	assert_string_equal((char *)out + 56, "spiffe://x/y");
	assert_memory_equal(out + 312, "\x11\x12\x13\x14\x15\x16\x17\x18", 8);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 320), 0);
	assert_int_equal(back.reg_mr.mr.bias, 0x1112131415161718);
	assert_string_equal(back.reg_mr.identity, "spiffe://x/y");
	assert_int_equal(back.reg_mr.mr.region.fd_offset, 12);
	assert_int_equal(back.reg_mr.mr.scope_qpn, 11);
}

static void test_open_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_OPEN }, back;

	(void)state;
	m.open.ring = 0x0100;
	m.open.flags = SRDMA_CTL_SHARED;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 20);
	assert_memory_equal(out + 12, "\0\0\1\0\0\0\0\1", 8);
	/* the decoder accepts unknown flags; the worker refuses them */
	out[16] = 0x80;
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 20), 0);
	assert_int_equal(back.open.flags, 0x80000001);
}

static void test_key_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_KEY }, back;

	(void)state;
	m.secret.qpn = 0xabcdef;
	m.secret.secret_len = 32;
	m.secret.group = 1;
	memset(m.secret.generation, 0x11, sizeof(m.secret.generation));
	memset(m.secret.peer_eid, 0x22, sizeof(m.secret.peer_eid));
	m.secret.peer_qpn = 0x123456;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 48);
	assert_memory_equal(out + 12,
			    "\0\xab\xcd\xef\x20\1\0\0"
			    "\x11\x11\x11\x11\x11\x11\x11\x11"
			    "\x22\x22\x22\x22\x22\x22\x22\x22"
			    "\x22\x22\x22\x22\x22\x22\x22\x22"
			    "\0\x12\x34\x56",
			    36);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 48), 0);
	assert_memory_equal(&back, &m, sizeof(m));

	memset(m.secret_answer.secret, 0x33, 32);
	memset(m.secret_answer.group_key, 0x44, 48);
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), 92);
	assert_int_equal(out[12], 0x33);
	assert_int_equal(out[43], 0x33);
	assert_int_equal(out[44], 0x44);
	assert_int_equal(out[91], 0x44);
}

static void test_cap_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_CAP }, back;
	struct srdma_cap_params *cap = &m.cap.cap;

	(void)state;
	m.cap.leg = 1;
	cap->key = 2;
	cap->offset = 0x0102030405060708;
	cap->length = 3;
	cap->rights = SRDMA_MEMKEY_ALL;
	cap->bearer.expiry = 0xf0000001;
	memset(cap->bearer.holder, 0x66, sizeof(cap->bearer.holder));
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 60);
	assert_memory_equal(out + 12,
			    "\0\0\0\1\0\0\0\2\1\2\3\4\5\6\7\x08"
			    "\0\0\0\0\0\0\0\3\xf0\0\0\1\7\0\0\0"
			    "\x66\x66\x66\x66\x66\x66\x66\x66"
			    "\x66\x66\x66\x66\x66\x66\x66\x66",
			    48);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 60), 0);
	assert_memory_equal(&back, &m, sizeof(m));
}

static void test_revoke_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REVOKE }, back;

	(void)state;
	m.revoke.leg = 1;
	m.revoke.range.key = 2;
	m.revoke.range.offset = 0x0102030405060708;
	m.revoke.range.length = 3;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 36);
	assert_memory_equal(out + 12,
			    "\0\0\0\1\0\0\0\2\1\2\3\4\5\6\7\x08"
			    "\0\0\0\0\0\0\0\3",
			    24);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 36), 0);
	assert_memory_equal(&back, &m, sizeof(m));
}

static void test_rekey_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REKEY }, back;
	struct srdma_ctl_msg r = { .kind = SRDMA_CTL_ROTATE };

	(void)state;
	m.rekey.qpn = 0x010203;
	m.rekey.direction = 2;
	m.rekey.secret_len = 16;
	memset(m.rekey.secret, 7, 16);
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 52);
	assert_memory_equal(out + 12, "\0\1\2\3\2\x10\0\0", 8);
	assert_memory_equal(out + 20, m.rekey.secret, 32);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 52), 0);
	assert_memory_equal(&back, &m, sizeof(m));
	r.rotate.leg = 1;
	r.rotate.age = 3600;
	assert_int_equal(srdma_ctl_encode(out, REQ, &r), 20);
	assert_memory_equal(out + 12, "\0\0\0\1\0\0\x0e\x10", 8);
	r.rotated =
		(struct srdma_ctl_rotate_answer){ .serial = 5, .behind = 2 };
	assert_int_equal(srdma_ctl_encode(out, SRDMA_CTL_ANSWER, &r), 20);
	assert_memory_equal(out + 12, "\0\0\0\5\0\0\0\2", 8);
}

static void test_life_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_LIFE }, back;

	(void)state;
	m.life.qpn = 0x010203;
	m.life.seconds = 0x7fffffff;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 20);
	assert_memory_equal(out, "\0\x14", 2);
	assert_memory_equal(out + 12, "\0\1\2\3\x7f\xff\xff\xff", 8);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 20), 0);
	assert_memory_equal(&back, &m, sizeof(m));
}

static void test_modify_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_MODIFY }, back;

	(void)state;
	m.modify = (struct srdma_qp_change){ 0x010203, 3, 6, 0x11223344, 0x55 };
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 32);
	assert_memory_equal(out, "\0\x1e", 2);
	assert_memory_equal(
		out + 12, "\0\1\2\3\0\0\0\3\0\0\0\6\x11\x22\x33\x44\0\0\0\x55",
		20);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 32), 0);
	assert_memory_equal(&back, &m, sizeof(m));
}

static void test_prove_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_PROVE }, back;

	(void)state;
	m.prove.qpn = 0x010203;
	m.prove.check = 1;
	memset(m.prove.context, 0x11, 32);
	memset(m.prove.proof, 0x22, 32);
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 84);
	assert_memory_equal(out, "\0\x16", 2);
	assert_memory_equal(out + 12, "\0\1\2\3\1\0\0\0\x11", 9);
	assert_memory_equal(out + 51, "\x11\x22", 2);
	assert_int_equal(out[83], 0x22);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 84), 0);
	assert_memory_equal(&back, &m, sizeof(m));
	m.proved = (struct srdma_qp_prove_answer){ .tx = 5, .rx = 2 };
	memset(m.proved.proof, 0x33, 32);
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), 52);
	assert_memory_equal(out + 12, "\0\0\0\5\0\0\0\2\x33", 9);
}

static void test_keep_and_adopt_layout(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_KEEP }, back;

	(void)state;
	m.keep.n = 256;
	m.keep.len = 1024;
	memset(m.keep.qpns, 0x11, sizeof(m.keep.qpns));
	memset(m.keep.data, 0x22, sizeof(m.keep.data));
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 2068);
	assert_memory_equal(out + 12, "\0\0\1\0\0\0\4\0\x11", 9);
	assert_memory_equal(out + 1043, "\x11\x22", 2);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 2068), 0);
	assert_memory_equal(&back, &m, sizeof(m));

	memset(&m, 0, sizeof(m));
	m.kind = SRDMA_CTL_ADOPT;
	m.adopted.serial = 0x0102030405060708;
	m.adopted.leg = 3;
	m.adopted.n = 1;
	m.adopted.len = 2;
	memset(m.adopted.qps, 0x33, sizeof(m.adopted.qps));
	memset(m.adopted.data, 0x44, sizeof(m.adopted.data));
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), 7200);
	assert_memory_equal(
		out + 12, "\1\2\3\4\5\6\7\x08\0\0\0\3\0\0\0\1\0\0\0\2\x33", 21);
	assert_memory_equal(out + 12 + 20 + 6144 - 1, "\x33\x44", 2);
	assert_int_equal(out[7199], 0x44);
	assert_int_equal(srdma_ctl_decode(&back, ANS, out, 7200), 0);
	assert_memory_equal(&back, &m, sizeof(m));
}

/* reserved bytes of requests */
static void test_reserved_bytes_must_be_zero(void **state)
{
	static const struct {
		uint8_t kind;
		unsigned len, at, size;
	} zeros[] = {
		{ SRDMA_CTL_REG_MR, 308, 42, 2 },
		{ SRDMA_CTL_KEYS, 492, 10, 2 },
		{ SRDMA_CTL_KEY, 36, 6, 2 },
		{ SRDMA_CTL_CAP, 48, 29, 3 },
		{ SRDMA_CTL_REKEY, 40, 6, 2 },
		{ SRDMA_CTL_PROVE, 72, 5, 3 },
	};
	uint8_t in[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;

	(void)state;
	for (size_t i = 0; i < sizeof(zeros) / sizeof(*zeros); i++) {
		size_t len = zero_message(in, zeros[i].kind, zeros[i].len);
		uint8_t *zero = in + SRDMA_CTL_HEADER_LEN + zeros[i].at;

		for (unsigned bit = 0; bit < 8 * zeros[i].size; bit++) {
			zero[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_int_equal(srdma_ctl_decode(&m, REQ, in, len),
					 -EPROTO);
			zero[bit / 8] = 0;
		}
		assert_int_equal(srdma_ctl_decode(&m, REQ, in, len), 0);
	}
}

static void test_token_lengths(void **state)
{
	uint8_t out[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_INSTALL }, back;
	struct srdma_ctl_token *t = &m.install.token;

	(void)state;
	m.install.leg = 0x01020304;
	t->len = TOKEN_MAX;
	memset(t->bytes, 0x77, sizeof(t->bytes));
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), 16 + TOKEN_MAX);
	assert_memory_equal(out + 12, "\1\2\3\4\x77", 5);
	assert_int_equal(srdma_ctl_decode(&back, REQ, out, 16 + TOKEN_MAX), 0);
	assert_memory_equal(&back, &m, sizeof(m));
	t->len = TOKEN_MIN - 1;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), -EINVAL);
	t->len = TOKEN_MAX + 1;
	assert_int_equal(srdma_ctl_encode(out, REQ, &m), -EINVAL);
	assert_int_equal(SRDMA_CTL_TOKEN_MIN, TOKEN_MIN);
	assert_int_equal(SRDMA_CAPABILITY_MAX, TOKEN_MAX);
}

/* Decodes INIT's response with this text in its last field of 64 bytes. */
static int text_decodes(const char *text, size_t len)
{
	uint8_t in[SRDMA_CTL_MAX];
	struct srdma_ctl_msg m;
	size_t total = zero_message(in, SRDMA_CTL_INIT,
				    bodies[SRDMA_CTL_INIT].len[ANS].most);

	memcpy(in + total - SRDMA_NAME_LEN, text, len);
	return srdma_ctl_decode(&m, ANS, in, total);
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
	memset(m.opened.address, 'x', sizeof(m.opened.address));
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), -EINVAL);
	m.status = EPERM;
	memset(m.text, 'x', sizeof(m.text));
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), -EINVAL);
	m.text[SRDMA_CTL_MAX_BODY] = '\0';
	assert_int_equal(srdma_ctl_encode(out, ANS, &m), SRDMA_CTL_MAX);
}

static void test_refusal_response(void **state)
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

static void test_stats_lengths(void **state)
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

/*
 * Each truncated message ends at a page that cannot be read: the decoder would
 * fault if it read beyond.
 */
static void test_truncated_messages_are_not_read_beyond(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	const size_t room = (SRDMA_CTL_MAX / page + 1) * page;
	uint8_t message[SRDMA_CTL_MAX], *at, *end;

	(void)state;
	at = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
		  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	end = at + room;
	assert_int_equal(mprotect(end, page, PROT_NONE), 0);
	for (uint8_t kind = 1; kind < SRDMA_CTL_KINDS; kind++) {
		for (int side = 0; side < 2; side++) {
			const unsigned most = bodies[kind].len[side].least;
			struct srdma_ctl_msg m;

			zero_message(message, kind, most);
			for (size_t len = 0; len < SRDMA_CTL_HEADER_LEN + most;
			     len++) {
				memcpy(end - len, message, len);
				assert_int_equal(srdma_ctl_decode(&m, side,
								  end - len,
								  len),
						 -EPROTO);
			}
		}
	}
	munmap(at, room + page);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_body_lengths),
		cmocka_unit_test(test_truncated_messages_are_not_read_beyond),
		cmocka_unit_test(test_unknown_kind),
		cmocka_unit_test(test_broken_headers),
		cmocka_unit_test(test_keys_layout),
		cmocka_unit_test(test_reg_mr_layout),
		cmocka_unit_test(test_open_layout),
		cmocka_unit_test(test_key_layout),
		cmocka_unit_test(test_cap_layout),
		cmocka_unit_test(test_revoke_layout),
		cmocka_unit_test(test_rekey_layout),
		cmocka_unit_test(test_life_layout),
		cmocka_unit_test(test_modify_layout),
		cmocka_unit_test(test_prove_layout),
		cmocka_unit_test(test_keep_and_adopt_layout),
		cmocka_unit_test(test_reserved_bytes_must_be_zero),
		cmocka_unit_test(test_token_lengths),
		cmocka_unit_test(test_text_fields),
		cmocka_unit_test(test_encode_refuses_text_without_end),
		cmocka_unit_test(test_refusal_response),
		cmocka_unit_test(test_stats_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
