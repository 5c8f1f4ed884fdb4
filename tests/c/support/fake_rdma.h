/*
 * A replacement of libibverbs and librdmacm (host/rdma.h): one device, whose
 * connection manager gives the answers that the test chose, and whose queues
 * the test completes. The test program replaces srdma_rdma_load().
 */
#ifndef SRDMA_TESTS_FAKE_RDMA_H
#define SRDMA_TESTS_FAKE_RDMA_H

#include <stdint.h>

#include "host/rdma.h"

enum {
	FAKE_HELLO = 56,
	FAKE_SENT = 1024,   /* SENDs that are recorded */
	FAKE_SILENCE_ = -1, /* in place of an event: none */
	FAKE_RKEY = 900,    /* of the first MR; the next has one more */
};

struct fake_sent {
	uint32_t length;
	unsigned flags;
	uint64_t wr_id;
	uint8_t first;	   /* byte: the opcode of a descriptor */
	uint32_t consumed; /* records that a descriptor reports */
};

struct fake_rdma {
	/* Set by the test. */
	const char *fails; /* function, without ibv_ or rdma_ */
	int after;	   /* calls of it that succeed before */
	int error;	   /* its errno */
	int addr_events[4], route_event, connect_event; /* answers */
	int status;					/* of all events */
	uint8_t reject[8]; /* private data of a REJ */
	uint8_t reject_len;
	int no_device;	     /* 1: the id gets no device */
	uint32_t inline_max; /* of a QP; creation with more fails */
	enum ibv_atomic_cap atomics;
	int reads; /* max_qp_rd_atom */

	/* Seen by the fake. */
	int objects; /* that exist */
	int resolved, disconnected, reads_allowed;
	uint8_t hello[FAKE_HELLO];
	struct rdma_conn_param param;
	struct ibv_qp_attr attr[IBV_QPS_ERR + 1]; /* by the new state */
	enum ibv_qp_state state;
	uint32_t receives; /* posted */
	uint32_t polls;	   /* looks at the CQ */
	struct fake_sent sent[FAKE_SENT];
	uint32_t sends;
	uint32_t beats; /* SENDs of length 0 */
	uint64_t mr_length;
	int mr_access; /* of the last MR */
};

extern struct fake_rdma fake_rdma;

/* In place of srdma_rdma_load(). */
int fake_rdma_load(const struct srdma_rdma **out);

/* Fixture of cmocka: a device that works. The teardown fails if an object was
 * not destroyed. */
int fake_rdma_setup(void **state);
int fake_rdma_teardown(void **state);

/* A completion of the SEND wr_id, or of a receive; tells a sleeper. */
void fake_rdma_complete(enum ibv_wc_opcode opcode, uint64_t wr_id,
			enum ibv_wc_status status);
/* An event of the connection manager arrives. */
void fake_rdma_event(enum rdma_cm_event_type type);

#endif
