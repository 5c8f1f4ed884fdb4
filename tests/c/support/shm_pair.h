/* Fixture: two connected shared-memory wire ports. */
#ifndef SHM_PAIR_H
#define SHM_PAIR_H

#include <stdint.h>

#include "port/port.h"

/* Number of polls after which an expected event counts as missing. */
enum { SHM_PATIENCE = 100000 };

struct shm_pair {
	char dir[64];
	struct srdma_port *a, *b;      /* with 16 and 128 slots */
	struct srdma_conn *conn, *far; /* ends of the connection: a's, b's */
};

/*
 * Create a temporary directory, and a wire port in a directory. On an error the
 * test fails.
 */
void shm_make_dir(char dir[64]);
struct srdma_port *shm_wire(const char *dir, const char *name, uint32_t slots);

/* cmocka's setup and teardown; *state is a struct shm_pair. */
int shm_pair_setup(void **state);
int shm_pair_teardown(void **state);
/* Connects a to b and sets conn and far. */
void shm_pair_join(struct shm_pair *p);

int shm_poll(struct srdma_port *port, struct srdma_event *ev, int n);

/* Returns the next event of a port, which must be of this kind. */
struct srdma_event shm_expect(struct srdma_port *port,
			      enum srdma_event_kind kind);
/* Asserts that no event arrives in 600 polls. */
void shm_expect_nothing(struct srdma_port *port);
/* Asserts that this number is received next, on conn. */
void shm_expect_number(struct srdma_port *port, struct srdma_conn *conn,
		       uint32_t number);

/*
 * Commits one datagram, or a number as one, without a flush. Returns 0, -EAGAIN:
 * the ring is full, or -errno.
 */
int shm_send_one(struct srdma_conn *conn, const void *data, uint32_t len);
int shm_send_number(struct srdma_conn *conn, uint32_t number);

#endif
