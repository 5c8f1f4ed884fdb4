#include "srdma/connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "host/connecting.h"
#include "host/error.h"
#include "host/lasting_channel.h"
#include "host/objects.h"
#include "host/settings.h"

/* ms that the agent may take beyond its own limit, whose text says more */
enum {
	GRACE_MS = 2000,
	EVENTS_MAX = 64, /* read by one srdma_check_connection() */
};

struct srdma_connection {
	struct srdma_pd *pd;
	struct srdma_lasting_channel *channel;
	struct srdma_connection_info info;
	int introduced;		 /* 1: `peer` arrived */
	uint64_t wished, served; /* numbers of requests for renewal */
	int over;		 /* -errno: why it ended; 0: it lives */
	char why[512];
};

/* Handles one event of a connection that is being made. Returns 1 when it is
 * ready, 0 before, or -errno. */
static int making(struct srdma_connection *c, const struct srdma_agent_event *e)
{
	if (!strcmp(e->event, "peer")) {
		if (!*e->peer.identity)
			return srdma_channel_illegal();
		c->info = e->peer;
		c->introduced = 1;
	}
	if (!strcmp(e->event, "ready"))
		return c->introduced ? 1 : srdma_channel_illegal();
	if (!strcmp(e->event, "error"))
		return srdma_channel_error(e);
	if (!strcmp(e->event, "closed"))
		return srdma_error_set(-ECONNABORTED, "the peer closed during "
						      "the key exchange");
	return 0;
}

static int wait_ready(struct srdma_connection *c, uint32_t timeout_s)
{
	const int64_t deadline =
		srdma_socket_deadline(0) + (int64_t)timeout_s * 1000 + GRACE_MS;
	struct srdma_agent_event e;
	int r;

	for (;;) {
		r = srdma_lasting_next(c->channel, &e, deadline);
		if (!r) {
			r = making(c, &e);
			if (r)
				return r < 0 ? r : 0;
		} else if (r != -EINTR && r != -ETIMEDOUT) {
			return r;
		}
		if (r == -ETIMEDOUT || srdma_socket_late(deadline))
			return srdma_error_set(-ETIMEDOUT,
					       "the agent did not connect "
					       "the QPs in %u s",
					       timeout_s);
	}
}

static void set_status(const struct srdma_connection_attr *attr,
		       enum srdma_qp_status status)
{
	for (size_t i = 0; i < attr->n_qps; i++)
		attr->qps[i]->status = status;
}

/* Opens the channel and sends the first message. */
static int begin(struct srdma_connection *c,
		 const struct srdma_settings_peer *peer,
		 const struct srdma_connection_attr *attr)
{
	struct srdma_message first = { 0 }, again = { 0 };
	const struct srdma_lasting_params params = {
		.agent = &c->pd->device->agent,
		.confirms = "ready",
		.first = &first,
		.again = &again,
		.fd = -1,
	};
	int r = srdma_settings_connection(&first, c->pd, peer, attr);

	if (!r)
		r = srdma_settings_rejoin(&again, c->pd, attr);
	if (!r)
		r = srdma_lasting_open(&c->channel, &params);
	srdma_message_free(&first);
	srdma_message_free(&again);
	return r;
}

int srdma_connection_begin(struct srdma_connection **connection,
			   struct srdma_pd *pd,
			   const struct srdma_settings_peer *peer,
			   const struct srdma_connection_attr *attr)
{
	struct srdma_connection *c = calloc(1, sizeof(*c));
	int r;

	*connection = NULL;
	if (!c)
		return srdma_error_set(-ENOMEM, "no memory");
	c->pd = pd;
	pd->users++;
	r = begin(c, peer, attr);
	if (r)
		srdma_disconnect(c);
	else
		*connection = c;
	return r;
}

int srdma_connection_advance(struct srdma_connection *c)
{
	struct srdma_agent_event e;
	int r;

	do {
		r = srdma_lasting_next(c->channel, &e, 0);
		if (r == -ETIMEDOUT || r == -EINTR)
			return 0;
		if (!r)
			r = making(c, &e);
	} while (!r);
	return r;
}

static int create(struct srdma_connection **connection, struct srdma_pd *pd,
		  const struct srdma_settings_peer *peer,
		  const struct srdma_connection_attr *attr)
{
	int r = srdma_connection_begin(connection, pd, peer, attr);

	if (r)
		return r;
	r = wait_ready(*connection, srdma_settings_timeout(attr));
	/* After a failure the worker may have keys for the QPs. */
	set_status(attr, r ? SRDMA_QP_STATUS_ERROR : SRDMA_QP_STATUS_CONNECTED);
	if (r) {
		srdma_disconnect(*connection);
		*connection = NULL;
	}
	return r;
}

int srdma_connect(struct srdma_connection **connection, struct srdma_pd *pd,
		  const char *host, uint16_t port,
		  const struct srdma_connection_attr *attr)
{
	const struct srdma_settings_peer peer = {
		.role = SRDMA_SETTINGS_CONNECT, .host = host, .port = port
	};

	return create(connection, pd, &peer, attr);
}

int srdma_connect_qp(struct srdma_connection **connection, struct srdma_pd *pd,
		     const uint8_t gid[SRDMA_GID_LEN], uint32_t qp_num,
		     const struct srdma_connection_attr *attr)
{
	const struct srdma_settings_peer peer = {
		.role = SRDMA_SETTINGS_RENDEZVOUS,
		.gid = gid,
		.qp_num = qp_num,
	};

	return create(connection, pd, &peer, attr);
}

int srdma_accept(struct srdma_connection **connection, struct srdma_pd *pd,
		 const struct srdma_request *request,
		 const struct srdma_connection_attr *attr)
{
	const struct srdma_settings_peer peer = { .role = SRDMA_SETTINGS_ACCEPT,
						  .arrival = request->arrival };

	return create(connection, pd, &peer, attr);
}

int srdma_connection_end(struct srdma_connection *c)
{
	int released;

	if (!c)
		return 1;
	/* The other end of a channel to a remote agent is a proxy. */
	released = srdma_lasting_close(c->channel) && !c->pd->device->remote;
	c->pd->users--;
	free(c);
	return released;
}

void srdma_disconnect(struct srdma_connection *c)
{
	srdma_connection_end(c);
}

void srdma_query_connection(const struct srdma_connection *c,
			    struct srdma_connection_info *info)
{
	*info = c->info;
}

int srdma_connection_fd(const struct srdma_connection *c)
{
	return srdma_lasting_fd(c->channel);
}

/* --- events of a connection ---------------------------------------------- */

static int ended(struct srdma_connection *c, int rc)
{
	c->over = rc;
	strcpy(c->why, srdma_error_text());
	return rc;
}

/* Sends the last request for renewal. */
static int send_wish(struct srdma_connection *c, int64_t deadline)
{
	struct srdma_message w = { 0 };
	int r;

	srdma_message_map(&w, 2);
	srdma_message_text(&w, "do");
	srdma_message_text(&w, "renew");
	srdma_message_text(&w, "wish");
	srdma_message_uint(&w, c->wished);
	r = srdma_message_finish(&w)
		    ? srdma_error_set(-ENOMEM, "no memory")
		    : srdma_lasting_send(c->channel, &w, deadline);
	srdma_message_free(&w);
	return r == -ECONNRESET ? ended(c, r) : r;
}

/* A restarted agent does not know what was requested of the former one. If it
 * has ended too, the next one is told. */
static int repeat_wish(struct srdma_connection *c)
{
	int r = c->served < c->wished ? send_wish(c, 0) : 0;

	return r == -EAGAIN ? 0 : r;
}

static int handle(struct srdma_connection *c, const struct srdma_agent_event *e)
{
	if (!strcmp(e->event, "ready"))
		return repeat_wish(c);
	if (!strcmp(e->event, "renewed")) {
		if (e->wish > c->wished)
			return ended(c, srdma_channel_illegal());
		if (e->wish > c->served)
			c->served = e->wish;
	}
	if (!strcmp(e->event, "error"))
		return ended(c, srdma_channel_error(e));
	if (!strcmp(e->event, "closed"))
		return ended(c,
			     srdma_error_set(-ESHUTDOWN, "the peer closed the "
							 "connection"));
	return 0;
}

/* Waits for one event and handles it. -EAGAIN: the agent is away. */
static int step(struct srdma_connection *c, int64_t deadline)
{
	struct srdma_agent_event e;
	int r;

	if (c->over)
		return srdma_error_set(c->over, "%s", c->why);
	r = srdma_lasting_next(c->channel, &e, deadline);
	if (r == -ETIMEDOUT || r == -EINTR || r == -EAGAIN)
		return r;
	return r ? ended(c, r) : handle(c, &e);
}

int srdma_check_connection(struct srdma_connection *c)
{
	int r = 0;

	for (int i = 0; i < EVENTS_MAX && !r; i++)
		r = step(c, 0);
	return c->over; /* 0: no further event has arrived */
}

int srdma_renew(struct srdma_connection *c, int timeout_ms)
{
	const int64_t deadline = srdma_socket_deadline(timeout_ms);
	int r = srdma_check_connection(c);
	uint64_t wish;

	if (r)
		return r;
	if (c->info.protection.level == SRDMA_LEVEL_NONE)
		return srdma_error_set(-EINVAL, "SRDMA_LEVEL_NONE has no "
						"secrets to renew");
	wish = ++c->wished;
	r = send_wish(c, deadline);
	if (r == -EAGAIN) /* it is sent when an agent is back */
		r = 0;
	if (r) {
		c->wished--;
		return r;
	}
	while (!r && c->served < wish) {
		r = step(c, deadline);
		if (!r && c->served < wish && srdma_socket_late(deadline))
			r = -ETIMEDOUT;
	}
	if (r == -ETIMEDOUT && !c->over)
		srdma_error_set(r, "no new secrets in %d ms: give more time",
				timeout_ms);
	if (r == -EINTR)
		srdma_error_set(r, "a signal interrupted the wait for new "
				   "secrets: the exchange continues");
	return r;
}
