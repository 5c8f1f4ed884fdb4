/*
 * Keys of a PD: K_PD, parent of its QPs' secrets in key mode pd
 * (docs/protocol.md 3.4), and K_PDmem, parent of its regions' memory keys
 * (6.1). Each leg has one random set. The keys never leave the worker, except
 * K_PD of a leg in a trust group, which is sent to the group's members.
 */
#ifndef SRDMA_PDKEYS_H
#define SRDMA_PDKEYS_H

#include <stddef.h>
#include <stdint.h>

struct srdma_cmac;

enum {
	SRDMA_EID_LEN = 16, /* endpoint id without the QPN */
	SRDMA_GENERATION_LEN = 8,
	SRDMA_GROUP_KEY_LEN = 48, /* K_PD16 | K_PD32 */
};

/*
 * K_PD can be rotated. The previous one is kept as long as it has users; users
 * are counted per K_PD and name it by its serial number.
 */
struct srdma_pdkeys {
	uint8_t pd[SRDMA_GROUP_KEY_LEN];     /* K_PD16 | K_PD32 */
	uint8_t before[SRDMA_GROUP_KEY_LEN]; /* previous K_PD; zero: none */
	uint8_t mem[16];		     /* K_PDmem */
	uint32_t serial;		     /* of pd; before: serial - 1 */
	uint32_t users, users_before;
};

struct srdma_endpoint {
	uint8_t eid[SRDMA_EID_LEN];
	uint32_t qpn; /* SRC QPN */
};

/* One direction of one connection of a pair of QPs. */
struct srdma_pdkeys_flow {
	struct srdma_endpoint receiver, sender;
	uint8_t generation[SRDMA_GENERATION_LEN];
};

/* Add or remove a user of the K_PD with this serial, the current or the
 * previous one. A previous K_PD without users is wiped. */
void srdma_pdkeys_hold(struct srdma_pdkeys *keys, uint32_t serial);
void srdma_pdkeys_release(struct srdma_pdkeys *keys, uint32_t serial);

/* Replaces the current K_PD, which becomes the previous one if it has users. 0,
 * or -EBUSY if the previous K_PD still has users. */
int srdma_pdkeys_rotate(struct srdma_pdkeys *keys,
			const uint8_t pd[SRDMA_GROUP_KEY_LEN]);

/* Bytes of keys stored now. */
uint32_t srdma_pdkeys_bytes(const struct srdma_pdkeys *keys);

/* Derives S of a flow from the current K_PD; len is 16 or 32 bytes. 0, -EINVAL,
 * -ENOMEM, -EIO; on failure out is wiped. */
int srdma_pdkeys_secret(const struct srdma_pdkeys *keys, uint8_t *out,
			size_t len, const struct srdma_pdkeys_flow *flow);

/* Derives S of a flow from the K_PD with this serial, of which the caller is a
 * user, with the context c; S has c->key_len bytes. 0, -EIO, -ENOMEM; on
 * failure out is wiped. */
int srdma_pdkeys_secret_with(struct srdma_cmac *c,
			     const struct srdma_pdkeys *keys, uint32_t serial,
			     uint8_t *out,
			     const struct srdma_pdkeys_flow *flow);

#endif
