#include "crypto/provider.h"

#include <errno.h>
#include <string.h>

#ifdef SRDMA_HAVE_IPSECMB
#include "crypto/provider_ipsecmb.h"
#endif
#ifdef SRDMA_HAVE_NETTLE
#include "crypto/provider_nettle.h"
#endif

struct kind {
	const char *name;
	int (*create)(struct srdma_provider **out);
	int (*suits)(void); /* 0: not by default; NULL: create() decides */
};

static int openssl_create(struct srdma_provider **out)
{
	*out = NULL;
	return 0;
}

/* In order of preference; the portable one is the last. */
static const struct kind kinds[] = {
#ifdef SRDMA_HAVE_IPSECMB
	{ "ipsec-mb", srdma_ipsecmb_create, NULL },
#endif
#ifdef SRDMA_HAVE_NETTLE
	{ "nettle", srdma_nettle_create, srdma_nettle_suits },
#endif
	{ "openssl", openssl_create, NULL },
};

enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

static int selftest(struct srdma_provider *p)
{
	const struct srdma_suite *s;
	int r = 0;

	for (unsigned i = 0; !r && (s = srdma_suite_at(i)) != NULL; i++)
		if (p->verbs(s))
			r = srdma_suite_selftest(s, p);
	return r;
}

static int create(struct srdma_provider **out, const struct kind *kind)
{
	int r = kind->create(out);

	if (r || !*out)
		return r;
	r = selftest(*out);
	if (!r)
		return 0;
	srdma_provider_destroy(*out);
	*out = NULL;
	return r;
}

static int wanted(const struct kind *kind, const char *name)
{
	if (name)
		return strcmp(name, kind->name) == 0;
	return !kind->suits || kind->suits();
}

int srdma_provider_create(struct srdma_provider **out, const char *name)
{
	int r = -ENOENT;

	*out = NULL;
	for (int i = 0; i < KINDS; i++) {
		if (!wanted(&kinds[i], name))
			continue;
		r = create(out, &kinds[i]);
		if (name || r != -ENOTSUP)
			break;
	}
	return r;
}

void srdma_provider_destroy(struct srdma_provider *p)
{
	if (p)
		p->destroy(p);
}

const char *srdma_provider_name(const struct srdma_provider *p)
{
	return p ? p->name : "openssl";
}

static int ends_with(const char *name, const char *end)
{
	const size_t n = strlen(name), m = strlen(end);

	return n >= m && strcmp(name + n - m, end) == 0;
}

const struct srdma_suite_verbs *
srdma_provider_own(const struct srdma_provider_row *rows, unsigned n,
		   const struct srdma_suite *s)
{
	for (; n; n--, rows++)
		if (rows->openssl == s->verbs &&
		    ends_with(s->algorithm, rows->family))
			return s->key_len == rows->lacks ? NULL : rows->own;
	return NULL;
}

const struct srdma_suite_verbs *
srdma_provider_verbs(const struct srdma_provider *p,
		     const struct srdma_suite *s)
{
	const struct srdma_suite_verbs *own = p ? p->verbs(s) : NULL;

	return own ? own : s->verbs;
}
