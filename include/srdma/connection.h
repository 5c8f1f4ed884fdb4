/*
 * Connections between QPs of two hosts (docs/protocol.md 8). The agent
 * (docs/agent.md) authenticates the peer and gives the keys to the worker; this
 * process has neither private keys nor traffic secrets. Errors and threads:
 * device.h.
 *
 * Functions that contact the agent may also return
 * -ENXIO: no agent is named; -ENOENT, -ECONNREFUSED: no agent is there; -EPERM:
 * it is of another user; -ECONNRESET: it ended. After the end of a system agent
 * another one at the same path continues connections and listeners
 * (docs/c-library.md 5); -ECONNRESET then means that an attempt failed 60 s or
 * more after the library noticed the end.
 * An `error` of the agent is -EINVAL (config, credentials, name), -EPERM
 * (policy, clock), -EHOSTUNREACH (unreachable), -EACCES (tls, identity, hash),
 * -EIO (worker, gone), -ETIMEDOUT (timeout), or -ECONNABORTED: the peer
 * refused, or any other code.
 */
#ifndef SRDMA_PUBLIC_CONNECTION_H
#define SRDMA_PUBLIC_CONNECTION_H

#include <stddef.h>
#include <stdint.h>

#include "srdma/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct srdma_device;
struct srdma_pd;
struct srdma_qp;
struct srdma_connection;
struct srdma_listener;

enum {
	SRDMA_QPS_MAX = 256, /* of a connection */
	SRDMA_DATA_MAX = 256,
	SRDMA_IDENTITY_LEN = 256,
};

/* Protection of packets: suite id, level and tag length in bytes
 * (docs/protocol.md 3.3). */
struct srdma_protection {
	uint8_t suite;
	uint8_t level; /* enum srdma_level */
	uint8_t tag_len;
};

/* Strings and arrays are read during the call only. */
struct srdma_connection_attr {
	/* This end: a name that the agent's policy has, or, for an agent that
	 * accepts paths, the absolute path NAME of NAME.pem and NAME.key: the
	 * agent has another working directory. */
	const char *identity;
	/* Permitted identities of the peer, * stands for any characters but /;
	 * n_peers 0: every identity of the CA. */
	const char *const *peers;
	size_t n_peers;
	/* Made by srdma_create_qp() from pd, 1 to SRDMA_QPS_MAX. Both ends have
	 * the same number. */
	struct srdma_qp *const *qps;
	size_t n_qps;
	/* In order of preference; n_protections 0: AES-128-GCM, AES-256-GCM,
	 * ChaCha20-Poly1305 at level AEAD, as far as the worker has them. */
	const struct srdma_protection *protections;
	size_t n_protections;
	/* Key modes (enum srdma_mode) in order of preference; n_modes 0:
	 * all modes for srdma_accept(), BASIC for the others. */
	const uint8_t *modes;
	size_t n_modes;
	/* Up to SRDMA_DATA_MAX bytes for the peer. */
	const void *data;
	size_t data_len;
	/* Seconds; 0 stands for the value in brackets: until the QPs are
	 * connected (30); between renewals of the secrets (3,600); of a renewal
	 * (60); that secrets live without renewal (86,400). docs/agent.md 4,
	 * 5. */
	uint32_t timeout, renew_every, renew_limit, max_age;
};

/*
 * Connects QPs to a listener at host and port, as client of the key exchange
 * (docs/protocol.md 8.1). Returns when the QPs of both ends can be used.
 * -EINVAL: an attribute; -ENOTSUP: the worker has none of the protections;
 * -ETIMEDOUT; -EPROTO: an illegal message of the agent. If the agent got the
 * request, a failure sets the QPs to SRDMA_QP_STATUS_ERROR: destroy them, as
 * the exchange may have given them keys.
 */
int srdma_connect(struct srdma_connection **connection, struct srdma_pd *pd,
		  const char *host, uint16_t port,
		  const struct srdma_connection_attr *attr);

/*
 * Connects one QP with the QP qp_num of the worker that has a GID
 * (srdma_query_device()). The peer's program calls for this QP too; either call
 * may come first, and waits for the other one as long as attr->timeout
 * (docs/agent.md 11). attr->n_qps is 1. Errors: those of srdma_connect();
 * -EINVAL: also a worker without a GID; -EPERM: also a GID that the policy of
 * the agent does not have, or an agent without a policy.
 */
int srdma_connect_qp(struct srdma_connection **connection, struct srdma_pd *pd,
		     const uint8_t gid[SRDMA_GID_LEN], uint32_t qp_num,
		     const struct srdma_connection_attr *attr);

struct srdma_listener_attr {
	const char *identity; /* as for a connection */
	const char *const *peers;
	size_t n_peers;
};

/*
 * Listens for peers at the first address of host (NULL: every address, of IPv6
 * and of IPv4) and port (0: any free one; srdma_listener_port() tells it). The
 * TCP socket is given to the agent, which authenticates peers before they are
 * reported (docs/agent.md 3). A listener is used by one thread at a time;
 * different listeners of a device are independent.
 * If the worker is on another computer, its agent listens there instead, at an
 * address that its policy permits (docs/control-link.md 4): host is an IP
 * address of the NIC.
 * Errors also: -EADDRINUSE, -EADDRNOTAVAIL; -EINVAL: host has no address;
 * -EAGAIN: no name server answers; another -errno of the socket, such as
 * -EMFILE.
 */
int srdma_listen(struct srdma_listener **listener, struct srdma_device *device,
		 const char *host, uint16_t port,
		 const struct srdma_listener_attr *attr);
uint16_t srdma_listener_port(const struct srdma_listener *listener);
/* Readable when srdma_get_request() may return without waiting, or has to look
 * for a restarted agent: call it with timeout_ms 0. Owned by the listener. */
int srdma_listener_fd(const struct srdma_listener *listener);
/* Ends listening; connections stay. NULL is allowed. */
void srdma_close_listener(struct srdma_listener *listener);

/* An authenticated peer that waits for srdma_accept(). */
struct srdma_request {
	uint64_t arrival; /* its number at the agent */
	char identity[SRDMA_IDENTITY_LEN];
};

/*
 * Waits up to timeout_ms (negative: no limit) for the next peer. Peers that the
 * agent refuses are not reported. 0; -ETIMEDOUT; -EAGAIN: the agent is away,
 * call again; -EINTR: a signal; -EPROTO: an illegal message of the agent. After
 * an `error` of the agent the listener does not listen any more, and all further
 * calls return the same error.
 */
int srdma_get_request(struct srdma_listener *listener,
		      struct srdma_request *request, int timeout_ms);

/* As srdma_connect(), with a peer of srdma_get_request(). A listener may serve
 * several PDs of its device. -ECONNABORTED: also if the peer does not wait any
 * more, for example because the agent was restarted. */
int srdma_accept(struct srdma_connection **connection, struct srdma_pd *pd,
		 const struct srdma_request *request,
		 const struct srdma_connection_attr *attr);

/*
 * Ends a connection: its keys are not renewed any more, and the peer's QPs go
 * to error, PEER_CLOSED. The QPs of this end remain, for srdma_destroy_qp(),
 * which may also be called before. Returns when the agent has ended the
 * connection, at most 5 s later. NULL is allowed.
 */
void srdma_disconnect(struct srdma_connection *connection);

struct srdma_connection_info {
	char identity[SRDMA_IDENTITY_LEN]; /* of the peer, a URI */
	uint8_t data[SRDMA_DATA_MAX];	   /* of the peer */
	size_t data_len;
	struct srdma_protection protection; /* in force */
	uint8_t mode;			    /* enum srdma_mode */
};

void srdma_query_connection(const struct srdma_connection *connection,
			    struct srdma_connection_info *info);

/*
 * Reads the events that arrived, and looks for another agent if the agent
 * ended; it does not wait. 0: the connection lives, also while the agent is
 * away. Otherwise why it ended, as -errno with a text: -ESHUTDOWN: the peer
 * closed it; -EPROTO: an illegal message of the agent; -ECONNABORTED: also if a
 * restarted agent has no such session.
 */
int srdma_check_connection(struct srdma_connection *connection);
/* Readable when srdma_check_connection() may return another value, or has to
 * look for a restarted agent. Owned by the connection. */
int srdma_connection_fd(const struct srdma_connection *connection);

/*
 * New secrets for all QPs by a new key exchange (docs/protocol.md 8.5). Returns
 * when they are in effect; requests continue meanwhile. -ETIMEDOUT, after
 * timeout_ms (negative: no limit), and -EINTR, a signal, do not stop the
 * exchange. -EAGAIN, after timeout_ms: the agent is away; the next one gets the
 * request. -EINVAL: SRDMA_LEVEL_NONE has no secrets. Errors also:
 * srdma_check_connection().
 */
int srdma_renew(struct srdma_connection *connection, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
