/*
 * What the control messages do (docs/protocol.md 10): a table of kind and
 * handler, ownership of legs, answers that wait for the relay. No sockets:
 * messages come in as bytes and descriptors, answers go out by a call.
 */
#ifndef OFFLOAD_REQUESTS_H
#define OFFLOAD_REQUESTS_H

#include <stddef.h>
#include <stdint.h>

#include "relay/ctl.h"
#include "legs.h"

struct requests;

enum { REQUESTS_MAX_FDS = 4, REQUESTS_ANSWER_FDS = 2 };

/* One connection. Embedded in what owns the socket. */
struct client {
	unsigned number;  /* below LEGS_USERS, unique among the living */
	int pid;	  /* of the process that connected */
	int pidfd;	  /* the same, that cannot become another; or -1 */
	unsigned waiting; /* answers that it is still owed */
};

/* One packet of a client. The descriptors stay the caller's. */
struct message {
	uint8_t data[SRDMA_CTL_MAX + 1]; /* the last byte: it was longer */
	size_t len;
	int fds[REQUESTS_MAX_FDS];
	unsigned nfds; /* more than fits: some were lost */
};

struct answer {
	uint8_t data[SRDMA_CTL_MAX];
	size_t len;
	int fds[REQUESTS_ANSWER_FDS]; /* -1: none. Not to be closed */
};

struct requests_params {
	struct srdma_relay *relay;
	const struct srdma_port *host, *wire;
	const char *host_dev;
	const char *name;
	const uint8_t *suites;	  /* SRDMA_CTL_SUITES_LEN bytes, for HELLO */
	uint32_t threads, thread; /* of the worker, and which this is */
	int allow_unprotected;
	/* Send to the client, at once or later; the answer is not kept. */
	void (*send)(struct client *client, const struct answer *answer);
};

int requests_create(struct requests **out, const struct requests_params *p);
void requests_destroy(struct requests *q);

/*
 * Do what a message asks. 0, or -EPROTO: its header is broken, so that no
 * answer can name it; the connection is to be closed.
 */
int requests_handle(struct requests *q, struct client *client,
		    const struct message *message);
/* The client is gone: its legs end, nothing is sent to it any more. */
void requests_leave(struct requests *q, struct client *client);
/* Send the answers that have become due. Returns how many still wait. */
unsigned requests_poll(struct requests *q);
uint32_t requests_qps(const struct requests *q);

#endif
