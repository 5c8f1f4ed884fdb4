/*
 * Execution of control messages (docs/local-interface.md 3): a table of kinds
 * and handlers, ownership of legs, and responses that wait for the relay. Has
 * no sockets: requests come in as bytes and descriptors, responses go out
 * through a callback.
 */
#ifndef OFFLOAD_REQUESTS_H
#define OFFLOAD_REQUESTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/passed_fds.h"
#include "ledger/ledger.h"
#include "relay/ctl.h"
#include "legs.h"

struct requests;

enum { REQUESTS_MAX_FDS = 4, REQUESTS_ANSWER_FDS = 2 };

/* One control connection. Embedded in the structure that owns the socket. */
struct client {
	unsigned number; /* below LEGS_USERS, unique among open connections */
	int pid;	 /* pid of the process that connected */
	uint32_t uid;	 /* its user */
	int is_agent;	 /* 1: has the role AGENT */
	uint32_t agent_flags; /* of AGENT */
	/* It is charged to this account. If the kind is PROGRAM, the client is
	 * restricted, and its process is not that of pid, uid and pidfd. */
	struct srdma_account *account;
	uint32_t keep;	  /* s for which its legs outlive it (RESTRICT) */
	int pidfd;	  /* pidfd of the same process, or -1 */
	unsigned waiting; /* responses pending */
	/* They, as items of deferred.h. */
	LIST_HEAD(, deferred) deferred;
};

/* One packet of a client. The caller owns the descriptors. */
struct message {
	uint8_t data[SRDMA_CTL_MAX + 1]; /* if the last byte is used, the
					    packet was too long */
	size_t len;
	int fds[SRDMA_PASSED_FDS_MOST];
	unsigned nfds; /* no request takes more than REQUESTS_MAX_FDS */
};

struct answer {
	uint8_t data[SRDMA_CTL_MAX];
	size_t len;
	int fds[REQUESTS_ANSWER_FDS]; /* -1: none. Owned by the sender */
};

struct requests_params {
	struct srdma_relay *relay;
	const struct srdma_port *host, *wire;
	const char *host_dev;
	const char *name;
	const uint8_t *suites;	 /* SRDMA_CTL_SUITES_LEN bytes, for HELLO */
	uint32_t workers, index; /* number of worker processes, and the
				     number of this one */
	uint8_t gid[SRDMA_CTL_GID_LEN]; /* of the worker; zeros: none */
	int allow_unprotected;
	uint32_t agent_uid; /* user that may take the role AGENT, besides
			       root */
	int agent_only; /* 1: without an agent no client gives keys either */
	/*
	 * Send to the client now or later. *answer is valid only during the
	 * call.
	 */
	void (*send)(struct client *client, const struct answer *answer);
};

/* Returns 0 or -ENOMEM. The objects that *p refers to must outlive it. */
int requests_create(struct requests **out, const struct requests_params *p);
void requests_destroy(struct requests *q);

/*
 * A client connected, of which number, pid, uid and pidfd are set: find its
 * account, and charge it. Returns 0, or -EDQUOT or -ENOMEM with *refusal, the
 * message to send before the connection is closed.
 */
int requests_join(struct requests *q, struct client *client,
		  struct answer *refusal);
/*
 * Execute a request. Returns 0, or -EPROTO if its header is malformed: no
 * response can refer to it then, and the connection must be closed.
 */
int requests_handle(struct requests *q, struct client *client,
		    const struct message *message);
/* The client disconnected: its legs are closed, or left without an owner, and
 * nothing is sent to it. */
void requests_leave(struct requests *q, struct client *client);
/*
 * Send the responses that are due, and close legs whose time is over. Returns
 * the number of requests still pending.
 */
unsigned requests_poll(struct requests *q);
/* When requests_poll() has to be called at the latest, ns; UINT64_MAX: never.
 */
uint64_t requests_timer(const struct requests *q);

#endif
