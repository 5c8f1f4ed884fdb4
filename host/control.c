#include "host/control.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "host/error.h"

enum { MAX_ERRNO = 4095 };

struct srdma_control {
	int fd;
	int timeout_ms;
	int ending;   /* 1: after srdma_control_end(); read under the lock */
	uint32_t tag; /* of the last request */
	char path[SRDMA_SOCKET_PATH];
	pthread_mutex_t lock;	     /* held by a call */
	uint8_t data[SRDMA_CTL_MAX]; /* the message, wiped after each call */
};

/* --- path ---------------------------------------------------------------- */

static int too_long(const char *worker)
{
	return srdma_error_set(-ENAMETOOLONG,
			       "%.200s: the path of the control socket has at "
			       "most %d bytes",
			       worker, SRDMA_SOCKET_PATH - 1);
}

static int named_path(char out[SRDMA_SOCKET_PATH], const char *worker)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	int n;

	if (strchr(worker, '/'))
		n = snprintf(out, SRDMA_SOCKET_PATH, "%s", worker);
	else if (run && *run)
		n = snprintf(out, SRDMA_SOCKET_PATH, "%s/srdma/%s.sock", run,
			     worker);
	else
		return srdma_error_set(-ENXIO,
				       "worker %.200s: XDG_RUNTIME_DIR "
				       "is not set, so names cannot be "
				       "resolved: give the path of the "
				       "worker's control socket",
				       worker);
	return n < SRDMA_SOCKET_PATH ? n : too_long(worker);
}

int srdma_control_path(char out[SRDMA_SOCKET_PATH], const char *worker,
		       uint32_t process)
{
	int n;

	if (!worker)
		worker = getenv("SRDMA_WORKER");
	if (!worker || !*worker)
		return srdma_error_set(-ENXIO,
				       "no worker is named: give its "
				       "path or name, or set SRDMA_WORKER");
	n = named_path(out, worker);
	if (n < 0)
		return n;
	if (!process)
		return 0;
	n += snprintf(out + n, SRDMA_SOCKET_PATH - (size_t)n, ".%" PRIu32,
		      process);
	return n < SRDMA_SOCKET_PATH ? 0 : too_long(worker);
}

/* --- connection ---------------------------------------------------------- */

/* 1 if the result of a send or receive shows that the worker closed its end.
 * Other errors, such as -ENOBUFS, leave the connection as it is. */
static int is_end(int rc)
{
	return !rc || rc == -EPIPE || rc == -ECONNRESET || rc == -ENOTCONN;
}

int srdma_control_connect(struct srdma_control **out, const char *path,
			  int timeout_ms)
{
	const struct srdma_socket_peer worker = {
		.path = path,
		.type = SOCK_SEQPACKET,
		.what = "worker",
		.trust = ", or name a system agent by SRDMA_AGENT",
		.start = "srdma-offload --control PATH --wire-dev shm:DIR",
	};
	int fd;

	*out = NULL;
	fd = srdma_socket_connect(&worker, timeout_ms);
	return fd < 0 ? fd : srdma_control_create(out, fd, path, timeout_ms);
}

int srdma_control_create(struct srdma_control **out, int fd, const char *path,
			 int timeout_ms)
{
	struct srdma_control *c = calloc(1, sizeof(*c));

	*out = NULL;
	if (!c) {
		close(fd);
		return srdma_error_set(-ENOMEM, "no memory");
	}
	c->fd = fd;
	c->timeout_ms = timeout_ms;
	snprintf(c->path, sizeof(c->path), "%s", path);
	pthread_mutex_init(&c->lock, NULL);
	*out = c;
	return 0;
}

void srdma_control_close(struct srdma_control *c)
{
	if (!c)
		return;
	close(c->fd);
	pthread_mutex_destroy(&c->lock);
	free(c);
}

void srdma_control_end(struct srdma_control *c)
{
	pthread_mutex_lock(&c->lock);
	c->ending = 1;
	shutdown(c->fd, SHUT_WR);
	pthread_mutex_unlock(&c->lock);
}

pid_t srdma_control_pid(const struct srdma_control *c)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len)
		       ? 0
		       : peer.pid;
}

int srdma_control_fd(const struct srdma_control *c)
{
	return c->fd;
}

int srdma_control_alive(struct srdma_control *c)
{
	struct srdma_socket_fds fds;
	int n;

	if (pthread_mutex_trylock(&c->lock))
		return 1; /* a call is under way and notices the end */
	/* No request is outstanding: this answers one that timed out. */
	n = srdma_socket_receive(c->fd, c->data, sizeof(c->data), &fds, 0);
	if (n > 0)
		srdma_wipe(c->data, (size_t)n);
	srdma_socket_close_fds(&fds);
	pthread_mutex_unlock(&c->lock);
	return !is_end(n);
}

/* --- calls --------------------------------------------------------------- */

static int failed(const struct srdma_control *c, uint32_t kind, int rc)
{
	if (rc == -ETIMEDOUT)
		return srdma_error_set(rc,
				       "the worker at %s did not answer %s "
				       "in %d ms",
				       c->path, srdma_ctl_name(kind),
				       c->timeout_ms);
	if (!is_end(rc))
		return srdma_error_set(rc,
				       "no exchange of %s with the worker at "
				       "%s (%s): try again",
				       srdma_ctl_name(kind), c->path,
				       strerror(-rc));
	return srdma_error_set(-ENOTCONN,
			       "the worker at %s ended (%s): start "
			       "it, open the device and a PD, connect again",
			       c->path, rc ? strerror(-rc) : "end of file");
}

static int refused(uint32_t kind, const struct srdma_ctl_msg *m)
{
	const int rc = m->status <= MAX_ERRNO ? -(int)m->status : -EPROTO;

	return srdma_error_set(rc, "the worker refused %s: %s",
			       srdma_ctl_name(kind),
			       *m->text ? m->text : strerror(-rc));
}

static int send_request(struct srdma_control *c, const struct srdma_ctl_msg *m,
			const struct srdma_socket_fds *fds, int64_t deadline)
{
	const int len = srdma_ctl_encode(c->data, SRDMA_CTL_REQUEST, m);
	int n;

	if (len < 0)
		return srdma_error_set(-EINVAL,
				       "%s: a value does not fit into "
				       "its field",
				       srdma_ctl_name(m->kind));
	n = srdma_socket_send(c->fd, c->data, (size_t)len, fds, deadline);
	srdma_wipe(c->data, (size_t)len);
	/* After -EPIPE the answer says why the connection was closed. */
	return n < 0 && n != -EPIPE ? failed(c, m->kind, n) : 0;
}

/* 1: the connection is beyond a limit, and closed. */
static int is_refusal(const struct srdma_ctl_msg *m)
{
	return m->kind == SRDMA_CTL_HELLO && !m->tag && m->status == EDQUOT;
}

/* Receives the answer to the last request; m: its header. Returns its length or -errno. */
static int receive_answer(struct srdma_control *c, struct srdma_ctl_msg *m,
			  struct srdma_socket_fds *in, int64_t deadline)
{
	const uint16_t kind = m->kind;
	int n, resets = 0;

	for (;;) {
		n = srdma_socket_receive(c->fd, c->data, sizeof(c->data), in,
					 deadline);
		/* What was sent before the end follows a reset. */
		if (n == -EINTR || (n == -ECONNRESET && !resets++))
			continue;
		if (n <= 0)
			return failed(c, kind, n);
		if (srdma_ctl_peek(m, c->data, (size_t)n) ||
		    (m->kind == kind && m->tag == c->tag) || is_refusal(m))
			return n;
		/* the answer to a request that timed out */
		srdma_wipe(c->data, (size_t)n);
		srdma_socket_close_fds(in);
		if (srdma_socket_late(deadline))
			return failed(c, kind, -ETIMEDOUT);
	}
}

static int ask(struct srdma_control *c, struct srdma_ctl_msg *m,
	       const struct srdma_socket_fds *out, int64_t deadline)
{
	m->tag = ++c->tag;
	m->status = 0;
	/* After srdma_control_end() only the end of the worker is awaited. */
	return c->ending ? 0 : send_request(c, m, out, deadline);
}

static int take_answer(struct srdma_control *c, struct srdma_ctl_msg *m,
		       struct srdma_socket_fds *in, int64_t deadline)
{
	const uint16_t kind = m->kind;
	int r, n = receive_answer(c, m, in, deadline);

	if (n < 0) {
		m->kind = kind; /* not that of an older answer */
		return n;
	}
	r = srdma_ctl_decode(m, SRDMA_CTL_ANSWER, c->data, (size_t)n);
	srdma_wipe(c->data, (size_t)n);
	if (!r)
		return m->status ? refused(kind, m) : 0;
	srdma_wipe(m, sizeof(*m)); /* it may contain a part of a token */
	return srdma_error_set(-EPROTO,
			       "the worker at %s answered %s with %d bytes "
			       "that are no legal answer: use a worker and a "
			       "library of the same release",
			       c->path, srdma_ctl_name(kind), n);
}

int srdma_control_call_until(struct srdma_control *c, struct srdma_ctl_msg *m,
			     const struct srdma_socket_fds *out,
			     struct srdma_socket_fds *in, int64_t deadline)
{
	struct srdma_socket_fds got = { .n = 0 };
	int r;

	pthread_mutex_lock(&c->lock);
	r = ask(c, m, out, deadline);
	if (!r)
		r = take_answer(c, m, &got, deadline);
	pthread_mutex_unlock(&c->lock);
	if (r || !in)
		srdma_socket_close_fds(&got);
	if (in)
		*in = got;
	return r;
}

int srdma_control_ask(struct srdma_control *c, struct srdma_ctl_msg *m)
{
	int r;

	pthread_mutex_lock(&c->lock);
	r = ask(c, m, NULL, 0);
	pthread_mutex_unlock(&c->lock);
	return r;
}

int srdma_control_take(struct srdma_control *c, struct srdma_ctl_msg *m)
{
	struct srdma_socket_fds none = { .n = 0 };
	int r;

	pthread_mutex_lock(&c->lock);
	r = take_answer(c, m, &none, 0);
	pthread_mutex_unlock(&c->lock);
	srdma_socket_close_fds(&none);
	return r;
}

int srdma_control_call(struct srdma_control *c, struct srdma_ctl_msg *m,
		       const struct srdma_socket_fds *out,
		       struct srdma_socket_fds *in)
{
	return srdma_control_call_until(c, m, out, in,
					srdma_socket_deadline(c->timeout_ms));
}
