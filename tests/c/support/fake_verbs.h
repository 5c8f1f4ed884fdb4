/*
 * A simulated machine with two RDMA devices, "fake0" and "fake1". It replaces
 * the functions of libibverbs and librdmacm that the verbs port calls, in tests
 * that use fake_verbs_reset(). Nothing happens by itself: a test makes the
 * events and completions, and looks at what the port did.
 */
#ifndef FAKE_VERBS_H
#define FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

enum {
	FAKE_VERBS_DEVICES = 2,
	FAKE_VERBS_GIDS = 4,
	FAKE_VERBS_QUEUE = 8192,
	FAKE_VERBS_HELLO = 56, /* private data of a REQ */
};

/* One posted send. */
struct fake_verbs_send {
	struct ibv_send_wr wr; /* without sg_list and next */
	uint32_t length;
};

struct fake_verbs {
	/* Texts of the GIDs (RoCE v2) of each device; NULL ends the list. */
	const char *gids[FAKE_VERBS_DEVICES][FAKE_VERBS_GIDS];
	uint32_t gid_type; /* of all */
	struct sockaddr_storage bound;
	struct sockaddr_storage resolved; /* of rdma_resolve_addr() */
	struct fake_verbs_send sent[FAKE_VERBS_QUEUE];
	uint32_t sends;
	uint32_t receives;	/* posted and not used */
	struct ibv_qp_attr rts; /* of the last QP that went to RTS */
	uint8_t refused[8];	/* private data of the last REJ; zero: none */
	uint32_t refusals;	/* REJs */
	struct rdma_cm_id *id;	/* of the last request or connect() */
	uint32_t accepted, disconnected;
};

extern struct fake_verbs fake_verbs;

/*
 * fake0 has 10.0.0.1 and 2001:db8::1, fake1 has 10.0.0.2; both have a link-local
 * address. Their network interfaces have the indexes 7 and 8.
 */
void fake_verbs_reset(void);

/* A connection request that the port's next look at the CM finds. */
struct fake_verbs_request {
	int device;	     /* number of the device that it came over */
	const char *address; /* its destination, "IP:PORT" */
	uint8_t hello[FAKE_VERBS_HELLO];
	uint8_t hello_len, reads;
};
void fake_verbs_request(const struct fake_verbs_request *request);

/* An event of the CM for an id. */
void fake_verbs_event(struct rdma_cm_id *id, enum rdma_cm_event_type type);
/* The completion of send number n, counted from 0. */
void fake_verbs_complete(uint32_t n, enum ibv_wc_status status);
/* A message of this length arrives in the oldest receive. */
void fake_verbs_receive(uint32_t length);

#endif
