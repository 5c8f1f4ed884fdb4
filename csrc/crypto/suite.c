#include "crypto/suite.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/suite_rows.h"
#include "wire/wire.h"

/* Shorter tags have a lower limit of failed tags (3.3). */
enum { FULL_STRENGTH = 16 };
#define SHORT_TAG_FORGERIES ((uint64_t)1 << 32)

static const struct srdma_suite_rows *const families[] = {
	&srdma_suite_rows_aead,
	&srdma_suite_rows_hmac,
	&srdma_suite_rows_mac,
};

enum { FAMILIES = sizeof(families) / sizeof(families[0]) };

const struct srdma_suite *srdma_suite_at(unsigned i)
{
	for (int f = 0; f < FAMILIES; f++) {
		if (i < families[f]->n)
			return &families[f]->row[i];
		i -= families[f]->n;
	}
	return NULL;
}

const struct srdma_suite *srdma_suite_by_id(uint8_t id)
{
	const struct srdma_suite *s;

	for (unsigned i = 0; (s = srdma_suite_at(i)) != NULL; i++)
		if (s->id == id)
			break;
	return s;
}

const struct srdma_suite *srdma_suite_by_name(const char *name)
{
	const struct srdma_suite *s;

	for (unsigned i = 0; (s = srdma_suite_at(i)) != NULL; i++)
		if (strcmp(s->name, name) == 0)
			break;
	return s;
}

int srdma_suite_tag_ok(const struct srdma_suite *s, uint32_t tag_len)
{
	return tag_len >= s->tag_min && tag_len <= s->tag_len &&
	       srdma_wire_tag_code(tag_len) > 0;
}

/* RFC 5042 A5.2, X5 */
int srdma_suite_judge(int r, uint8_t code[SRDMA_SUITE_MAX_TAG],
		      const uint8_t *tag, uint32_t tag_len)
{
	if (!r && !tag)
		r = -EIO;
	if (!r && !srdma_equal(code, tag, tag_len))
		r = -EBADMSG;
	srdma_wipe(code, SRDMA_SUITE_MAX_TAG);
	return r;
}

int srdma_suite_shorten(int r, uint8_t code[SRDMA_SUITE_MAX_TAG], uint8_t *tag,
			uint32_t tag_len)
{
	if (!r)
		memcpy(tag, code, tag_len);
	srdma_wipe(code, SRDMA_SUITE_MAX_TAG);
	return r;
}

uint64_t srdma_suite_forgeries(const struct srdma_suite *s, uint32_t tag_len)
{
	return tag_len < FULL_STRENGTH ? SHORT_TAG_FORGERIES : s->forgeries;
}
