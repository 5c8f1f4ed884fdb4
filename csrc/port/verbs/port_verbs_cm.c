#include "port/verbs/port_verbs_impl.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "port/leg_hello.h"
#include "port/leg_time.h"

enum {
	BACKLOG = 128,
	EVENTS = 32, /* taken at once, so that a flood of requests does not
			hold the worker */
	ACCEPTS = 2, /* of the wire at once: each makes a QP and registers
			memory */
	RESOLVE_TRIES = 20,
};

/* Copy of a CM event: the event must be acknowledged before rdma_destroy_id. */
struct note {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	uint8_t hello[SRDMA_HELLO_LEN];
	uint8_t hello_len;
	uint8_t reads; /* initiator_depth of the peer: READs and atomics that
			  we may have in flight */
};

static int same_device(const struct srdma_verbs_port *port,
		       const struct rdma_cm_id *id)
{
	return id->verbs && !strcmp(ibv_get_device_name(id->verbs->device),
				    ibv_get_device_name(port->context->device));
}

/* --- connecting ----------------------------------------------------- */

int srdma_verbs_cm_connect(struct srdma_port *base, const char *address,
			   struct srdma_conn **out)
{
	struct srdma_verbs_port *port = (struct srdma_verbs_port *)base;
	struct srdma_verbs_conn *conn;
	struct sockaddr_storage peer;
	int err;

	if (srdma_addr_parse(&peer, address, SRDMA_ADDR_NO_PORT))
		return srdma_verbs_refuse(port, -EINVAL, "%.64s is not IP:PORT",
					  address);
	srdma_verbs_addr_same_scope(&peer, &port->own);
	err = srdma_verbs_conn_create(&conn, port, 0);
	if (err)
		return err;
	conn->state = SRDMA_VERBS_RESOLVING;
	if (rdma_create_id(port->cm, &conn->id, conn, RDMA_PS_TCP) ||
	    rdma_resolve_addr(conn->id, (struct sockaddr *)&port->own,
			      (struct sockaddr *)&peer, SRDMA_LEG_RESOLVE_MS)) {
		err = srdma_verbs_refuse(port, -errno, "no route to %.64s: %s",
					 address, strerror(errno));
		srdma_verbs_conn_close(&conn->base);
		return err;
	}
	*out = &conn->base;
	return 0;
}

static void resolve_again(struct srdma_verbs_conn *conn)
{
	struct sockaddr_storage peer = conn->id->route.addr.dst_storage;

	if (++conn->tries >= RESOLVE_TRIES ||
	    rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&peer,
			      SRDMA_LEG_RESOLVE_MS))
		srdma_verbs_conn_end(conn, -EHOSTUNREACH);
}

static void address_resolved(struct srdma_verbs_conn *conn)
{
	if (!same_device(conn->port, conn->id) ||
	    rdma_resolve_route(conn->id, SRDMA_LEG_RESOLVE_MS))
		srdma_verbs_conn_end(conn, -EHOSTUNREACH);
}

static void route_resolved(struct srdma_verbs_conn *conn)
{
	uint8_t hello[SRDMA_HELLO_LEN] = {
		[SRDMA_HELLO_AT_VERSION] = SRDMA_HELLO_VERSION,
		[SRDMA_HELLO_AT_KIND] = SRDMA_HELLO_KIND_WIRE,
	};
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		.responder_resources = 1,
		.initiator_depth = 1,
		.retry_count = 6,
		.rnr_retry_count = 6,
		.qp_num = conn->qp->qp_num,
	};

	memcpy(hello, SRDMA_HELLO_MAGIC, SRDMA_HELLO_MAGIC_LEN);
	if (srdma_verbs_conn_init(conn) || rdma_connect(conn->id, &param))
		srdma_verbs_conn_end(conn, -EHOSTUNREACH);
	else
		conn->state = SRDMA_VERBS_CONNECTING;
}

static void answered(struct srdma_verbs_conn *conn)
{
	if (srdma_verbs_conn_start(conn, 1) || rdma_establish(conn->id))
		srdma_verbs_conn_end(conn, -ECONNABORTED);
	else
		srdma_verbs_conn_up(conn);
}

/* --- accepting ------------------------------------------------------ */

static void refuse(const struct note *note, enum srdma_hello_refusal reason)
{
	uint8_t text[SRDMA_REFUSAL_LEN] = {
		[SRDMA_HELLO_AT_VERSION] = SRDMA_HELLO_VERSION,
		[SRDMA_REFUSAL_AT_REASON] = (uint8_t)reason,
	};

	memcpy(text, SRDMA_HELLO_MAGIC, SRDMA_HELLO_MAGIC_LEN);
	rdma_reject(note->id, text, sizeof(text));
	rdma_destroy_id(note->id);
}

/*
 * The kernel passes a REQ to the listener of its device and address only. The
 * port does not rely on that: a leg gets memory of a host, a wire gets packets
 * of other workers.
 */
static int came_here(const struct srdma_verbs_port *port,
		     const struct note *note)
{
	return same_device(port, note->id) &&
	       srdma_addr_same_ip(rdma_get_local_addr(note->id),
				  (const struct sockaddr *)&port->own);
}

static int hello_legal(const struct srdma_verbs_port *port,
		       const struct note *note)
{
	return note->hello_len == SRDMA_HELLO_LEN &&
	       !memcmp(note->hello, SRDMA_HELLO_MAGIC, SRDMA_HELLO_MAGIC_LEN) &&
	       note->hello[SRDMA_HELLO_AT_VERSION] == SRDMA_HELLO_VERSION &&
	       note->hello[SRDMA_HELLO_AT_KIND] == (uint8_t)port->kind &&
	       !note->hello[SRDMA_HELLO_AT_ZERO];
}

/* The leg that waits for this token. A token is valid for one connection. */
static struct srdma_verbs_conn *claim(struct srdma_verbs_port *port,
				      const struct note *note)
{
	const uint8_t *token = note->hello + SRDMA_HELLO_AT_TOKEN;
	struct srdma_verbs_conn *conn, *found = NULL;
	uint32_t i;

	for (i = 0; i < port->conn_max; ++i) {
		conn = port->conns[i];
		if (conn && conn->state == SRDMA_VERBS_WAITING &&
		    srdma_equal(conn->token, token, SRDMA_TOKEN_LEN))
			found = conn;
	}
	if (!found ||
	    srdma_load32(note->hello + SRDMA_HELLO_AT_RING) != found->ring)
		return NULL;
	srdma_wipe(found->token, SRDMA_TOKEN_LEN);
	found->ring_addr = srdma_load64(note->hello + SRDMA_HELLO_AT_RING_ADDR);
	found->ring_rkey = srdma_load32(note->hello + SRDMA_HELLO_AT_RING_RKEY);
	return found;
}

static int accept_on(struct srdma_verbs_conn *conn, const struct note *note)
{
	uint8_t reads = note->reads < SRDMA_HELLO_READS ? note->reads
							: SRDMA_HELLO_READS;
	struct rdma_conn_param param = {
		.responder_resources = 1,
		.rnr_retry_count = 6,
		.qp_num = conn->qp->qp_num,
	};
	int err;

	if (reads > conn->port->limits.max_qp_init_rd_atom)
		reads = (uint8_t)conn->port->limits.max_qp_init_rd_atom;
	param.initiator_depth = reads;
	err = srdma_verbs_conn_init(conn);
	if (!err)
		err = srdma_verbs_conn_start(conn, reads);
	if (!err && rdma_accept(conn->id, &param))
		err = -errno;
	return err;
}

/* A REQ that a leg cannot accept ends the leg: DOWN is reported. Returns 1 if a
 * wire connection was made for it. */
static int requested(struct srdma_verbs_port *port, const struct note *note)
{
	struct srdma_verbs_conn *conn = NULL;
	int wire = port->kind == SRDMA_PORT_VERBS_WIRE;

	note->id->context = NULL;
	/* With a depth of 0, a READ from host memory would never complete. */
	if (!hello_legal(port, note) || !came_here(port, note) ||
	    (!wire && !note->reads)) {
		refuse(note, SRDMA_REFUSE_HELLO);
		return 0;
	}
	if (wire && srdma_verbs_conn_create(&conn, port, 0)) {
		refuse(note, SRDMA_REFUSE_LIMIT);
		return 0;
	}
	if (!wire && !(conn = claim(port, note))) {
		refuse(note, SRDMA_REFUSE_TOKEN);
		return 0;
	}
	conn->id = note->id;
	conn->id->context = conn;
	conn->accepted = (uint8_t)wire;
	conn->state = SRDMA_VERBS_CONNECTING;
	if (!accept_on(conn, note)) {
		if (wire)
			srdma_verbs_conn_half(conn);
	} else if (wire) {
		srdma_verbs_conn_close(&conn->base);
	} else {
		srdma_verbs_conn_end(conn, -ECONNABORTED);
	}
	return wire;
}

/* --- events --------------------------------------------------------- */

static int end_status(enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return -EHOSTUNREACH;
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_DISCONNECTED:
		return -ECONNRESET;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -ENODEV;
	default:
		return 0;
	}
}

/*
 * Each event is accepted only in the state that expects it, because the peer
 * controls the order of events.
 */
static void step(struct srdma_verbs_conn *conn, enum rdma_cm_event_type type)
{
	if (conn->state == SRDMA_VERBS_RESOLVING &&
	    type == RDMA_CM_EVENT_ADDR_ERROR)
		resolve_again(conn);
	else if (end_status(type))
		srdma_verbs_conn_end(conn, end_status(type));
	else if (conn->state == SRDMA_VERBS_RESOLVING &&
		 type == RDMA_CM_EVENT_ADDR_RESOLVED)
		address_resolved(conn);
	else if (conn->state == SRDMA_VERBS_RESOLVING &&
		 type == RDMA_CM_EVENT_ROUTE_RESOLVED)
		route_resolved(conn);
	else if (conn->state == SRDMA_VERBS_CONNECTING &&
		 type == RDMA_CM_EVENT_CONNECT_RESPONSE)
		answered(conn);
	else if (conn->state == SRDMA_VERBS_CONNECTING &&
		 type == RDMA_CM_EVENT_ESTABLISHED)
		srdma_verbs_conn_up(conn);
}

static int next_note(struct srdma_verbs_port *port, struct note *note)
{
	const struct rdma_conn_param *param;
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(port->cm, &event))
		return -errno;
	*note = (struct note){ .type = event->event, .id = event->id };
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		param = &event->param.conn;
		note->reads = param->initiator_depth;
		if (param->private_data &&
		    param->private_data_len >= SRDMA_HELLO_LEN) {
			note->hello_len = SRDMA_HELLO_LEN;
			memcpy(note->hello, param->private_data,
			       SRDMA_HELLO_LEN);
		}
	}
	rdma_ack_cm_event(event);
	return 0;
}

static void device_event(struct srdma_verbs_port *port,
			 const struct ibv_async_event *event)
{
	uint32_t i;

	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		srdma_verbs_conn_end(event->element.qp->qp_context, -EIO);
		break;
	case IBV_EVENT_CQ_ERR:
	case IBV_EVENT_DEVICE_FATAL:
		for (i = 0; i < port->conn_max; ++i)
			if (port->conns[i])
				srdma_verbs_conn_end(port->conns[i], -ENODEV);
		break;
	default:
		break;
	}
}

void srdma_verbs_cm_poll(struct srdma_verbs_port *port)
{
	struct ibv_async_event event;
	struct note note;
	int i, accepts = 0;

	for (i = 0; i < EVENTS && accepts < ACCEPTS && !next_note(port, &note);
	     ++i) {
		if (note.type == RDMA_CM_EVENT_CONNECT_REQUEST)
			accepts += requested(port, &note);
		else if (note.id->context)
			step(note.id->context, note.type);
		srdma_wipe(note.hello, sizeof(note.hello));
	}
	if (i == EVENTS)
		port->cm_turn = 0; /* there may be more */
	while (!ibv_get_async_event(port->context, &event)) {
		device_event(port, &event);
		ibv_ack_async_event(&event);
	}
}

/* --- listening ------------------------------------------------------ */

/* Set the address to listen on. Returns 0 or -errno. */
static int choose_address(struct srdma_verbs_port *port, const char *text)
{
	int wire = port->kind == SRDMA_PORT_VERBS_WIRE, err;

	if (!text) {
		err = srdma_verbs_addr_of_device(port->context, &port->own);
		return err ? srdma_verbs_refuse(
				     port, err,
				     "no IPv4 or global IPv6 address (RoCE "
				     "v2): assign one to its interface, or "
				     "name an address by --%s-listen",
				     wire ? "wire" : "host")
			   : 0;
	}
	if (srdma_addr_parse(&port->own, text, wire ? SRDMA_ADDR_NO_PORT : 0))
		return srdma_verbs_refuse(port, -EINVAL, "%.64s is not %s",
					  text,
					  wire ? "IP:PORT"
					       : "IP, IP:PORT, [IPv6] or "
						 "[IPv6]:PORT");
	srdma_verbs_addr_scope(port->context, &port->own);
	return 0;
}

int srdma_verbs_cm_listen(struct srdma_verbs_port *port, const char *text)
{
	const char *device = ibv_get_device_name(port->context->device);
	char shown[SRDMA_NAME_LEN];
	int err = choose_address(port, text);

	if (err)
		return err;
	srdma_addr_format(shown, (struct sockaddr *)&port->own);
	if (rdma_create_id(port->cm, &port->listener, NULL, RDMA_PS_TCP))
		return srdma_verbs_refuse(port, -errno, "rdma_create_id: %s",
					  strerror(errno));
	if (rdma_bind_addr(port->listener, (struct sockaddr *)&port->own) ||
	    rdma_listen(port->listener, BACKLOG))
		return srdma_verbs_refuse(port, -errno, "listening on %s: %s",
					  shown, strerror(errno));
	if (!same_device(port, port->listener))
		return srdma_verbs_refuse(port, -EADDRNOTAVAIL,
					  "%s is not an address of %s", shown,
					  device);
	srdma_addr_format(port->base.address,
			  rdma_get_local_addr(port->listener));
	srdma_addr_set_port(&port->own, 0);
	return 0;
}
