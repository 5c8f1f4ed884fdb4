/*
 * The rows of suites (docs/protocol.md 3.3), each beside its known answer,
 * in one file per family; suite.c makes one table of them. For csrc/suite*.c
 * only.
 */
#ifndef SRDMA_SUITE_ROWS_H
#define SRDMA_SUITE_ROWS_H

#include <stdint.h>

#include "crypto/suite.h"
#include "wire/wire.h"

enum {
	SRDMA_ROW_AEAD = 1 << SRDMA_LEVEL_AEAD,
	SRDMA_ROW_MAC = 1 << SRDMA_LEVEL_HEADER | 1 << SRDMA_LEVEL_PACKET,
};

/* Packets per key, and tags that may fail: 3.3 says where they come from. */
#define SRDMA_ROW_GCM_PACKETS ((uint64_t)1 << 26)
#define SRDMA_ROW_OCB_PACKETS ((uint64_t)1 << 39)
#define SRDMA_ROW_PACKETS     ((uint64_t)1 << 40)
#define SRDMA_ROW_FORGERIES   ((uint64_t)1 << 36)

#define ANSWER(...)                                                            \
	&(const struct srdma_suite_answer)                                     \
	{                                                                      \
		__VA_ARGS__                                                    \
	}

struct srdma_suite_rows {
	const struct srdma_suite *row;
	unsigned n;
};

#define SRDMA_ROWS(rows)                                                       \
	{                                                                      \
		rows, sizeof(rows) / sizeof((rows)[0])                         \
	}

/* In the order of their ids, and so is each one's rows. */
extern const struct srdma_suite_rows srdma_suite_rows_aead;
extern const struct srdma_suite_rows srdma_suite_rows_hmac;
extern const struct srdma_suite_rows srdma_suite_rows_mac;

#endif
