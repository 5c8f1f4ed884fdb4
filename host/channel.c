#include "host/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "host/error.h"

enum { CLOSE_MS = 5000 };

struct srdma_channel {
	int fd;
	/* The message that arrives: its length, then its body. */
	uint8_t length[SRDMA_MESSAGE_LENGTH];
	uint8_t *body;
	size_t size; /* of the body */
	size_t read; /* bytes of length and body so far */
	int broken;  /* 1: a message was sent in part */
	int ended;   /* 1: the agent closed its end */
	int passed;  /* file descriptor beside an event, or -1 */
};

/* 1 if the result of a send or receive shows that the agent closed its end.
 * Other errors, such as -ENOBUFS, leave the channel as it is. */
static int is_end(int rc)
{
	return !rc || rc == -EPIPE || rc == -ECONNRESET;
}

static int failed(struct srdma_channel *c, int rc)
{
	if (!is_end(rc))
		return srdma_error_set(rc,
				       "no exchange with the agent (%s): try "
				       "again",
				       strerror(-rc));
	c->ended = 1;
	return srdma_error_set(-ECONNRESET,
			       "the agent ended (%s): connect "
			       "again when it runs",
			       rc ? strerror(-rc) : "end of file");
}

static int was_cut(void)
{
	return srdma_error_set(-ECONNRESET, "the agent did not get a whole "
					    "message: disconnect, and connect "
					    "again");
}

int srdma_channel_open(struct srdma_channel **out,
		       const struct srdma_agent_place *place,
		       const struct srdma_message *first,
		       const struct srdma_socket_fds *fds, int timeout_ms)
{
	const struct srdma_socket_peer agent = {
		.path = place->path,
		.trusted = place->user,
		.trust = ", or name its user by SRDMA_AGENT_USER",
		.type = SOCK_STREAM,
		.what = "agent",
		.start = "srdma agent --config FILE",
	};
	struct srdma_channel *c;
	int r;

	*out = NULL;
	if (!*place->path)
		return srdma_error_set(-ENXIO,
				       "no agent is named: give its "
				       "path to srdma_open_device(), or set "
				       "SRDMA_AGENT");
	r = srdma_socket_connect(&agent, timeout_ms);
	if (r < 0)
		return r;
	c = calloc(1, sizeof(*c));
	if (!c) {
		close(r);
		return srdma_error_set(-ENOMEM, "no memory");
	}
	c->fd = r;
	c->passed = -1;
	r = srdma_channel_send(c, first, fds,
			       srdma_socket_deadline(timeout_ms));
	if (r) {
		srdma_channel_drop(c); /* the caller may not wait */
		return r;
	}
	*out = c;
	return 0;
}

static int failed_send(struct srdma_channel *c, size_t sent, int rc)
{
	c->broken = sent > 0 && !is_end(rc);
	if (rc != -ETIMEDOUT)
		return failed(c, rc);
	return srdma_error_set(rc, "the agent did not read a message in time: "
				   "give more time, or restart it");
}

int srdma_channel_send(struct srdma_channel *c, const struct srdma_message *w,
		       const struct srdma_socket_fds *fds, int64_t deadline)
{
	size_t sent = 0;

	if (c->broken)
		return was_cut();
	while (sent < w->len) {
		int n = srdma_socket_send(c->fd, w->data + sent, w->len - sent,
					  sent ? NULL : fds, deadline);

		if (n < 0)
			return failed_send(c, sent, n);
		sent += (size_t)n;
	}
	return 0;
}

static void keep_fd(struct srdma_channel *c, struct srdma_socket_fds *fds)
{
	if (fds->n) {
		if (c->passed >= 0)
			close(c->passed);
		c->passed = fds->fd[--fds->n];
	}
	srdma_socket_close_fds(fds);
}

int srdma_channel_take_fd(struct srdma_channel *c)
{
	const int fd = c->passed;

	c->passed = -1;
	return fd;
}

/* Reads until the message has `until` bytes, length included. */
static int fill(struct srdma_channel *c, size_t until, int64_t deadline)
{
	struct srdma_socket_fds fds;
	int n;

	while (c->read < until) {
		uint8_t *at = c->read < sizeof(c->length)
				      ? c->length + c->read
				      : c->body + c->read - sizeof(c->length);

		n = srdma_socket_receive(c->fd, at, until - c->read, &fds,
					 deadline);
		keep_fd(c, &fds);
		if (n == -ETIMEDOUT || n == -EINTR)
			return n;
		if (n <= 0)
			return failed(c, n);
		c->read += (size_t)n;
		/* an agent that sends single bytes must not hold the caller */
		if (c->read < until && srdma_socket_late(deadline))
			return -ETIMEDOUT;
	}
	return 0;
}

int srdma_channel_illegal(void)
{
	return srdma_error_set(-EPROTO,
			       "the agent sent an illegal message: "
			       "use an agent and a library of the same "
			       "release");
}

/* Allocates the body when its length is known. */
static int make_body(struct srdma_channel *c)
{
	if (c->body)
		return 0;
	c->size = srdma_load32(c->length);
	if (!c->size || c->size > SRDMA_AGENT_MAX)
		return srdma_channel_illegal();
	c->body = malloc(c->size);
	return c->body ? 0 : srdma_error_set(-ENOMEM, "no memory");
}

int srdma_channel_next(struct srdma_channel *c, struct srdma_agent_event *e,
		       int64_t deadline)
{
	int r = c->broken ? was_cut() : fill(c, sizeof(c->length), deadline);

	if (!r)
		r = make_body(c);
	if (!r)
		r = fill(c, sizeof(c->length) + c->size, deadline);
	if (r)
		return r;
	r = srdma_message_parse(e, c->body, c->size);
	free(c->body);
	c->body = NULL;
	c->read = 0;
	return r ? srdma_channel_illegal() : 0;
}

int srdma_channel_ended(const struct srdma_channel *c)
{
	return c->ended;
}

int srdma_channel_fd(const struct srdma_channel *c)
{
	return c->fd;
}

void srdma_channel_drop(struct srdma_channel *c)
{
	if (!c)
		return;
	shutdown(c->fd, SHUT_RDWR); /* a child of fork() may have it too */
	close(c->fd);
	if (c->passed >= 0)
		close(c->passed);
	free(c->body);
	free(c);
}

int srdma_channel_close(struct srdma_channel *c)
{
	const int64_t deadline = srdma_socket_deadline(CLOSE_MS);
	struct srdma_socket_fds none;
	uint8_t waste[256];
	int n = 0;

	if (!c)
		return 0;
	shutdown(c->fd, SHUT_WR);
	do {
		n = srdma_socket_receive(c->fd, waste, sizeof(waste), &none,
					 deadline);
		srdma_socket_close_fds(&none);
	} while ((n > 0 || n == -EINTR) && !srdma_socket_late(deadline));
	srdma_channel_drop(c);
	return !n;
}

int srdma_channel_error(const struct srdma_agent_event *e)
{
	static const struct {
		const char *code;
		int rc;
	} codes[] = {
		{ "config", -EINVAL },	   { "credentials", -EINVAL },
		{ "name", -EINVAL },	   { "policy", -EPERM },
		{ "tls", -EACCES },	   { "identity", -EACCES },
		{ "hash", -EACCES },	   { "unreachable", -EHOSTUNREACH },
		{ "worker", -EIO },	   { "gone", -EIO },
		{ "timeout", -ETIMEDOUT }, { "quota", -EDQUOT },
		{ "clock", -EPERM },	   { "taken", -EADDRINUSE },
		{ "lost", -ECONNRESET },
	};
	int rc = -ECONNABORTED;

	for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
		if (!strcmp(codes[i].code, e->code))
			rc = codes[i].rc;
	return srdma_error_set(rc, "%s: %s", e->code, e->text);
}
