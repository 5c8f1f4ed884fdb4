/*
 * Client of a worker's control socket (docs/local-interface.md 3). A call sends
 * one request and waits for its answer; several threads may call at once.
 * Functions that fail set the error text (error.h).
 */
#ifndef SRDMA_HOST_CONTROL_H
#define SRDMA_HOST_CONTROL_H

#include <sys/types.h>

#include "host/socket.h"
#include "relay/ctl.h"

struct srdma_control;

enum { SRDMA_CONTROL_TIMEOUT_MS = 10000 };

/*
 * Path of the control socket of worker process `process`. worker: a path, or a
 * name in $XDG_RUNTIME_DIR/srdma; NULL: $SRDMA_WORKER. 0; -ENXIO: none is
 * named, or the name cannot be resolved; -ENAMETOOLONG.
 */
int srdma_control_path(char out[SRDMA_SOCKET_PATH], const char *worker,
		       uint32_t process);

/* timeout_ms limits the connect and each call. Errors of
 * srdma_socket_connect(), and -ENOMEM. */
int srdma_control_connect(struct srdma_control **out, const char *path,
			  int timeout_ms);
/* The same with a connected socket, which it owns from now on, also after an
 * error. -ENOMEM. */
int srdma_control_create(struct srdma_control **out, int fd, const char *path,
			 int timeout_ms);
/* c may be NULL. */
void srdma_control_close(struct srdma_control *c);

/*
 * Ends the connection towards the worker, which then ends the legs made by it
 * and closes its own end. No further request is sent: a call returns -ENOTCONN
 * when the worker has closed its end, and -ETIMEDOUT before.
 */
void srdma_control_end(struct srdma_control *c);

/* Process that listens at the socket, the worker or its parent, as the kernel
 * knows it in the PID namespace of this process; 0: unknown. */
pid_t srdma_control_pid(const struct srdma_control *c);

/* Readable when srdma_control_alive() may return 0. */
int srdma_control_fd(const struct srdma_control *c);

/* 0 once the worker closed the connection, else 1. Never blocks, except while
 * another thread's call is under way. */
int srdma_control_alive(struct srdma_control *c);

/*
 * Sends the request *m (kind and body) with the descriptors *out, and replaces
 * *m by the answer and *in by its descriptors, which the caller closes. out and
 * in may be NULL. The caller wipes an *m with secrets.
 * 0; the worker's refusal as -errno; -ETIMEDOUT; -ENOTCONN: the worker ended;
 * -EPROTO: an illegal answer; -EINVAL: a value does not fit into its field;
 * another -errno of the socket, such as -ENOBUFS: the worker may be alive.
 */
int srdma_control_call(struct srdma_control *c, struct srdma_ctl_msg *m,
		       const struct srdma_socket_fds *out,
		       struct srdma_socket_fds *in);

/* As srdma_control_call(), with another time limit. */
int srdma_control_call_until(struct srdma_control *c, struct srdma_ctl_msg *m,
			     const struct srdma_socket_fds *out,
			     struct srdma_socket_fds *in, int64_t deadline);

/*
 * The two halves of a call, which do not wait. srdma_control_take() replaces
 * the request *m by its answer; -ETIMEDOUT: it is not there yet, and *m is as it
 * was. No other call may come between them.
 */
int srdma_control_ask(struct srdma_control *c, struct srdma_ctl_msg *m);
int srdma_control_take(struct srdma_control *c, struct srdma_ctl_msg *m);

#endif
