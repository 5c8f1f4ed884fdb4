/* The policy of a program that `srdma run` started (docs/run.md 3). */
#ifndef VERBS_POLICY_H
#define VERBS_POLICY_H

#include <stddef.h>
#include <stdint.h>

#define VERBS_POLICY_ENV "SRDMA_RUN"

enum {
	VERBS_PEERS = 64,
	VERBS_ALLOWED = 16,
	VERBS_PATTERNS = VERBS_PEERS * VERBS_ALLOWED,
	VERBS_POLICY_LEN = 16384,
};

/* The agents of a range of GIDs, and the identities that are allowed there. */
struct verbs_peer {
	uint8_t gid[16];
	uint8_t bits; /* of the prefix, 0 to 128 */
	const char *allowed[VERBS_ALLOWED];
	unsigned n;
};

struct verbs_policy {
	const char *worker, *agent, *identity;
	/* Paths of the system's libraries, for a leg over RDMA. NULL: none. */
	const char *libibverbs, *librdmacm;
	const char
		*map_memory; /* "1": pages of regions may be moved; NULL: no */
	struct verbs_peer peers[VERBS_PEERS];
	unsigned n;
	char text[VERBS_POLICY_LEN]; /* the strings point into it */
};

/* Reads the policy from the environment. NULL, or what is wrong with it. */
const char *verbs_policy_read(struct verbs_policy *p);

/* The narrowest range with the GID; NULL: the policy has none. */
const struct verbs_peer *verbs_policy_peer(const struct verbs_policy *p,
					   const uint8_t gid[16]);

/* The identities that are allowed at any GID, VERBS_PATTERNS at most. Returns their
 * number. The strings are those of the policy. */
size_t verbs_policy_patterns(const struct verbs_policy *p, const char **out);

#endif
