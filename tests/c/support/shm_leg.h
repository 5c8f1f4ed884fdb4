/* Fixture: a host's leg at a shared-memory host port. */
#ifndef SHM_LEG_H
#define SHM_LEG_H

#include <stddef.h>

#include "host/leg_shm.h"
#include "port/port.h"

enum { SHM_RING = 64 };

struct shm_leg {
	struct srdma_port *port;
	struct srdma_leg_shm *host;
	struct srdma_conn *leg; /* established */
	struct srdma_leg_answer answer;
};

/* cmocka's setup and teardown; *state is a struct shm_leg. */
int shm_leg_setup(void **state);
int shm_leg_teardown(void **state);

/* Parameters that OPEN of this host would have: ring SHM_RING, own pid. */
struct srdma_leg_params shm_leg_params(const struct srdma_leg_shm *host);

/* Creates a memfd, which the caller closes; seals 0: none. */
int shm_memfd(size_t len, unsigned int seals);

/* Returns 1 if fd is readable now. */
int shm_readable(int fd);

#endif
