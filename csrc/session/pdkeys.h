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

/*
 * K_PD can be rotated: the one before stays as long as somebody uses it. Users
 * are counted, by the serial number of what they use.
 */
struct srdma_pdkeys {
	uint8_t pd[SRDMA_GROUP_KEY_LEN];     /* K_PD16 | K_PD32 */
	uint8_t before[SRDMA_GROUP_KEY_LEN]; /* zero: not used any more */
	uint8_t mem[16];		     /* K_PDmem */
	uint32_t serial;		     /* of pd; before has one less */
	uint32_t users, users_before;
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

/* One user more, or less, of the K_PD with this serial, which is one of the
 * two. What nobody uses any more is wiped, unless it is the newest. */
void srdma_pdkeys_hold(struct srdma_pdkeys *keys, uint32_t serial);
void srdma_pdkeys_release(struct srdma_pdkeys *keys, uint32_t serial);

/* Another K_PD takes the place of the newest. 0; -EBUSY: the one before it is
 * used still. */
int srdma_pdkeys_rotate(struct srdma_pdkeys *keys,
			const uint8_t pd[SRDMA_GROUP_KEY_LEN]);

/* Bytes of keys that are there. */
uint32_t srdma_pdkeys_bytes(const struct srdma_pdkeys *keys);

/* S of a flow by the newest K_PD, of len bytes: 16 or 32. 0; -EINVAL, -EIO: out
 * is wiped. */
int srdma_pdkeys_secret(const struct srdma_pdkeys *keys, uint8_t *out,
			size_t len, const struct srdma_pdkeys_flow *flow);

/* By the K_PD with this serial, which the caller holds, and by a context of
 * the caller: S has c->key_len bytes. 0; -EIO: out is wiped. */
int srdma_pdkeys_secret_with(struct srdma_cmac *c,
			     const struct srdma_pdkeys *keys, uint32_t serial,
			     uint8_t *out,
			     const struct srdma_pdkeys_flow *flow);

#endif
