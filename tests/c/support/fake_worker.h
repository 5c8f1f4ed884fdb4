/*
 * A worker's control socket, served by a thread of the test: it answers every
 * request as a healthy worker does, unless the test's hook changes the answer.
 */
#ifndef SRDMA_TESTS_FAKE_WORKER_H
#define SRDMA_TESTS_FAKE_WORKER_H

#include <pthread.h>
#include <stdint.h>

#include "host/socket.h"
#include "port/port.h"
#include "relay/ctl.h"

enum fake_action {
	FAKE_ANSWER,
	FAKE_SILENCE, /* no answer */
	FAKE_CLOSE,   /* ends the connection */
	FAKE_RAW,     /* sends raw_len bytes of raw instead */
};

enum { FAKE_CLIENTS = 32, FAKE_KEY = 7, FAKE_QPN = 0x100 };

#define FAKE_LEG_ADDRESS "127.0.0.1:4791" /* of legs over verbs */

struct fake_worker {
	char folder[64];
	char path[SRDMA_SOCKET_PATH];
	/* Called with the answer that would be sent (kind and tag are set) and
	 * its descriptors; may change both. Set while no request is under
	 * way. */
	enum fake_action (*hook)(struct fake_worker *w, struct srdma_ctl_msg *m,
				 struct srdma_socket_fds *fds);
	struct srdma_ctl_msg request; /* the last one, for the hook */
	enum srdma_port_kind legs;    /* kind of its legs */
	uint8_t raw[SRDMA_CTL_MAX];
	size_t raw_len;
	unsigned calls; /* for the hook */
	/* Private to fake_worker.c. */
	pthread_t thread;
	int listener, stop;
	int client[FAKE_CLIENTS];
	unsigned clients;
	uint32_t qpn; /* of the last QP */
};

void fake_worker_start(struct fake_worker *w);
void fake_worker_stop(struct fake_worker *w);

/* Ends all its connections. */
void fake_worker_cut(const struct fake_worker *w);

/* Fixture of cmocka: *state is a struct fake_worker. */
int fake_worker_setup(void **state);
int fake_worker_teardown(void **state);

/* Turns an answer into a refusal. */
enum fake_action fake_refuse(struct srdma_ctl_msg *m, uint32_t status,
			     const char *text);

#endif
