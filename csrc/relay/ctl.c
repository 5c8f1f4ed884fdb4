#include "relay/ctl.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "relay/ctl_layout.h"
#include "base/utf8.h"

static const struct srdma_ctl_field *layout(uint32_t kind,
					    enum srdma_ctl_side side)
{
	const struct srdma_ctl_kind_layout *k = srdma_ctl_layout_of(kind);

	return k ? k->body[side] : NULL;
}

const char *srdma_ctl_name(uint32_t kind)
{
	const struct srdma_ctl_kind_layout *k = srdma_ctl_layout_of(kind);

	return k ? k->name : NULL;
}

struct srdma_ctl_span srdma_ctl_body_len(uint32_t kind,
					 enum srdma_ctl_side side)
{
	const struct srdma_ctl_field *f = layout(kind, side);
	struct srdma_ctl_span span = { 0, 0 };

	for (; f && f->type != SRDMA_FIELD_END; f++) {
		span.least += f->size;
		span.most += f->size;
		if (f->type == SRDMA_FIELD_COUNTERS)
			span.most += 8 * SRDMA_CTL_MAX_COUNTERS;
		if (f->type == SRDMA_FIELD_TOKEN) {
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

static int field_decode(struct srdma_ctl_msg *m,
			const struct srdma_ctl_field *f, const uint8_t *in)
{
	void *member = (char *)m + f->at;

	switch (f->type) {
	case SRDMA_FIELD_UINT:
		uint_store(member, f->size, in);
		return 0;
	case SRDMA_FIELD_ZERO:
		return all_zero(in, f->size) ? 0 : -EPROTO;
	case SRDMA_FIELD_TEXT:
		if (!is_padded_text(in, f->size))
			return -EPROTO;
		break;
	}
	memcpy(member, in, f->size);
	return 0;
}

static int body_decode(struct srdma_ctl_msg *m, const struct srdma_ctl_field *f,
		       const uint8_t *in, size_t len)
{
	for (; f->type != SRDMA_FIELD_END; f++) {
		int rc;

		if (f->type == SRDMA_FIELD_COUNTERS)
			return counters_decode(m, in, len);
		if (f->type == SRDMA_FIELD_TOKEN)
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
	const struct srdma_ctl_field *f;

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

/* Encodes a field of variable length, which ends the message. */
static int rest_encode(uint8_t *out, const struct srdma_ctl_field *f,
		       const struct srdma_ctl_msg *m)
{
	if (f->type == SRDMA_FIELD_COUNTERS)
		return counters_encode(out, m);
	return token_encode(out, (const void *)((const char *)m + f->at));
}

/* Pads a text with zeros to the field's size. */
static int padded_text_encode(uint8_t *out, const char *text, size_t size)
{
	size_t len = strnlen(text, size);

	if (len == size || !srdma_utf8_check(text, len))
		return -EINVAL;
	memcpy(out, text, len);
	memset(out + len, 0, size - len);
	return 0;
}

static int body_encode(uint8_t *out, const struct srdma_ctl_field *f,
		       const struct srdma_ctl_msg *m)
{
	uint8_t *start = out;
	int rest;

	for (; f->type != SRDMA_FIELD_END; out += f->size, f++) {
		const void *member = (const char *)m + f->at;

		switch (f->type) {
		case SRDMA_FIELD_UINT:
			uint_load(out, member, f->size);
			break;
		case SRDMA_FIELD_BYTES:
			memcpy(out, member, f->size);
			break;
		case SRDMA_FIELD_ZERO:
			memset(out, 0, f->size);
			break;
		case SRDMA_FIELD_TEXT:
			if (padded_text_encode(out, member, f->size) < 0)
				return -EINVAL;
			break;
		case SRDMA_FIELD_COUNTERS:
		case SRDMA_FIELD_TOKEN:
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
	const struct srdma_ctl_field *f = layout(m->kind, side);
	uint8_t *body = out + SRDMA_CTL_HEADER_LEN;
	int len;

	if (m->status != 0 && side == SRDMA_CTL_REQUEST)
		return -EINVAL;
	/* An error response may repeat an unknown kind. */
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
