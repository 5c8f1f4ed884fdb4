/*
 * The socket of a system agent (docs/agent.md 2), served by a thread of the
 * test, one channel after the other.
 */
#ifndef SRDMA_TESTS_FAKE_AGENT_H
#define SRDMA_TESTS_FAKE_AGENT_H

#include <pthread.h>

#include "host/socket.h"

struct fake_agent {
	char path[SRDMA_SOCKET_PATH];
	/* Called after the first message of a channel, which is closed when it
	 * returns. Set while no channel is open. */
	void (*act)(int fd);
	/* The last first message, each zero byte as a dot, so that strstr()
	 * finds every text. */
	char first[8192];
	unsigned passed;   /* descriptors that came with it */
	unsigned channels; /* opened so far */
	/* Private to fake_agent.c. */
	pthread_t thread;
	int listener;
};

/* Listens at FOLDER/agent. */
void fake_agent_start(struct fake_agent *a, const char *folder);
/* Returns when `act` has. */
void fake_agent_stop(struct fake_agent *a);

/* Sends an event with the text "because", and with the descriptors if fds is
 * not NULL. code: "" except for `error`. */
void fake_agent_report(int fd, const char *event, const char *code,
		       const struct srdma_socket_fds *fds);

#endif
