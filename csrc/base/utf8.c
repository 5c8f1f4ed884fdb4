#include "base/utf8.h"

#include <stdint.h>

/* First bytes of UTF-8 sequences and the second bytes that each allows (RFC
 * 3629 section 4). */
static const struct lead {
	uint8_t first, last; /* range of the first byte */
	uint8_t len;	     /* of the sequence, bytes */
	uint8_t low, high;   /* range of the second byte; later bytes: 80..BF */
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

/* Length of the valid sequence at s in bytes; 0 if it is invalid or a zero
 * byte. */
static size_t utf8_len(const uint8_t *s, size_t left)
{
	for (size_t i = 0; i < sizeof(leads) / sizeof(*leads); i++)
		if (s[0] >= leads[i].first && s[0] <= leads[i].last)
			return follows(&leads[i], s, left) ? leads[i].len : 0;
	return 0;
}

int srdma_utf8_check(const void *text, size_t len)
{
	const uint8_t *in = text;

	while (len) {
		size_t n = utf8_len(in, len);

		if (n == 0)
			return 0;
		in += n;
		len -= n;
	}
	return 1;
}
