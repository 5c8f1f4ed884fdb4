#include "ctl.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"

enum type {
	END = 0, /* of a body's layout */
	UINT,	 /* 1, 2, 4 or 8 bytes, big-endian on the wire */
	BYTES,
	TEXT, /* UTF-8, zero-padded, at least one zero */
	ZERO,
	COUNTERS, /* 8 bytes each, to the end of the message */
	ANYTHING, /* not looked at, to the end of the message */
};

struct field {
	uint8_t type;
	uint16_t size; /* bytes on the wire; of the member but for ZERO */
	uint16_t at;   /* of the member in struct srdma_ctl_msg */
};

#define MSG struct srdma_ctl_msg
#define F(TYPE, M)                                                             \
	{                                                                      \
		TYPE, sizeof(((MSG *)0)->M), offsetof(MSG, M)                  \
	}
#define PAD(SIZE)                                                              \
	{                                                                      \
		ZERO, SIZE, 0                                                  \
	}
#define STOP                                                                   \
	{                                                                      \
		END, 0, 0                                                      \
	}

/* The bodies of 10, in wire order. */
static const struct field empty[] = { STOP };
static const struct field anything[] = { { ANYTHING, 0, 0 }, STOP };
static const struct field hello[] = { F(UINT, version), STOP };
static const struct field hello_answer[] = {
	F(UINT, hello.version),
	F(UINT, hello.flags),
	F(UINT, hello.host_kind),
	F(UINT, hello.pid),
	F(TEXT, hello.host_device),
	F(TEXT, hello.wire),
	F(TEXT, hello.name),
	F(BYTES, hello.suites),
	STOP,
};
static const struct field open_[] = { F(UINT, ring), STOP };
static const struct field open_answer[] = {
	F(UINT, open.leg),
	F(BYTES, open.token),
	F(TEXT, open.address),
	STOP,
};
static const struct field attach[] = { F(BYTES, token), STOP };
static const struct field attach_answer[] = { F(UINT, leg), STOP };
static const struct field reg_mr[] = {
	F(UINT, reg_mr.leg),
	F(UINT, reg_mr.mr.region.access),
	F(UINT, reg_mr.mr.region.addr),
	F(UINT, reg_mr.mr.region.length),
	F(UINT, reg_mr.mr.region.host_rkey),
	F(UINT, reg_mr.mr.scope_qpn),
	F(UINT, reg_mr.mr.region.fd_offset),
	STOP,
};
static const struct field reg_mr_answer[] = { F(UINT, key), STOP };
static const struct field dereg_mr[] = {
	F(UINT, dereg_mr.leg),
	F(UINT, dereg_mr.key),
	STOP,
};
static const struct field init[] = {
	F(UINT, init.leg),	     F(UINT, init.qp.sq),  F(UINT, init.qp.rq),
	F(UINT, init.qp.timeout_ms), F(UINT, init.qp.mtu), STOP,
};
static const struct field init_answer[] = {
	F(UINT, qp.qp.qpn),	F(BYTES, qp.qp.eid),   F(UINT, qp.qp.pn),
	F(UINT, qp.qp.mtu),	F(UINT, qp.qp.window), F(UINT, qp.qp.reads),
	F(BYTES, qp.qp.random), F(TEXT, qp.wire),      STOP,
};
static const struct field keys[] = {
	F(UINT, keys.qp.qpn),	      F(UINT, keys.qp.role),
	F(UINT, keys.qp.suite),	      F(UINT, keys.qp.level),
	F(UINT, keys.qp.tag_len),     F(UINT, keys.qp.mode),
	F(UINT, keys.qp.secret_len),  PAD(2),
	F(BYTES, keys.qp.generation), F(BYTES, keys.qp.peer_eid),
	F(UINT, keys.qp.peer_qpn),    F(UINT, keys.qp.peer_pn),
	F(UINT, keys.qp.peer_mtu),    F(UINT, keys.qp.peer_window),
	F(UINT, keys.qp.peer_reads),  F(TEXT, keys.qp.peer_wire),
	F(TEXT, keys.identity),	      F(BYTES, keys.qp.tx_secret),
	F(BYTES, keys.qp.rx_secret),  STOP,
};
static const struct field qpn[] = { F(UINT, qpn), STOP };
static const struct field wait_answer[] = {
	F(UINT, wait.state),
	F(UINT, wait.reason),
	STOP,
};
static const struct field stats_answer[] = { { COUNTERS, 0, 0 }, STOP };

static const struct kind {
	const char *name;
	const struct field *body[2]; /* by enum srdma_ctl_side */
} kinds[SRDMA_CTL_KINDS] = {
	[SRDMA_CTL_HELLO] = { "HELLO", { hello, hello_answer } },
	[SRDMA_CTL_OPEN] = { "OPEN", { open_, open_answer } },
	[SRDMA_CTL_ATTACH] = { "ATTACH", { attach, attach_answer } },
	[SRDMA_CTL_REG_MR] = { "REG_MR", { reg_mr, reg_mr_answer } },
	[SRDMA_CTL_DEREG_MR] = { "DEREG_MR", { dereg_mr, empty } },
	[SRDMA_CTL_INIT] = { "INIT", { init, init_answer } },
	[SRDMA_CTL_KEYS] = { "KEYS", { keys, empty } },
	[SRDMA_CTL_WAIT] = { "WAIT", { qpn, wait_answer } },
	[SRDMA_CTL_DESTROY] = { "DESTROY", { qpn, empty } },
	[SRDMA_CTL_STATS] = { "STATS", { empty, stats_answer } },
	[SRDMA_CTL_KEY] = { "KEY", { anything, empty } },
};

static const struct field *layout(uint32_t kind, enum srdma_ctl_side side)
{
	return kind < SRDMA_CTL_KINDS ? kinds[kind].body[side] : NULL;
}

const char *srdma_ctl_name(uint32_t kind)
{
	return kind < SRDMA_CTL_KINDS ? kinds[kind].name : NULL;
}

int srdma_ctl_body_len(uint32_t kind, enum srdma_ctl_side side)
{
	const struct field *f = layout(kind, side);
	int len = 0;

	if (!f)
		return -1;
	for (; f->type != END; f++) {
		if (f->type == COUNTERS || f->type == ANYTHING)
			return -1;
		len += f->size;
	}
	return len;
}

static int all_zero(const uint8_t *in, size_t len)
{
	uint8_t bits = 0;

	while (len--)
		bits |= *in++;
	return bits == 0;
}

/* What may follow the first byte of a UTF-8 sequence (RFC 3629). */
static const struct lead {
	uint8_t first, last; /* lead bytes */
	uint8_t len;	     /* of the sequence */
	uint8_t low, high;   /* of the second byte; all later ones 80..BF */
} leads[] = {
	{ 0x01, 0x7f, 1, 0, 0 },       { 0xc2, 0xdf, 2, 0x80, 0xbf },
	{ 0xe0, 0xe0, 3, 0xa0, 0xbf }, { 0xe1, 0xec, 3, 0x80, 0xbf },
	{ 0xed, 0xed, 3, 0x80, 0x9f }, { 0xee, 0xef, 3, 0x80, 0xbf },
	{ 0xf0, 0xf0, 4, 0x90, 0xbf }, { 0xf1, 0xf3, 4, 0x80, 0xbf },
	{ 0xf4, 0xf4, 4, 0x80, 0x8f },
};

static int follows(const struct lead *l, const uint8_t *s, size_t left)
{
	if (l->len > left)
		return 0;
	if (l->len > 1 && (s[1] < l->low || s[1] > l->high))
		return 0;
	for (size_t i = 2; i < l->len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return 1;
}

/* Bytes of the sequence at s, 0 if there is none. Zero is none. */
static size_t utf8_len(const uint8_t *s, size_t left)
{
	for (size_t i = 0; i < sizeof(leads) / sizeof(*leads); i++)
		if (s[0] >= leads[i].first && s[0] <= leads[i].last)
			return follows(&leads[i], s, left) ? leads[i].len : 0;
	return 0;
}

/* UTF-8 without a zero byte? */
static int is_text(const uint8_t *in, size_t len)
{
	while (len) {
		size_t n = utf8_len(in, len);

		if (n == 0)
			return 0;
		in += n;
		len -= n;
	}
	return 1;
}

static int is_padded_text(const uint8_t *in, size_t size)
{
	size_t len = strnlen((const char *)in, size);

	return len < size && is_text(in, len) && all_zero(in + len, size - len);
}

static void uint_store(void *member, size_t size, const uint8_t *in)
{
	uint64_t v = 0;

	for (size_t i = 0; i < size; i++)
		v = v << 8 | in[i];
	switch (size) {
	case 1:
		*(uint8_t *)member = (uint8_t)v;
		break;
	case 4:
		*(uint32_t *)member = (uint32_t)v;
		break;
	default:
		*(uint64_t *)member = v;
	}
}

static void uint_load(uint8_t *out, const void *member, size_t size)
{
	uint64_t v = size == 1	 ? *(const uint8_t *)member
		     : size == 4 ? *(const uint32_t *)member
				 : *(const uint64_t *)member;

	for (size_t i = size; i-- > 0; v >>= 8)
		out[i] = (uint8_t)v;
}

int srdma_ctl_peek(struct srdma_ctl_msg *m, const uint8_t *in, size_t len)
{
	if (len < SRDMA_CTL_HEADER_LEN || len > SRDMA_CTL_MAX)
		return -EPROTO;
	if (srdma_load16(in + 2) != 0)
		return -EPROTO;
	m->kind = srdma_load16(in);
	m->tag = srdma_load32(in + 4);
	m->status = srdma_load32(in + 8);
	return 0;
}

static int counters_decode(struct srdma_ctl_msg *m, const uint8_t *in,
			   size_t len)
{
	if (len % 8 != 0)
		return -EPROTO;
	m->stats.count = (uint32_t)(len / 8);
	for (uint32_t i = 0; i < m->stats.count; i++)
		m->stats.counter[i] = srdma_load64(in + 8 * i);
	return 0;
}

static int field_decode(struct srdma_ctl_msg *m, const struct field *f,
			const uint8_t *in)
{
	void *member = (char *)m + f->at;

	switch (f->type) {
	case UINT:
		uint_store(member, f->size, in);
		return 0;
	case ZERO:
		return all_zero(in, f->size) ? 0 : -EPROTO;
	case TEXT:
		if (!is_padded_text(in, f->size))
			return -EPROTO;
		break;
	}
	memcpy(member, in, f->size);
	return 0;
}

static int body_decode(struct srdma_ctl_msg *m, const struct field *f,
		       const uint8_t *in, size_t len)
{
	for (; f->type != END; f++) {
		int rc;

		if (f->type == ANYTHING)
			return 0;
		if (f->type == COUNTERS)
			return counters_decode(m, in, len);
		if (len < f->size)
			return -EPROTO;
		rc = field_decode(m, f, in);
		if (rc < 0)
			return rc;
		in += f->size;
		len -= f->size;
	}
	return len == 0 ? 0 : -EPROTO;
}

static int text_decode(struct srdma_ctl_msg *m, const uint8_t *in, size_t len)
{
	if (!is_text(in, len))
		return -EPROTO;
	memcpy(m->text, in, len);
	m->text[len] = '\0';
	return 0;
}

int srdma_ctl_decode(struct srdma_ctl_msg *m, enum srdma_ctl_side side,
		     const uint8_t *in, size_t len)
{
	const struct field *f;

	memset(m, 0, sizeof(*m));
	if (srdma_ctl_peek(m, in, len) < 0)
		return -EPROTO;
	in += SRDMA_CTL_HEADER_LEN;
	len -= SRDMA_CTL_HEADER_LEN;
	if (m->status != 0)
		return side == SRDMA_CTL_ANSWER ? text_decode(m, in, len)
						: -EPROTO;
	f = layout(m->kind, side);
	return f ? body_decode(m, f, in, len) : -EOPNOTSUPP;
}

static int counters_encode(uint8_t *out, const struct srdma_ctl_msg *m)
{
	if (m->stats.count > SRDMA_CTL_MAX_COUNTERS)
		return -EINVAL;
	for (uint32_t i = 0; i < m->stats.count; i++)
		srdma_store64(out + 8 * i, m->stats.counter[i]);
	return (int)(8 * m->stats.count);
}

/* A text keeps its length; what stands behind its end is not sent. */
static int padded_text_encode(uint8_t *out, const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	if (len == size || !is_text((const uint8_t *)text, len))
		return -EINVAL;
	memcpy(out, text, len);
	memset(out + len, 0, size - len);
	return 0;
}

static int body_encode(uint8_t *out, const struct field *f,
		       const struct srdma_ctl_msg *m)
{
	uint8_t *start = out;

	for (; f->type != END; out += f->size, f++) {
		const void *member = (const char *)m + f->at;

		switch (f->type) {
		case UINT:
			uint_load(out, member, f->size);
			break;
		case BYTES:
			memcpy(out, member, f->size);
			break;
		case ZERO:
			memset(out, 0, f->size);
			break;
		case TEXT:
			if (padded_text_encode(out, member, f->size) < 0)
				return -EINVAL;
			break;
		case COUNTERS:
			return counters_encode(out, m);
		}
	}
	return (int)(out - start);
}

static int text_encode(uint8_t *out, const char *text)
{
	size_t len = strnlen(text, SRDMA_CTL_MAX_BODY + 1);

	if (len > SRDMA_CTL_MAX_BODY || !is_text((const uint8_t *)text, len))
		return -EINVAL;
	memcpy(out, text, len);
	return (int)len;
}

int srdma_ctl_encode(uint8_t out[SRDMA_CTL_MAX], enum srdma_ctl_side side,
		     const struct srdma_ctl_msg *m)
{
	const struct field *f = layout(m->kind, side);
	uint8_t *body = out + SRDMA_CTL_HEADER_LEN;
	int len;

	if (m->status != 0 && side == SRDMA_CTL_REQUEST)
		return -EINVAL;
	/* A refusal may name a kind that is not known. */
	if (!f && m->status == 0)
		return -EINVAL;
	srdma_store16(out, m->kind);
	srdma_store16(out + 2, 0);
	srdma_store32(out + 4, m->tag);
	srdma_store32(out + 8, m->status);
	len = m->status == 0 ? body_encode(body, f, m)
			     : text_encode(body, m->text);
	return len < 0 ? len : SRDMA_CTL_HEADER_LEN + len;
}
