/*
 * Who computes the suites. OpenSSL has all rows, everywhere; another provider
 * has some of them, faster, on some machines. One that fails a known answer of
 * any of its rows is not used at all. Which one computes changes no byte on
 * the wire.
 */
#ifndef SRDMA_PROVIDER_H
#define SRDMA_PROVIDER_H

#include "crypto/suite.h"

/* Not OpenSSL, for which NULL stands. Of one thread, as are its contexts. */
struct srdma_provider {
	const char *name;
	/* Its strategy for a row; NULL: it has none. */
	const struct srdma_suite_verbs *(*verbs)(const struct srdma_suite *s);
	/* After all its contexts. */
	void (*destroy)(struct srdma_provider *p);
};

/*
 * By name: "openssl", "ipsec-mb" (x86-64, built where its header is), or NULL:
 * the fastest that runs on this CPU. *out may be NULL with 0: OpenSSL. -ENOENT:
 * no such provider in this build; -ENOTSUP: not on this CPU; -ENOMEM; -EIO: it
 * failed a known answer, and somebody should look into that machine.
 */
int srdma_provider_create(struct srdma_provider **out, const char *name);

/* NULL is allowed. */
void srdma_provider_destroy(struct srdma_provider *p);

/* "openssl" for NULL. */
const char *srdma_provider_name(const struct srdma_provider *p);

/* How the provider computes a row: its own way, or OpenSSL's. */
const struct srdma_suite_verbs *
srdma_provider_verbs(const struct srdma_provider *p,
		     const struct srdma_suite *s);

#endif
