/*
 * Unix sockets of the worker and of the agent: connect with a check of the
 * owner, and messages with file descriptors and a time limit. Functions return
 * -errno; srdma_socket_connect() sets the error text (error.h), the others do
 * not.
 */
#ifndef SRDMA_HOST_SOCKET_H
#define SRDMA_HOST_SOCKET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	SRDMA_SOCKET_PATH = 108, /* bytes of a path with its NUL: sun_path */
	SRDMA_SOCKET_FDS = 3,	 /* most file descriptors of a message */
};

/* A process to connect to. */
struct srdma_socket_peer {
	const char *path;
	int type;	   /* SOCK_SEQPACKET or SOCK_STREAM */
	const char *what;  /* "worker" */
	const char *start; /* command that starts it */
	uid_t trusted;	   /* its user may be this one, besides this user and
			    * root */
	const char *trust; /* what else to do if it is of another user, or
			    * NULL */
};

/*
 * Connects. timeout_ms 0: it does not wait. Returns the descriptor of the socket; -ENOENT, -ECONNREFUSED: no
 * process listens; -EACCES, -EPERM: it is of another user, who is not trusted;
 * -ENAMETOOLONG; -ETIMEDOUT; -EPROTOTYPE: a socket of another type.
 */
int srdma_socket_connect(const struct srdma_socket_peer *peer, int timeout_ms);

/* Monotonic time in ms, timeout_ms from now; negative: INT64_MAX, no limit. */
int64_t srdma_socket_deadline(int timeout_ms);

/* 1 if the deadline has passed. */
int srdma_socket_late(int64_t deadline);

/* Waits for poll(2) events. 0, -ETIMEDOUT, or -EINTR: a signal. */
int srdma_socket_wait(int fd, short events, int64_t deadline);

struct srdma_socket_fds {
	int fd[SRDMA_SOCKET_FDS];
	unsigned n;
};

void srdma_socket_close_fds(struct srdma_socket_fds *fds);

/*
 * Sends up to len bytes, with the descriptors if fds is not NULL; waits for
 * room. Returns the number of bytes, -ETIMEDOUT or another -errno.
 */
int srdma_socket_send(int fd, const void *data, size_t len,
		      const struct srdma_socket_fds *fds, int64_t deadline);

/*
 * Receives up to len bytes and replaces *fds by the descriptors that came; the
 * caller closes them. If more than SRDMA_SOCKET_FDS came, all are closed and
 * fds->n is 0. Returns the number of bytes, 0 at the end, -ETIMEDOUT or another -errno.
 */
int srdma_socket_receive(int fd, void *data, size_t len,
			 struct srdma_socket_fds *fds, int64_t deadline);

#endif
