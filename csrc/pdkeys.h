/*
 * Keys of a PD: K_PD, the parent of its QPs' secrets in key mode pd
 * (docs/protocol.md 3.4), and K_PDmem, that of its regions' memory keys (6.1).
 * Random, one set per leg; they never leave the worker, but K_PD to the members
 * of a declared trust group.
 */
#ifndef SRDMA_PDKEYS_H
#define SRDMA_PDKEYS_H

#include <stddef.h>
#include <stdint.h>

struct srdma_cmac;

enum {
	SRDMA_EID_LEN = 16, /* the random part of an endpoint id */
	SRDMA_GENERATION_LEN = 8,
	SRDMA_GROUP_KEY_LEN = 48, /* K_PD16 | K_PD32 */
};

struct srdma_pdkeys {
	uint8_t pd[SRDMA_GROUP_KEY_LEN]; /* K_PD16 | K_PD32 */
	uint8_t mem[16];		 /* K_PDmem */
};

struct srdma_endpoint {
	uint8_t eid[SRDMA_EID_LEN];
	uint32_t qpn; /* SRC QPN */
};

/* One direction of one life of a pair of QPs. */
struct srdma_pdkeys_flow {
	struct srdma_endpoint receiver, sender;
	uint8_t generation[SRDMA_GENERATION_LEN];
};

/* S of a flow, of len bytes: 16 or 32. 0; -EINVAL, -EIO: out is wiped. */
int srdma_pdkeys_secret(const struct srdma_pdkeys *keys, uint8_t *out,
			size_t len, const struct srdma_pdkeys_flow *flow);

/* The same by a context of the caller, for who derives often: S has
 * c->key_len bytes. 0; -EIO: out is wiped. */
int srdma_pdkeys_secret_with(struct srdma_cmac *c,
			     const struct srdma_pdkeys *keys, uint8_t *out,
			     const struct srdma_pdkeys_flow *flow);

#endif
