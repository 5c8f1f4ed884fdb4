/*
 * Two ends of a connection in this process, at two workers: $SRDMA_A and
 * $SRDMA_B are their control sockets, $SRDMA_AGENT the agent of both, or
 * $SRDMA_AGENT_A and $SRDMA_AGENT_B are their agents. $SRDMA_IDENTITY_A and
 * $SRDMA_IDENTITY_B are their identities; else a and b.
 * $SRDMA_DEVICE_A and $SRDMA_DEVICE_B are the RDMA devices of their legs; else
 * the route chooses. $SRDMA_UNPROTECTED: without protection (level none).
 */
#ifndef SRDMA_TESTS_PAIR_H
#define SRDMA_TESTS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <srdma/srdma.h>

enum { SIZE = 65536, WAIT_MS = 20000, DEPTH = 4 };

#define ok(call)                                                               \
	do {                                                                   \
		int rc_ = (call);                                              \
		if (rc_ < 0)                                                   \
			fail_msg("%s: %d: %s", #call, rc_,                     \
				 srdma_error_text());                          \
	} while (0)

struct end {
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
	struct srdma_mr *mr;
	struct srdma_mr_info memory; /* SIZE bytes */
	struct srdma_connection *connection;
	struct srdma_listener *listener;
	int rc; /* of the thread that accepts */
	char text[512];
};

struct pair {
	struct end a, b; /* a connects to b */
};

/* cmocka's setup and teardown; *state is a struct pair. Queues have DEPTH
 * places. */
int pair_setup(void **state);
int pair_teardown(void **state);

/* Connects the QPs of the ends by the listener of b. */
void pair_join(struct pair *p);

/* The next completion of an end. */
struct srdma_wc pair_next(struct end *e);
/* The same; it must be a success of this operation. */
struct srdma_wc pair_next_ok(struct end *e, enum srdma_wc_opcode opcode);

/* A signaled request of a on b's region. */
struct srdma_send_wr pair_request(const struct pair *p,
				  enum srdma_wr_opcode opcode, uint32_t length);
/* Posts a request of a and waits for its success. */
void pair_run(struct pair *p, struct srdma_send_wr *wr,
	      enum srdma_wc_opcode opcode);
void pair_post_receive(struct end *e, uint64_t wr_id, uint32_t length);

/* Repetitions of a loop: normal, or normal / $SRDMA_SHORTER. */
int pair_count(int normal);

/* As poll(2): 1 if fd is readable within so many ms, else 0. */
int pair_readable(int fd, int ms);

#endif
