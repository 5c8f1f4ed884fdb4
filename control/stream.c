#include "control/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/time.h"
#include "control/link.h"
#include "control/queue.h"
#include "host/control.h"
#include "host/error.h"
#include "host/socket.h"
#include "offload/packet.h"

enum { WAITING_MAX = 256 << 10 }; /* bytes that the worker does not read */

#define LAST (10 * SRDMA_SECOND) /* for the worker to take the last messages */

struct stream {
	struct watch watch; /* must be the first member */
	struct link *link;
	uint32_t number;
	struct queue out;
	uint64_t finish; /* time of the end, or 0 if the peer did not end it */
};

int stream_is_worker(const struct stream_worker *w, const char *path,
		     size_t len)
{
	char own[SRDMA_SOCKET_PATH];

	for (uint32_t i = 0; i < SRDMA_CTL_PROCESSES; i++)
		if (srdma_control_path(own, w->control, i) == 0 &&
		    strlen(own) == len && memcmp(own, path, len) == 0)
			return 1;
	return 0;
}

/* A worker that is not read may close the connection. epoll always reports that:
 * EPOLLET, once only. Its last answers are read before the stream ends. */
static void set_events(struct stream *s)
{
	const int read = !s->finish && !link_is_crowded(s->link);

	loop_set(link_loop(s->link), &s->watch,
		 (read ? EPOLLIN : EPOLLET) | (s->out.first ? EPOLLOUT : 0));
}

/* Ends both. code NULL: without a reason. */
static void fail(struct stream *s, const char *code, const char *text)
{
	struct reason r;

	if (code)
		reason_set(&r, code, "%s", text);
	link_end(s->link, s, code ? &r : NULL);
}

static void refuse_long(struct stream *s)
{
	struct reason r;

	reason_set(&r, "config", "a control message has more than %d bytes",
		   SRDMA_CTL_MAX);
	link_end(s->link, s, &r);
}

/* Returns 0 or -errno. */
static int write_messages(struct stream *s)
{
	static const int none[REQUESTS_ANSWER_FDS] = { -1, -1 };

	while (s->out.first) {
		const struct chunk *c = s->out.first;
		int rc = packet_send(s->watch.fd, c->data, c->len, none);

		if (rc == -EAGAIN)
			return 0;
		if (rc == -EPIPE || rc == -ECONNRESET) {
			/* The worker has closed the connection. */
			queue_clear(&s->out);
			return 0;
		}
		if (rc < 0)
			return rc;
		queue_take(&s->out, c->len);
	}
	return 0;
}

/* Forwards one message of the worker. */
static void read_message(struct stream *s)
{
	struct message m;
	int rc = packet_receive(s->watch.fd, "", &m);

	/* A worker that closed the connection with unread requests: the kernel
	 * reports that once, before the answers that are still queued. */
	if (rc == -ECONNRESET)
		rc = packet_receive(s->watch.fd, "", &m);
	if (rc == 0)
		return;
	if (rc > 0 && !m.nfds && m.len <= SRDMA_CTL_MAX) {
		link_data(s->link, s->number, m.data, m.len);
		srdma_wipe(m.data, m.len);
		return;
	}
	if (rc < 0) {
		fail(s, NULL, NULL);
		return;
	}
	packet_close_fds("", &m);
	srdma_wipe(m.data, m.len);
	if (m.len > SRDMA_CTL_MAX)
		refuse_long(s);
	else
		fail(s, "config", "files cannot be passed to another computer");
}

static void run(struct watch *w, uint32_t events)
{
	struct stream *s = (struct stream *)w;

	if (events & EPOLLOUT && write_messages(s) < 0) {
		fail(s, NULL, NULL);
		return;
	}
	if (s->finish && !s->out.first) {
		link_forget(s->link, s);
		return;
	}
	set_events(s);
	if (s->watch.events & EPOLLIN)
		read_message(s);
}

int stream_create(struct stream **out, struct link *link, uint32_t number,
		  const char *path)
{
	const struct srdma_socket_peer peer = {
		.path = path,
		.type = SOCK_SEQPACKET,
		.what = "worker",
		.start = "srdma-offload",
		.trusted = link_worker(link)->uid,
	};
	struct stream *s = calloc(1, sizeof(*s));
	int rc = -ENOMEM;

	if (!s)
		return srdma_error_set(rc, "the NIC has no memory");
	s->link = link;
	s->number = number;
	rc = srdma_socket_connect(&peer, 0);
	if (rc < 0)
		goto free_stream;
	s->watch = (struct watch){ .fd = rc, .events = EPOLLIN, .run = run };
	rc = loop_add(link_loop(link), &s->watch);
	if (rc < 0) {
		srdma_error_set(rc, "the NIC: %s", strerror(-rc));
		goto close_socket;
	}
	*out = s;
	return 0;
close_socket:
	close(s->watch.fd);
free_stream:
	free(s);
	return rc;
}

void stream_destroy(struct stream *s)
{
	loop_remove(link_loop(s->link), &s->watch);
	/* It does not block: a worker passes memfds and eventfds only. */
	close(s->watch.fd);
	queue_clear(&s->out);
	free(s);
}

void stream_data(struct stream *s, const uint8_t *data, size_t len)
{
	uint8_t *copy;

	if (len > SRDMA_CTL_MAX) {
		refuse_long(s);
		return;
	}
	copy = queue_add(&s->out, len);
	if (!copy) {
		fail(s, "busy", "the NIC has no memory");
		return;
	}
	memcpy(copy, data, len);
	if (write_messages(s) < 0)
		fail(s, NULL, NULL);
	else if (s->out.bytes > WAITING_MAX)
		fail(s, "busy", "the worker does not read");
	else
		set_events(s);
}

int stream_finish(struct stream *s, uint64_t now)
{
	s->finish = now + LAST;
	set_events(s);
	return s->out.first != NULL;
}

int stream_is_finishing(const struct stream *s)
{
	return s->finish != 0;
}

void stream_check(struct stream *s, uint64_t now)
{
	if (s->finish && now >= s->finish)
		link_forget(s->link, s);
}

void stream_resume(struct stream *s)
{
	set_events(s);
}

uint32_t stream_number(const struct stream *s)
{
	return s->number;
}
