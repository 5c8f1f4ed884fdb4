/* Two connected shared-memory wire ports, for tests. */
#ifndef SHM_PAIR_H
#define SHM_PAIR_H

#include <stdint.h>

#include "port/port.h"

enum { SHM_PATIENCE = 100000 }; /* polls until something must have happened */

struct shm_pair {
	char dir[64];
	struct srdma_port *a, *b; /* 16 and 128 slots; b does not connect */
	struct srdma_conn *conn, *far; /* a's connection to b, and b's end */
};

/* A fresh directory; a port in one; both fail the test if they cannot. */
void shm_make_dir(char dir[64]);
struct srdma_port *shm_wire(const char *dir, const char *name, uint32_t slots);

/* cmocka's setup and teardown; *state is a struct shm_pair. */
int shm_pair_setup(void **state);
int shm_pair_teardown(void **state);
/* Connect a to b. */
void shm_pair_join(struct shm_pair *p);

int shm_poll(struct srdma_port *port, struct srdma_event *ev, int n);

/* The next event of a port, which must be of this kind. */
struct srdma_event shm_expect(struct srdma_port *port,
			      enum srdma_event_kind kind);
/* No event comes, however often it is polled. */
void shm_expect_nothing(struct srdma_port *port);
/* The next event is this number, received on conn. */
void shm_expect_number(struct srdma_port *port, struct srdma_conn *conn,
		       uint32_t number);

/* Commit one datagram, without flush. 0, -EAGAIN when full, -errno. */
int shm_send_one(struct srdma_conn *conn, const void *data, uint32_t len);
int shm_send_number(struct srdma_conn *conn, uint32_t number);

/* Open descriptors of this process. */
int shm_count_fds(void);

#endif
