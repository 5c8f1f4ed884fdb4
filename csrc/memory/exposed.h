/*
 * Bytes of files that peers may access through regions, by trust set (RFC 5042
 * 6.3.6; docs/local-interface.md 3.5). Regions of different trust sets must not
 * give access to the same bytes of a file if one of them permits writing,
 * unless both are shared. The legs of one process are one trust set.
 */
#ifndef SRDMA_MEMORY_EXPOSED_H
#define SRDMA_MEMORY_EXPOSED_H

#include <stdint.h>

enum {
	SRDMA_EXPOSED_BITS = 12,
	SRDMA_EXPOSED_BUCKETS = 1 << SRDMA_EXPOSED_BITS
};

/* Private: a file, and the bytes of one trust set in it. */
struct srdma_exposed_file;
struct srdma_exposed_set;

struct srdma_exposed_table {
	/* Random and secret, set before the first range: programs choose the
	 * files that they register. */
	uint64_t salt;
	struct srdma_exposed_file *bucket[SRDMA_EXPOSED_BUCKETS];
};

/* The bytes that a region exposes to peers, and how. */
struct srdma_exposure {
	uint64_t dev, ino;    /* of the file */
	uint64_t first, last; /* bytes of the file, inclusive */
	uint64_t trust;	      /* number of the trust set */
	int written;	      /* peers may write: WRITE or atomics */
	int shared;
};

/* Embedded in a region. Zeroed: it is in no table. */
struct srdma_exposed {
	struct srdma_exposed_set *set;
	struct srdma_exposed *child[2];
	uint64_t first, last;
	uint64_t most;	   /* greatest `last` of its subtree */
	uint32_t priority; /* random: parents have the higher one */
	uint8_t written, shared;
};

/*
 * Enter the range. priority is random. Returns 0; -EBUSY: a region of another
 * trust set exposes some of the bytes, and one of both permits writing;
 * -ENOMEM.
 */
int srdma_exposed_add(struct srdma_exposed_table *t, struct srdma_exposed *e,
		      const struct srdma_exposure *what, uint32_t priority);
/* Accepts a range that is in no table. */
void srdma_exposed_remove(struct srdma_exposed_table *t,
			  struct srdma_exposed *e);

#endif
