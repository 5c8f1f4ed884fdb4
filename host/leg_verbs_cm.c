#include "host/leg_verbs_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "base/bytes.h"
#include "host/error.h"
#include "host/host_device.h"
#include "host/socket.h"
#include "port/leg_hello.h"
#include "port/leg_time.h"

/* A connection that is being made. */
struct attempt {
	struct srdma_leg_verbs *leg;
	const struct srdma_leg_verbs_params *params;
	int64_t deadline;
	struct srdma_host_route route;
};

struct note {
	enum rdma_cm_event_type type;
	int status;
	int refusal; /* reason of a REJ by a worker, or 0 */
};

/* --- events -------------------------------------------------------------- */

static int refusal_of(const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *p = &event->param.conn;
	const uint8_t *data = p->private_data;

	if (event->event != RDMA_CM_EVENT_REJECTED || !data ||
	    p->private_data_len < SRDMA_REFUSAL_LEN ||
	    memcmp(data, SRDMA_HELLO_MAGIC, SRDMA_HELLO_MAGIC_LEN) != 0 ||
	    data[SRDMA_HELLO_AT_VERSION] != SRDMA_HELLO_VERSION)
		return 0;
	return data[SRDMA_REFUSAL_AT_REASON];
}

/* The next event, if one arrived. 0 or -errno. */
static int next_note(struct srdma_leg_verbs *leg, struct note *note)
{
	struct rdma_cm_event *event;

	if (leg->rdma->get_cm_event(leg->cm, &event))
		return -srdma_rdma_errno(leg->rdma);
	*note = (struct note){ .type = event->event,
			       .status = event->status,
			       .refusal = refusal_of(event) };
	leg->rdma->ack_cm_event(event);
	return 0;
}

static int ends(enum rdma_cm_event_type type)
{
	return type == RDMA_CM_EVENT_DISCONNECTED ||
	       type == RDMA_CM_EVENT_DEVICE_REMOVAL ||
	       type == RDMA_CM_EVENT_UNREACHABLE ||
	       type == RDMA_CM_EVENT_CONNECT_ERROR;
}

void srdma_leg_verbs_cm_poll(struct srdma_leg_verbs *leg)
{
	struct note note;

	while (!next_note(leg, &note))
		if (ends(note.type))
			srdma_leg_verbs_end(leg, "%s",
					    leg->rdma->event_str(note.type));
}

/* --- errors -------------------------------------------------------------- */

static int refused(const struct attempt *a, int refusal)
{
	const char *at = a->params->address;

	switch (refusal) {
	case 0:
		return srdma_error_set(-ECONNREFUSED,
				       "no worker accepts legs at %s: see that "
				       "it runs, and its --host-dev",
				       at);
	case SRDMA_REFUSE_HELLO:
		return srdma_error_set(
			-EPROTO,
			"the worker at %s refused the leg: this "
			"address is not for legs, or this device "
			"permits no READ: use a worker and a "
			"library of the same release",
			at);
	case SRDMA_REFUSE_TOKEN:
		return srdma_error_set(-EACCES,
				       "the worker at %s refused the leg: no "
				       "leg with this token and ring is "
				       "expected: open another PD",
				       at);
	case SRDMA_REFUSE_LIMIT:
		return srdma_error_set(-EDQUOT,
				       "the worker at %s refused the leg: its "
				       "limit of connections is reached: close "
				       "a PD",
				       at);
	}
	return srdma_error_set(-EPROTO,
			       "the worker at %s refused the leg, reason %d: "
			       "use a worker and a library of the same release",
			       at, refusal);
}

static int unexpected(const struct attempt *a, const struct note *note)
{
	if (note->type == RDMA_CM_EVENT_REJECTED)
		return refused(a, note->refusal);
	return srdma_error_set(-EHOSTUNREACH,
			       "connecting a leg to %s: %s (%s): see that the "
			       "worker's device is reachable",
			       a->params->address,
			       a->leg->rdma->event_str(note->type),
			       strerror(-note->status));
}

static int failed(const struct attempt *a, const char *what, int err)
{
	return srdma_error_set(-err, "connecting a leg to %s: %s: %s",
			       a->params->address, what, strerror(err));
}

/* A function of the table failed, and set errno. */
static int failed_call(const struct attempt *a, const char *what)
{
	return failed(a, what, srdma_rdma_errno(a->leg->rdma));
}

/* --- waiting ------------------------------------------------------------- */

static int wait_note(const struct attempt *a, struct note *note)
{
	int r;

	do {
		r = next_note(a->leg, note);
		if (!r || (r != -EAGAIN && r != -EINTR))
			return r ? failed(a, "rdma_get_cm_event", -r) : 0;
		r = srdma_socket_wait(a->leg->cm->fd, POLLIN, a->deadline);
	} while (r != -ETIMEDOUT && !srdma_socket_late(a->deadline));
	return srdma_error_set(-ETIMEDOUT,
			       "connecting a leg to %s: no answer in time: the "
			       "RDMA devices do not connect, see docs/rdma.md",
			       a->params->address);
}

static int expect(const struct attempt *a, enum rdma_cm_event_type type)
{
	struct note note;
	int r = wait_note(a, &note);

	return !r && note.type != type ? unexpected(a, &note) : r;
}

/* --- addresses ----------------------------------------------------------- */

/* Without an own address, the kernel may choose another device of this machine
 * for a worker on the same machine. */
static int find_own(struct attempt *a)
{
	const char *at = a->params->address;

	if (srdma_addr_parse(&a->route.peer, at, SRDMA_ADDR_NO_PORT))
		return srdma_error_set(-EPROTO,
				       "%.64s is no address of a leg: use a "
				       "worker and a library of the same "
				       "release",
				       at);
	return srdma_host_device_route(&a->route, SRDMA_HOST_DEVICES,
				       getenv("SRDMA_HOST_DEVICE"));
}

static int no_device(const struct attempt *a)
{
	char own[SRDMA_NAME_LEN];

	srdma_addr_format(own, (const struct sockaddr *)&a->route.own);
	return srdma_error_set(
		-ENODEV,
		"the route to the worker's leg address %s begins "
		"at %s, which is no address of an RDMA device: "
		"`rdma link` lists the devices",
		a->params->address, own);
}

static int not_resolved(const struct attempt *a, int err)
{
	return err == ENODEV || err == EADDRNOTAVAIL
		       ? no_device(a)
		       : failed(a, "rdma_resolve_addr", err);
}

static int resolve_addr(struct attempt *a)
{
	const struct srdma_rdma *rdma = a->leg->rdma;
	struct note note;
	int r;

	do {
		if (rdma->resolve_addr(a->leg->id,
				       (struct sockaddr *)&a->route.own,
				       (struct sockaddr *)&a->route.peer,
				       SRDMA_LEG_RESOLVE_MS))
			return not_resolved(a, srdma_rdma_errno(rdma));
		r = wait_note(a, &note);
		if (r)
			return r;
	} while (note.type == RDMA_CM_EVENT_ADDR_ERROR &&
		 note.status == -ETIMEDOUT);
	if (note.type != RDMA_CM_EVENT_ADDR_RESOLVED)
		return unexpected(a, &note);
	return a->leg->id->verbs ? 0 : no_device(a);
}

static int resolve_route(const struct attempt *a)
{
	if (a->leg->rdma->resolve_route(a->leg->id, SRDMA_LEG_RESOLVE_MS))
		return failed_call(a, "rdma_resolve_route");
	return expect(a, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

/* --- the connection ------------------------------------------------------ */

static int to_state(const struct attempt *a, enum ibv_qp_state state)
{
	const struct srdma_leg_verbs *leg = a->leg;
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, err;

	if (leg->rdma->init_qp_attr(leg->id, &attr, &mask))
		return failed_call(a, "rdma_init_qp_attr");
	attr.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	if (leg->limits.atomic_cap != IBV_ATOMIC_NONE)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	attr.min_rnr_timer = SRDMA_LEG_RNR_TIMER;
	attr.timeout = SRDMA_LEG_ACK_TIMEOUT;
	attr.retry_cnt = SRDMA_LEG_RETRIES;
	attr.rnr_retry = SRDMA_LEG_RNR_RETRIES;
	err = leg->rdma->modify_qp(leg->qp, &attr, mask);
	return err ? failed(a, "ibv_modify_qp", err) : 0;
}

static void write_hello(uint8_t hello[SRDMA_HELLO_LEN], const struct attempt *a)
{
	const struct srdma_leg_verbs *leg = a->leg;

	memset(hello, 0, SRDMA_HELLO_LEN);
	memcpy(hello, SRDMA_HELLO_MAGIC, SRDMA_HELLO_MAGIC_LEN);
	hello[SRDMA_HELLO_AT_VERSION] = SRDMA_HELLO_VERSION;
	hello[SRDMA_HELLO_AT_KIND] = SRDMA_HELLO_KIND_LEG;
	memcpy(hello + SRDMA_HELLO_AT_TOKEN, a->params->token, SRDMA_TOKEN_LEN);
	srdma_store64(hello + SRDMA_HELLO_AT_RING_ADDR,
		      (uintptr_t)leg->records);
	srdma_store32(hello + SRDMA_HELLO_AT_RING_RKEY, leg->records_mr->rkey);
	srdma_store32(hello + SRDMA_HELLO_AT_RING, leg->ring);
}

static int request(const struct attempt *a)
{
	struct srdma_leg_verbs *leg = a->leg;
	const int most = leg->limits.max_qp_rd_atom;
	uint8_t hello[SRDMA_HELLO_LEN];
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = sizeof(hello),
		.responder_resources =
			(uint8_t)(most < SRDMA_HELLO_READS ? most
							   : SRDMA_HELLO_READS),
		.initiator_depth = 1,
		.retry_count = SRDMA_LEG_RETRIES,
		.rnr_retry_count = SRDMA_LEG_RNR_RETRIES,
		.qp_num = leg->qp->qp_num,
	};
	int err;

	write_hello(hello, a);
	err = leg->rdma->connect(leg->id, &param);
	srdma_wipe(hello, sizeof(hello));
	if (err)
		return failed_call(a, "rdma_connect");
	leg->connected = 1;
	return expect(a, RDMA_CM_EVENT_CONNECT_RESPONSE);
}

static int establish(const struct attempt *a)
{
	int r = to_state(a, IBV_QPS_INIT);

	if (r)
		return r;
	r = srdma_verbs_queue_start(&a->leg->queue);
	if (r)
		return failed(a, "ibv_post_recv", -r);
	r = request(a);
	if (!r)
		r = to_state(a, IBV_QPS_RTR);
	if (!r)
		r = to_state(a, IBV_QPS_RTS);
	if (!r && a->leg->rdma->establish(a->leg->id))
		r = failed_call(a, "rdma_establish");
	return r;
}

static int open_channel(const struct attempt *a)
{
	struct srdma_leg_verbs *leg = a->leg;

	int err;

	leg->cm = leg->rdma->create_event_channel();
	if (!leg->cm) {
		err = srdma_rdma_errno(leg->rdma);
		return srdma_error_set(-err,
				       "connecting a leg: no RDMA devices: %s: "
				       "load rdma_ucm, and see docs/rdma.md",
				       strerror(err));
	}
	if (fcntl(leg->cm->fd, F_SETFL, O_NONBLOCK))
		return failed(a, "fcntl", errno);
	if (leg->rdma->create_id(leg->cm, &leg->id, NULL, RDMA_PS_TCP))
		return failed_call(a, "rdma_create_id");
	return 0;
}

int srdma_leg_verbs_connect(struct srdma_leg_verbs *leg,
			    const struct srdma_leg_verbs_params *params,
			    int64_t deadline)
{
	struct attempt a = { .leg = leg,
			     .params = params,
			     .deadline = deadline };
	int r = find_own(&a);

	if (!r)
		r = open_channel(&a);
	if (!r)
		r = resolve_addr(&a);
	if (!r)
		r = srdma_leg_verbs_device_open(leg);
	if (!r)
		r = resolve_route(&a);
	return r ? r : establish(&a);
}

void srdma_leg_verbs_cm_close(struct srdma_leg_verbs *leg)
{
	if (leg->id)
		leg->rdma->destroy_id(leg->id);
	if (leg->cm)
		leg->rdma->destroy_event_channel(leg->cm);
}
