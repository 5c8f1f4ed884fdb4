/*
 * Settings of connections and listeners, the first message of a channel
 * (docs/agent.md 2).
 */
#ifndef SRDMA_HOST_SETTINGS_H
#define SRDMA_HOST_SETTINGS_H

#include "host/message.h"

/* Seconds until the QPs of a connection are connected. */
uint32_t srdma_settings_timeout(const struct srdma_connection_attr *attr);

enum srdma_settings_role {
	SRDMA_SETTINGS_CONNECT,
	SRDMA_SETTINGS_ACCEPT,
	SRDMA_SETTINGS_RENDEZVOUS,
};

/* Address of a listener, number of a peer, or its QP, by role. */
struct srdma_settings_peer {
	enum srdma_settings_role role;
	const char *host;
	uint16_t port;
	uint64_t arrival;
	const uint8_t *gid; /* SRDMA_GID_LEN bytes */
	uint32_t qp_num;
};

/*
 * Checks the attributes of a connection and writes its message. 0, or -EINVAL
 * or -ENOTSUP with an error text: an attribute; -ENOMEM. The caller frees *w.
 */
int srdma_settings_connection(struct srdma_message *w,
			      const struct srdma_pd *pd,
			      const struct srdma_settings_peer *peer,
			      const struct srdma_connection_attr *attr);

/*
 * Writes the message by which a connection with these attributes, checked
 * before, returns to a restarted agent (docs/agent.md 8). 0 or -ENOMEM.
 */
int srdma_settings_rejoin(struct srdma_message *w, const struct srdma_pd *pd,
			  const struct srdma_connection_attr *attr);

/* An address at which the agent listens, on another computer. */
struct srdma_settings_address {
	const char *host; /* an IP address; NULL: any */
	uint16_t port;	  /* 0: any */
};

/* The same as srdma_settings_connection() for a listener. at: NULL if a
 * listening socket is beside the message. */
int srdma_settings_listener(struct srdma_message *w,
			    const struct srdma_listener_attr *attr,
			    const struct srdma_settings_address *at);

#endif
