/*
 * Providers compute the suites. OpenSSL implements every row on every machine;
 * another provider implements some rows faster on some machines. A provider
 * that fails a known-answer test is not used at all. The choice of provider
 * changes no byte on the wire.
 */
#ifndef SRDMA_PROVIDER_H
#define SRDMA_PROVIDER_H

#include "crypto/suite.h"

/* A provider other than OpenSSL, which is represented by NULL. It and its
 * contexts are used by one thread. */
struct srdma_provider {
	const char *name;
	/* Its implementation of a row; NULL if it has none. */
	const struct srdma_suite_verbs *(*verbs)(const struct srdma_suite *s);
	/* Called after all its contexts are destroyed. */
	void (*destroy)(struct srdma_provider *p);
};

/* Rows of which a provider has an implementation of its own. */
struct srdma_provider_row {
	const char *family; /* last part of the name of OpenSSL's algorithm */
	const struct srdma_suite_verbs *openssl, *own;
	uint8_t lacks; /* key length without an own one, bytes; 0: none */
};

/* For struct srdma_provider: the provider's verbs of s by its table of n rows;
 * NULL if it has none. */
const struct srdma_suite_verbs *
srdma_provider_own(const struct srdma_provider_row *rows, unsigned n,
		   const struct srdma_suite *s);

/*
 * Creates a provider by name: "openssl", "ipsec-mb" (x86-64), "nettle", the last
 * two if built with their headers; or NULL for the first in the order of
 * docs/architecture.md, *Crypto providers*, that suits this CPU. Runs the
 * self-test of its rows.
 * Returns 0 (*out NULL: OpenSSL), -ENOENT (this build has no such provider),
 * -ENOTSUP (the CPU lacks a required feature), -ENOMEM, or -EIO (a known-answer
 * test failed: the machine or the library is faulty).
 */
int srdma_provider_create(struct srdma_provider **out, const char *name);

/* Destroys p after its last context. NULL is allowed. */
void srdma_provider_destroy(struct srdma_provider *p);

/* Name of p; "openssl" for NULL. */
const char *srdma_provider_name(const struct srdma_provider *p);

/* p's implementation of a row, or OpenSSL's if p has none. */
const struct srdma_suite_verbs *
srdma_provider_verbs(const struct srdma_provider *p,
		     const struct srdma_suite *s);

#endif
