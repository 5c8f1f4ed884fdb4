/*
 * Head of a capability token (docs/protocol.md 6.2): offsets of its fields in
 * bytes. The keys follow at SRDMA_CAPABILITY_HEAD, then the check sum.
 */
#ifndef SRDMA_MEMORY_TOKEN_H
#define SRDMA_MEMORY_TOKEN_H

enum srdma_token_layout {
	SRDMA_TOKEN_FLAGS = 3,
	SRDMA_TOKEN_RKEY = 4,
	SRDMA_TOKEN_START = 8,
	SRDMA_TOKEN_END = 16,
	SRDMA_TOKEN_LO = 24,
	SRDMA_TOKEN_HI = 32,
	SRDMA_TOKEN_HOLDER = 40,
	SRDMA_TOKEN_EXPIRY = 56,
	SRDMA_TOKEN_LOG2_BLOCK = 60,
	SRDMA_TOKEN_DEPTH_LIMIT = 61,
	SRDMA_TOKEN_RIGHTS = 62,
	SRDMA_TOKEN_ZERO = 63,
};

/* The bytes before the flags; 1 is the version. */
#define SRDMA_TOKEN_MAGIC "sC\1"

enum { SRDMA_TOKEN_SEALED = 1 /* flag */ };

#endif
