#include "ctl.h"

#include <errno.h>
#include <string.h>

#include "bytes.h"
#include "utf8.h"

enum type {
	END = 0, /* of a body's layout */
	UINT,	 /* 1, 2, 4 or 8 bytes, big-endian on the wire */
	BYTES,
	TEXT, /* UTF-8, zero-padded, at least one zero */
	ZERO,
	COUNTERS, /* 8 bytes each, to the end of the message */
	TOKEN,	  /* struct srdma_ctl_token, to the end of the message */
};

struct field {
	uint8_t type;
	uint16_t size; /* bytes on the wire, 0 where it varies */
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
#define REST(TYPE, M)                                                          \
	{                                                                      \
		TYPE, 0, offsetof(MSG, M)                                      \
	}
#define STOP                                                                   \
	{                                                                      \
		END, 0, 0                                                      \
	}

/* The bodies of 10, in wire order. */
static const struct field empty[] = { STOP };
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
	F(UINT, hello.threads),
	F(UINT, hello.thread),
	STOP,
};
static const struct field open_[] = {
	F(UINT, open.ring),
	F(UINT, open.flags),
	STOP,
};
static const struct field open_answer[] = {
	F(UINT, opened.leg),
	F(BYTES, opened.token),
	F(TEXT, opened.address),
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
	F(UINT, reg_mr.mr.log2_block),
	F(UINT, reg_mr.mr.depth),
	PAD(2),
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
	F(UINT, keys.qp.qpn),
	F(UINT, keys.qp.role),
	F(UINT, keys.qp.suite),
	F(UINT, keys.qp.level),
	F(UINT, keys.qp.tag_len),
	F(UINT, keys.qp.mode),
	F(UINT, keys.qp.secret_len),
	PAD(2),
	F(BYTES, keys.qp.generation),
	F(BYTES, keys.qp.peer_eid),
	F(UINT, keys.qp.peer_qpn),
	F(UINT, keys.qp.peer_pn),
	F(UINT, keys.qp.peer_mtu),
	F(UINT, keys.qp.peer_window),
	F(UINT, keys.qp.peer_reads),
	F(TEXT, keys.qp.peer_wire),
	F(TEXT, keys.identity),
	F(BYTES, keys.qp.tx_secret),
	F(BYTES, keys.qp.rx_secret),
	F(BYTES, keys.qp.group_key),
	STOP,
};
static const struct field qpn[] = { F(UINT, qpn), STOP };
static const struct field wait_answer[] = {
	F(UINT, wait.state),
	F(UINT, wait.reason),
	STOP,
};
static const struct field stats_answer[] = { REST(COUNTERS, stats), STOP };
static const struct field key[] = {
	F(UINT, secret.qpn),	     F(UINT, secret.secret_len),
	F(UINT, secret.group),	     PAD(2),
	F(BYTES, secret.generation), F(BYTES, secret.peer_eid),
	F(UINT, secret.peer_qpn),    STOP,
};
static const struct field key_answer[] = {
	F(BYTES, secret_answer.secret),
	F(BYTES, secret_answer.group_key),
	STOP,
};
static const struct field cap[] = {
	F(UINT, cap.leg),
	F(UINT, cap.cap.key),
	F(UINT, cap.cap.offset),
	F(UINT, cap.cap.length),
	F(UINT, cap.cap.bearer.expiry),
	F(UINT, cap.cap.rights),
	PAD(3),
	F(BYTES, cap.cap.bearer.holder),
	STOP,
};
static const struct field cap_answer[] = { REST(TOKEN, capability), STOP };
static const struct field install[] = {
	F(UINT, install.leg),
	REST(TOKEN, install.token),
	STOP,
};
static const struct field install_answer[] = { F(UINT, handle), STOP };
static const struct field uninstall[] = {
	F(UINT, uninstall.leg),
	F(UINT, uninstall.handle),
	STOP,
};
static const struct field revoke[] = {
	F(UINT, revoke.leg),
	F(UINT, revoke.range.key),
	F(UINT, revoke.range.offset),
	F(UINT, revoke.range.length),
	STOP,
};

static const struct field rotate[] = {
	F(UINT, rotate.leg),
	F(UINT, rotate.age),
	STOP,
};
static const struct field rotate_answer[] = {
	F(UINT, rotated.serial),
	F(UINT, rotated.behind),
	STOP,
};
static const struct field rekey[] = {
	F(UINT, rekey.qpn),	   F(UINT, rekey.direction),
	F(UINT, rekey.secret_len), PAD(2),
	F(BYTES, rekey.secret),	   STOP,
};
static const struct field end[] = {
	F(UINT, end.qpn),
	F(UINT, end.reason),
	STOP,
};

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
	[SRDMA_CTL_KEY] = { "KEY", { key, key_answer } },
	[SRDMA_CTL_CAP] = { "CAP", { cap, cap_answer } },
	[SRDMA_CTL_INSTALL] = { "INSTALL", { install, install_answer } },
	[SRDMA_CTL_UNINSTALL] = { "UNINSTALL", { uninstall, empty } },
	[SRDMA_CTL_REVOKE] = { "REVOKE", { revoke, empty } },
	[SRDMA_CTL_ROTATE] = { "ROTATE", { rotate, rotate_answer } },
	[SRDMA_CTL_REKEY] = { "REKEY", { rekey, empty } },
	[SRDMA_CTL_EXPIRE] = { "EXPIRE", { qpn, empty } },
	[SRDMA_CTL_END] = { "END", { end, empty } },
};

static const struct field *layout(uint32_t kind, enum srdma_ctl_side side)
{
	return kind < SRDMA_CTL_KINDS ? kinds[kind].body[side] : NULL;
}

const char *srdma_ctl_name(uint32_t kind)
{
	return kind < SRDMA_CTL_KINDS ? kinds[kind].name : NULL;
}

struct srdma_ctl_span srdma_ctl_body_len(uint32_t kind,
					 enum srdma_ctl_side side)
{
	const struct field *f = layout(kind, side);
	struct srdma_ctl_span span = { 0, 0 };

	for (; f && f->type != END; f++) {
		span.least += f->size;
		span.most += f->size;
		if (f->type == COUNTERS)
			span.most += 8 * SRDMA_CTL_MAX_COUNTERS;
		if (f->type == TOKEN) {
			span.least += SRDMA_CTL_TOKEN_MIN;
			span.most += SRDMA_CAPABILITY_MAX;
		}
	}
	return span;
}

static int all_zero(const uint8_t *in, size_t len)
{
	uint8_t bits = 0;

	while (len--)
		bits |= *in++;
	return bits == 0;
}

static int is_padded_text(const uint8_t *in, size_t size)
{
	size_t len = strnlen((const char *)in, size);

	return len < size && srdma_utf8_check(in, len) &&
	       all_zero(in + len, size - len);
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

static int token_decode(struct srdma_ctl_token *t, const uint8_t *in,
			size_t len)
{
	if (len < SRDMA_CTL_TOKEN_MIN || len > sizeof(t->bytes))
		return -EPROTO;
	t->len = (uint32_t)len;
	memcpy(t->bytes, in, len);
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

		if (f->type == COUNTERS)
			return counters_decode(m, in, len);
		if (f->type == TOKEN)
			return token_decode((void *)((char *)m + f->at), in,
					    len);
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
	if (!srdma_utf8_check(in, len))
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

static int token_encode(uint8_t *out, const struct srdma_ctl_token *t)
{
	if (t->len < SRDMA_CTL_TOKEN_MIN || t->len > sizeof(t->bytes))
		return -EINVAL;
	memcpy(out, t->bytes, t->len);
	return (int)t->len;
}

/* What takes the rest of a message. */
static int rest_encode(uint8_t *out, const struct field *f,
		       const struct srdma_ctl_msg *m)
{
	if (f->type == COUNTERS)
		return counters_encode(out, m);
	return token_encode(out, (const void *)((const char *)m + f->at));
}

/* A text keeps its length; what stands behind its end is not sent. */
static int padded_text_encode(uint8_t *out, const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	if (len == size || !srdma_utf8_check(text, len))
		return -EINVAL;
	memcpy(out, text, len);
	memset(out + len, 0, size - len);
	return 0;
}

static int body_encode(uint8_t *out, const struct field *f,
		       const struct srdma_ctl_msg *m)
{
	uint8_t *start = out;
	int rest;

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
		case TOKEN:
			rest = rest_encode(out, f, m);
			return rest < 0 ? rest : (int)(out - start) + rest;
		}
	}
	return (int)(out - start);
}

static int text_encode(uint8_t *out, const char *text)
{
	size_t len = strnlen(text, SRDMA_CTL_MAX_BODY + 1);

	if (len > SRDMA_CTL_MAX_BODY || !srdma_utf8_check(text, len))
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
