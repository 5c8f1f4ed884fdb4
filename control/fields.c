#include "control/fields.h"

#include <errno.h>
#include <string.h>

#include "base/utf8.h"

enum { DEPTH_MAX = 16 }; /* of nested maps and arrays */

/* Major types of RFC 8949 3.1. */
enum { UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };
enum { SIMPLE_FALSE = 20, SIMPLE_TRUE = 21 };

struct reader {
	const uint8_t *at, *end;
};

struct item {
	unsigned major;
	uint64_t value;
};

static int take(struct reader *r, const uint8_t **out, uint64_t len)
{
	if (len > (uint64_t)(r->end - r->at))
		return -EPROTO;
	*out = r->at;
	r->at += len;
	return 0;
}

/* The value behind the first byte; -EPROTO if fewer bytes could express it. */
static int long_value(struct reader *r, uint64_t *value, unsigned info)
{
	static const uint64_t least[] = { 24, 1 << 8, 1 << 16,
					  UINT64_C(1) << 32 };
	const uint8_t *bytes;
	unsigned size;

	if (info > 27)
		return -EPROTO;
	size = 1U << (info - 24);
	if (take(r, &bytes, size))
		return -EPROTO;
	*value = 0;
	for (unsigned i = 0; i < size; i++)
		*value = *value << 8 | bytes[i];
	return *value < least[info - 24] ? -EPROTO : 0;
}

static int read_head(struct reader *r, struct item *item)
{
	const uint8_t *first;

	if (take(r, &first, 1))
		return -EPROTO;
	item->major = *first >> 5;
	item->value = *first & 31;
	return item->value < 24
		       ? 0
		       : long_value(r, &item->value, (unsigned)item->value);
}

/* UTF-8, in which a zero byte is legal. */
static int check_text(const uint8_t *text, size_t len)
{
	const uint8_t *const end = text + len;

	while (text < end) {
		const uint8_t *zero = memchr(text, 0, (size_t)(end - text));
		const uint8_t *stop = zero ? zero : end;

		if (!srdma_utf8_check(text, (size_t)(stop - text)))
			return -EPROTO;
		text = zero ? zero + 1 : end;
	}
	return 0;
}

static int read_string(struct reader *r, const struct item *item)
{
	const uint8_t *data;

	if (take(r, &data, item->value))
		return -EPROTO;
	return item->major == TEXT ? check_text(data, item->value) : 0;
}

static int read_item(struct reader *r, unsigned depth);

/* Keys are unique, and in the bytewise order of their encodings. */
static int read_map(struct reader *r, uint64_t pairs, unsigned depth)
{
	const uint8_t *before = NULL;
	size_t before_len = 0;

	for (uint64_t i = 0; i < pairs; i++) {
		const uint8_t *const key = r->at;
		size_t len, common;
		int order;

		if (r->at == r->end || *r->at >> 5 != TEXT ||
		    read_item(r, depth))
			return -EPROTO;
		len = (size_t)(r->at - key);
		common = len < before_len ? len : before_len;
		order = before ? memcmp(before, key, common) : -1;
		if (order > 0 || (order == 0 && before_len >= len) ||
		    read_item(r, depth))
			return -EPROTO;
		before = key;
		before_len = len;
	}
	return 0;
}

static int read_array(struct reader *r, uint64_t items, unsigned depth)
{
	for (uint64_t i = 0; i < items; i++)
		if (read_item(r, depth))
			return -EPROTO;
	return 0;
}

static int read_item(struct reader *r, unsigned depth)
{
	struct item item;

	if (read_head(r, &item))
		return -EPROTO;
	switch (item.major) {
	case UINT:
	case NEGATIVE:
		return 0;
	case BYTES:
	case TEXT:
		return read_string(r, &item);
	case ARRAY:
		return depth ? read_array(r, item.value, depth - 1) : -EPROTO;
	case MAP:
		return depth ? read_map(r, item.value, depth - 1) : -EPROTO;
	case SIMPLE:
		return item.value == SIMPLE_FALSE || item.value == SIMPLE_TRUE
			       ? 0
			       : -EPROTO;
	}
	return -EPROTO;
}

int fields_check(const uint8_t *in, size_t len)
{
	struct reader r = { in, in + len };

	if (!len || *in >> 5 != MAP || read_item(&r, DEPTH_MAX))
		return -EPROTO;
	return r.at == r.end ? 0 : -EPROTO;
}

static void read_field(struct reader *r, struct field *f)
{
	const struct reader begin = *r;
	struct reader inside = begin;
	struct item item = { 0 };

	*f = (struct field){ 0 };
	if (read_head(&inside, &item) || read_item(r, DEPTH_MAX))
		return;
	f->type = item.major;
	f->number = item.value;
	if (item.major == TEXT) {
		f->text = inside.at;
		f->len = (size_t)item.value;
	}
}

int fields_find(struct field *out, const uint8_t *in, size_t len,
		const char *key)
{
	struct reader r = { in, in + len };
	struct item map;

	if (read_head(&r, &map))
		return 0;
	for (uint64_t i = 0; i < map.value; i++) {
		struct field name;

		read_field(&r, &name);
		read_field(&r, out);
		if (name.len == strlen(key) &&
		    memcmp(name.text, key, name.len) == 0)
			return 1;
	}
	return 0;
}
