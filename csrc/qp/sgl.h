/* A scatter/gather list: local memory of one message, in parts that may lie in
 * several regions (docs/local-interface.md 2.1). */
#ifndef SRDMA_QP_SGL_H
#define SRDMA_QP_SGL_H

#include "wire/wire.h"

/* The part for the message's bytes from `at` on, at most `most` bytes, that lies
 * in one SGE. Requires that the SGL has a byte `at`, and most > 0. */
struct srdma_sge srdma_sgl_part(const struct srdma_sge *sgl, uint32_t at,
				uint32_t most);

#endif
