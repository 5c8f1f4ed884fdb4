#include "control/link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/time.h"
#include "base/utf8.h"
#include "control/credentials.h"
#include "control/frame.h"
#include "control/queue.h"
#include "control/streams.h"
#include "control/tls.h"
#include "host/socket.h"
#include "srdma/device.h"

enum {
	CHUNK = 16384,		  /* most bytes of a TLS record */
	CROWDED = 1 << 20,	  /* bytes that wait for TCP, above which the
				     worker is not read */
	UNREAD_MAX = 4 * CROWDED, /* above which the link ends */
};

#define HEARTBEAT (3 * SRDMA_SECOND)
#define SILENCE	  (10 * SRDMA_SECOND)

enum state { OPEN, ENDING, CLOSED };

struct link {
	struct watch watch; /* must be the first member */
	struct link_params params;
	SSL *ssl;
	enum state state;
	struct reason over;
	struct protocol protocol;
	uint64_t heard, sent; /* times of the last frames */
	uint64_t until;	      /* ENDING: time of the end */
	int said;	      /* ENDING: for tls_end() */
	int crowded;	      /* streams wait for stream_resume() */
	unsigned finishing;   /* streams that the peer ended */
	struct queue out;
	struct streams streams;
	size_t have; /* bytes of `in` */
	uint8_t in[FRAME_MAX + CHUNK];
};

struct loop *link_loop(const struct link *l)
{
	return l->params.loop;
}

const struct stream_worker *link_worker(const struct link *l)
{
	return l->params.worker;
}

const struct reason *link_over(const struct link *l)
{
	return l->state == OPEN ? NULL : &l->over;
}

int link_is_closed(const struct link *l)
{
	return l->state == CLOSED;
}

int link_is_crowded(const struct link *l)
{
	return l->crowded;
}

/* The end of a link ends its streams. */
static void end_streams(struct link *l)
{
	for (unsigned i = 0; i < 2 * STREAMS_MAX; i++) {
		if (l->streams.place[i])
			stream_destroy(l->streams.place[i]);
		l->streams.place[i] = NULL;
	}
	l->streams.count = l->finishing = 0;
}

/* The caller may use the link and its streams until it returns to the loop. */
void link_drop(struct link *l, const char *code, const char *text)
{
	if (l->state == OPEN)
		reason_set(&l->over, code, "%s", text);
	l->state = CLOSED;
}

/* Sending ----------------------------------------------------------------- */

static void resume(struct link *l)
{
	l->crowded = 0;
	for (unsigned i = 0; i < 2 * STREAMS_MAX; i++)
		if (l->streams.place[i])
			stream_resume(l->streams.place[i]);
}

static void run_ending(struct link *l)
{
	const uint32_t events = tls_end(l->ssl, &l->out, &l->said);

	if (events)
		loop_set(l->params.loop, &l->watch, events);
	else
		l->state = CLOSED;
}

static void flush(struct link *l)
{
	const int rc = tls_flush(l->ssl, &l->out);

	if (rc == TLS_CLOSED)
		link_drop(l, "unreachable", "the other end closed it");
	else if (rc == TLS_FAILED)
		link_drop(l, "tls", "TLS failed while sending");
	else if (l->crowded && l->out.bytes <= CROWDED / 2)
		resume(l);
	if (l->state == OPEN)
		loop_set(l->params.loop, &l->watch,
			 EPOLLIN | (l->out.first ? EPOLLOUT : 0));
}

/* Sends what waits. rc: 0, or -ENOMEM if a frame could not be appended to it. */
static void send_out(struct link *l, int rc)
{
	if (rc)
		link_drop(l, "busy", "the NIC has no memory");
	if (l->state != OPEN)
		return;
	l->sent = loop_now();
	flush(l);
	if (l->out.bytes > UNREAD_MAX)
		link_drop(l, "unreachable", "the other end does not read");
}

static void send_frame(struct link *l, uint32_t stream, enum frame_type type,
		       const uint8_t *body, size_t len)
{
	send_out(l, frame_put(&l->out, stream, type, body, len));
}

static void send_hello(struct link *l)
{
	struct srdma_message w = { 0 };
	char name[PROTOCOL_NAME_MAX + 1] = "";

	if (gethostname(name, sizeof(name) - 1) ||
	    !srdma_utf8_check(name, strlen(name)))
		*name = '\0';
	srdma_message_map(&w, 2);
	srdma_message_text(&w, "name");
	srdma_message_text(&w, name);
	srdma_message_text(&w, "time");
	srdma_message_uint(&w, (uint64_t)time(NULL));
	send_out(l, frame_put_map(&l->out, 0, FRAME_HELLO, &w));
}

void link_data(struct link *l, uint32_t number, const uint8_t *data, size_t len)
{
	send_frame(l, number, FRAME_DATA, data, len);
	if (l->out.bytes > CROWDED)
		l->crowded = 1;
}

void link_refuse(struct link *l, const struct reason *r)
{
	if (l->state != OPEN)
		return;
	l->over = *r;
	end_streams(l);
	l->state = ENDING;
	l->until = loop_now() + TLS_END_MAX;
	/* Without memory, the peer learns no reason. */
	reason_put(&l->out, 0, FRAME_REFUSED, r);
	run_ending(l);
}

/* Streams ----------------------------------------------------------------- */

void link_forget(struct link *l, struct stream *s)
{
	streams_remove(&l->streams, s);
	if (stream_is_finishing(s))
		l->finishing--;
	stream_destroy(s);
}

void link_end(struct link *l, struct stream *s, const struct reason *r)
{
	const uint32_t number = stream_number(s);
	const int told = stream_is_finishing(s);

	link_forget(l, s);
	if (told)
		return;
	if (r)
		send_out(l, reason_put(&l->out, number, FRAME_END, r));
	else
		send_frame(l, number, FRAME_END, NULL, 0);
}

static void refuse_stream(struct link *l, uint32_t number, const char *code,
			  const char *text)
{
	struct reason r;

	reason_set(&r, code, "%s", text);
	send_out(l, reason_put(&l->out, number, FRAME_END, &r));
}

static void connect_stream(struct link *l, uint32_t number,
			   const struct protocol_open *o)
{
	char path[SRDMA_SOCKET_PATH];
	struct stream *s;

	memcpy(path, o->path, o->path_len);
	path[o->path_len] = '\0';
	if (stream_create(&s, l, number, path) < 0) {
		refuse_stream(l, number, "worker", srdma_error_text());
		return;
	}
	streams_add(&l->streams, s);
	send_frame(l, number, FRAME_OPENED, NULL, 0);
}

static void open_stream(struct link *l, const struct frame *f)
{
	struct protocol_open o;
	struct reason r;

	if (protocol_open(&o, f, &r))
		link_refuse(l, &r);
	else if (!o.to_worker)
		refuse_stream(l, f->stream, "policy",
			      "this NIC has no agent: its srdma-control serves "
			      "streams to the worker only, so that the agent "
			      "runs on the host");
	else if (!stream_is_worker(l->params.worker, o.path, o.path_len))
		refuse_stream(l, f->stream, "policy",
			      "the NIC serves another worker: give the path of "
			      "--control of its srdma-control");
	else if (l->streams.count >= STREAMS_MAX)
		refuse_stream(l, f->stream, "busy",
			      "the link has too many streams");
	else
		connect_stream(l, f->stream, &o);
}

static void finish_stream(struct link *l, struct stream *s)
{
	l->finishing++;
	if (!stream_finish(s, loop_now()))
		link_forget(l, s);
}

/* Receiving --------------------------------------------------------------- */

static struct stream *live_stream(const struct link *l, const struct frame *f)
{
	struct stream *s =
		f->stream ? streams_find(&l->streams, f->stream) : NULL;

	return s && !stream_is_finishing(s) ? s : NULL;
}

static void take_frame(struct link *l, const struct frame *f)
{
	struct stream *s = live_stream(l, f);
	struct reason r;

	switch (protocol_take(&l->protocol, f, s != NULL, &r)) {
	case PROTOCOL_NOTHING:
		return;
	case PROTOCOL_GREETED:
		l->params.greeted(&l->protocol);
		return;
	case PROTOCOL_OPEN:
		open_stream(l, f);
		return;
	case PROTOCOL_DATA:
		stream_data(s, f->body, f->len);
		return;
	case PROTOCOL_END:
		finish_stream(l, s);
		return;
	case PROTOCOL_REFUSED:
		link_drop(l, r.code, r.text);
		return;
	}
	link_refuse(l, &r);
}

static void refuse_frame(struct link *l, int rc)
{
	struct reason r;

	if (rc == -EMSGSIZE)
		reason_set(&r, "format",
			   "a frame has more than %d bytes of body",
			   FRAME_BODY_MAX);
	else
		reason_set(&r, "state", "a frame has no type");
	link_refuse(l, &r);
}

/* Takes all complete frames. They are wiped: they may contain secrets. */
static void take_frames(struct link *l)
{
	size_t at = 0;

	while (l->state == OPEN) {
		struct frame f;
		int n = frame_parse(&f, l->in + at, l->have - at);

		if (n == 0)
			break;
		if (n < 0) {
			refuse_frame(l, n);
			break;
		}
		l->heard = loop_now();
		take_frame(l, &f);
		at += (size_t)n;
	}
	memmove(l->in, l->in + at, l->have - at);
	srdma_wipe(l->in + l->have - at, at);
	l->have -= at;
}

static void receive(struct link *l)
{
	int n = tls_read(l->ssl, l->in + l->have, sizeof(l->in) - l->have);
	struct reason r;

	if (n > 0) {
		l->have += (size_t)n;
		take_frames(l);
	} else if (n == TLS_CLOSED) {
		link_drop(l, "unreachable", "the other end closed it");
	} else if (n == TLS_FAILED) {
		credentials_failure(l->ssl, &r);
		link_drop(l, r.code, r.text);
	} else if (SSL_want_write(l->ssl)) { /* an answer of TLS itself */
		loop_set(l->params.loop, &l->watch, EPOLLOUT);
	}
}

static void run(struct watch *w, uint32_t events)
{
	struct link *l = (struct link *)w;

	(void)events;
	if (l->state == ENDING) {
		run_ending(l);
		return;
	}
	flush(l);
	if (l->state == OPEN)
		receive(l);
}

/* Life -------------------------------------------------------------------- */

static void check_streams(struct link *l, uint64_t now)
{
	for (unsigned i = 0; l->finishing && i < 2 * STREAMS_MAX; i++)
		if (l->streams.place[i])
			stream_check(l->streams.place[i], now);
}

uint64_t link_check(struct link *l, uint64_t now)
{
	uint64_t next;

	if (l->state == ENDING) {
		if (now >= l->until)
			l->state = CLOSED;
		return l->until;
	}
	if (l->state == CLOSED)
		return SRDMA_NEVER;
	if (now >= l->heard + SILENCE) {
		link_drop(l, "unreachable", "the other end is silent for 10 s");
		return SRDMA_NEVER;
	}
	if (now >= l->sent + HEARTBEAT)
		send_frame(l, 0, FRAME_HEARTBEAT, NULL, 0);
	check_streams(l, now);
	next = srdma_time_earlier(l->sent + HEARTBEAT, l->heard + SILENCE);
	return l->finishing ? srdma_time_earlier(next, now + SRDMA_SECOND)
			    : next;
}

int link_create(struct link **out, const struct link_params *p, SSL *ssl)
{
	struct link *l = calloc(1, sizeof(*l));
	int rc = -ENOMEM;

	if (!l)
		goto close_tls;
	l->params = *p;
	l->ssl = ssl;
	l->protocol.next = 1;
	l->heard = l->sent = loop_now();
	l->watch = (struct watch){ .fd = SSL_get_fd(ssl),
				   .events = EPOLLIN,
				   .run = run };
	rc = loop_add(p->loop, &l->watch);
	if (rc < 0)
		goto free_link;
	send_hello(l);
	*out = l;
	return 0;
free_link:
	free(l);
close_tls:
	close(SSL_get_fd(ssl));
	SSL_free(ssl);
	return rc;
}

void link_destroy(struct link *l)
{
	end_streams(l);
	loop_remove(l->params.loop, &l->watch);
	close(l->watch.fd);
	SSL_free(l->ssl);
	queue_clear(&l->out);
	srdma_wipe(l->in, sizeof(l->in));
	free(l);
}
