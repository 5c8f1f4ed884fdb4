/* A crypto provider that fails to set any key. */
#ifndef FAILING_H
#define FAILING_H

#include <errno.h>

#include "crypto/cmac.h"
#include "crypto/suite.h"

static inline int failing_create(struct srdma_suite_ctx **ctx,
				 struct srdma_provider *p,
				 const struct srdma_suite_key *k)
{
	(void)p;
	(void)k;
	*ctx = NULL;
	return -EIO;
}

static inline int failing_again(struct srdma_suite_ctx *ctx,
				const struct srdma_suite_key *k)
{
	(void)ctx;
	(void)k;
	return -EIO;
}

static inline int failing_forget(struct srdma_suite_ctx *ctx)
{
	(void)ctx;
	return -EIO;
}

/* A CMAC without a context, which cannot get one. */
static inline struct srdma_cmac failing_cmac(void)
{
	static const struct srdma_suite_verbs verbs = {
		.create = failing_create,
		.again = failing_again,
	};

	return (struct srdma_cmac){ .verbs = &verbs };
}

#endif
