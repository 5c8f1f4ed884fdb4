/*
 * Rows of suites (docs/protocol.md 3.3), each with its known answer, one file
 * per family. suite.c joins them into one table. Private to
 * csrc/crypto/suite*.c.
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

/* Limits of packets per key and of failed tags; 3.3 derives them. */
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

/* Families and rows are in ascending order of their ids. */
extern const struct srdma_suite_rows srdma_suite_rows_aead;
extern const struct srdma_suite_rows srdma_suite_rows_hmac;
extern const struct srdma_suite_rows srdma_suite_rows_mac;

#endif
