/* rdma_create_ep(): an id with address, route and QP in one call. */
#include <errno.h>
#include <stdlib.h>

#include "rdmacm/objects.h"

static int keep_init(struct cm_id *id, struct ibv_pd *pd,
		     const struct ibv_qp_init_attr *init)
{
	if (!init)
		return 0;
	id->init = malloc(sizeof(*id->init));
	if (!id->init)
		return -1;
	*id->init = *init;
	id->init->qp_type = id->rdma.qp_type;
	if (pd)
		id->rdma.pd = pd;
	return 0;
}

static int active(struct rdma_cm_id *id, const struct rdma_addrinfo *res,
		  struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	if (rdma_resolve_addr(id, res->ai_src_addr, res->ai_dst_addr,
			      CM_ANSWER_MS) ||
	    rdma_resolve_route(id, CM_ANSWER_MS))
		return -1;
	if (!init)
		return 0;
	init->qp_type = id->qp_type;
	return rdma_create_qp(id, pd, init);
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res,
		   struct ibv_pd *pd, struct ibv_qp_init_attr *qp_init_attr)
{
	const enum rdma_port_space ps =
		(enum rdma_port_space)res->ai_port_space;
	const enum ibv_qp_type type = (enum ibv_qp_type)res->ai_qp_type;
	struct rdma_cm_id *made;
	int r, err = cm_type_check(type, ps);

	if (err)
		return cm_fail(err);
	if (rdma_create_id(NULL, &made, NULL, ps))
		return -1;
	made->qp_type = type;
	if (res->ai_flags & RAI_PASSIVE) {
		r = rdma_bind_addr(made, res->ai_src_addr);
		if (!r)
			r = keep_init(cm_id_of(made), pd, qp_init_attr);
	} else {
		r = active(made, res, pd, qp_init_attr);
	}
	if (!r) {
		*id = made;
		return 0;
	}
	err = errno;
	rdma_destroy_ep(made);
	return cm_fail(err);
}

void rdma_destroy_ep(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

/* The id of a request waits in its own calls, as its listener does. It keeps the
 * event unless the call fails before. */
static int take(struct rdma_cm_id *id, const struct cm_id *listener,
		struct rdma_cm_event *event)
{
	struct ibv_qp_init_attr init;
	int err;

	if (rdma_migrate_id(id, NULL)) {
		err = errno;
		rdma_ack_cm_event(event);
		return cm_fail(err);
	}
	id->event = event;
	if (!listener->init)
		return 0;
	init = *listener->init;
	return rdma_create_qp(id, listener->rdma.pd, &init);
}

int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	struct cm_id *listener = cm_id_of(listen);
	struct rdma_cm_event *event;
	struct rdma_cm_id *request;
	int err;

	if (cm_hold(listener) ||
	    cm_done(listener, listener->sync && listener->state == CM_LISTENING
				      ? 0
				      : EINVAL))
		return -1;
	cm_release_event(listen);
	if (rdma_get_cm_event(listen->channel, &event))
		return -1;
	if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		err = event->status ? -event->status : EINVAL;
		listen->event = event;
		return cm_fail(err);
	}
	request = event->id;
	if (take(request, listener, event)) {
		err = errno;
		rdma_destroy_ep(request);
		return cm_fail(err);
	}
	*id = request;
	return 0;
}
