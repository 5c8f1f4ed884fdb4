/* Communication identifiers: their life, addresses and options. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "rdmacm/objects.h"
#include "verbs/group_gid.h"

struct cm_id *cm_ids;

/* --- life ------------------------------------------------------------------------ */

struct cm_id *cm_id_create(struct cm_channel *channel, void *context,
			   enum rdma_port_space ps, int held)
{
	static uint64_t serial;
	struct cm_id *id = calloc(1, sizeof(*id));

	if (!id)
		return NULL;
	id->rdma.channel = &channel->rdma;
	id->rdma.context = context;
	id->rdma.ps = ps;
	id->rdma.qp_type = cm_type_usual(ps);
	id->generation = cm_generation();
	id->deadline = INT64_MAX;
	id->timeout = CM_TIMEOUT;
	id->held = held;
	cm_lock();
	id->serial = ++serial;
	id->next = cm_ids;
	cm_ids = id;
	cm_unlock();
	return id;
}

static void unlink_id(struct cm_id *id)
{
	struct cm_id **at = &cm_ids;

	while (*at != id)
		at = &(*at)->next;
	*at = id->next;
}

int cm_id_set_talk(struct cm_id *id, struct srdma_channel *talk)
{
	cm_lock();
	id->talk = talk;
	cm_unlock();
	return cm_loop_watch(id, srdma_channel_fd(talk));
}

static void end_talk(struct cm_id *id)
{
	if (!id->talk)
		return;
	cm_loop_unwatch(srdma_channel_fd(id->talk));
	srdma_channel_drop(id->talk);
	id->talk = NULL;
}

void cm_id_end_talk(struct cm_id *id)
{
	cm_lock();
	end_talk(id);
	cm_unlock();
}

void cm_id_forget(struct cm_id *id)
{
	end_talk(id);
	unlink_id(id);
	free(id);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	const int sync = !channel;
	struct cm_id *made = NULL;
	int err = cm_type_check(cm_type_usual(ps), ps);

	if (channel && cm_check_channel(channel))
		return -1;
	if (!err)
		err = -cm_loop_start();
	if (err)
		return cm_fail(err);
	if (sync)
		channel = rdma_create_event_channel();
	if (!channel)
		return -1;
	if (cm_device())
		made = cm_id_create((struct cm_channel *)channel, context, ps,
				    0);
	if (!made) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return -1;
	}
	made->sync = sync;
	*id = &made->rdma;
	return 0;
}

/* The loop holds a request of this listener. */
static int is_arriving(const struct cm_id *listener)
{
	for (const struct cm_id *id = cm_ids; id; id = id->next)
		if (id->listener == listener && id->held)
			return 1;
	return 0;
}

/* Requests that the program has not got end with their listener. */
static void forget_requests(const struct cm_id *listener)
{
	struct cm_id *id, *next;

	while (is_arriving(listener))
		cm_wait();
	for (id = cm_ids; id; id = next) {
		next = id->next;
		if (id->listener == listener)
			cm_id_forget(id);
	}
}

unsigned cm_id_waiting(const struct cm_id *listener)
{
	unsigned n = 0;

	cm_lock();
	for (const struct cm_id *id = cm_ids; id; id = id->next)
		n += id->listener == listener && id->talk;
	cm_unlock();
	return n;
}

/* The agent is told. */
static void end_channels(struct cm_id *id)
{
	cm_refuse(id);
	cm_id_end_talk(id);
	if (!id->service)
		return;
	cm_loop_unwatch(srdma_lasting_fd(id->service));
	srdma_lasting_close(id->service);
	id->service = NULL;
}

/* With the lock. Other threads may still call functions with the id before they
 * acknowledge its events: these calls fail. */
static void end(struct cm_id *id)
{
	id->state = CM_OVER;
	id->left = 1;
	forget_requests(id);
	cm_drop_events(id);
	unlink_id(id);
	cm_release(id);
	cm_await_acknowledged(id);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cm_id *own = cm_id_of(id);

	if (cm_hold(own))
		return -1;
	cm_release_event(id);
	cm_group_leave_all(own);
	end_channels(own);
	cm_lock();
	end(own);
	cm_unlock();
	if (own->sync)
		rdma_destroy_event_channel(id->channel);
	free(own->init);
	free(own);
	return 0;
}

int cm_complete(struct cm_id *id)
{
	const struct rdma_cm_event *e;

	if (!id->sync)
		return 0;
	cm_release_event(&id->rdma);
	if (rdma_get_cm_event(id->rdma.channel, &id->rdma.event))
		return -1;
	e = id->rdma.event;
	if (!e->status)
		return 0;
	return cm_fail(e->status < 0 ? -e->status : ECONNREFUSED);
}

/* --- addresses ---------------------------------------------------------------------- */

enum { PORT_LOW = 32768, PORT_HIGH = 61000 };

/* A port for the peer to see. Nothing depends on it. */
static uint16_t some_port(void)
{
	static uint16_t last;
	uint16_t port;

	cm_lock();
	last = (uint16_t)(last < PORT_LOW || last + 1 >= PORT_HIGH ? PORT_LOW
								   : last + 1);
	port = last;
	cm_unlock();
	return port;
}

int cm_id_attach(struct cm_id *id)
{
	struct rdma_addr *a = &id->rdma.route.addr;
	uint16_t port = srdma_addr_port(&a->src_addr);
	uint8_t gid[SRDMA_GID_LEN];

	if (!cm_pd())
		return -errno;
	id->rdma.verbs = cm_device();
	id->rdma.pd = cm_pd();
	id->rdma.port_num = 1;
	cm_own_gid(gid);
	if (!port)
		id->any_port = 1;
	cm_address_of(&a->src_storage, gid, port ? port : some_port());
	memcpy(a->addr.ibaddr.sgid.raw, gid, sizeof(gid));
	a->addr.ibaddr.pkey = 0xffff;
	return 0;
}

static int bind_to(struct cm_id *id, const struct sockaddr *a)
{
	struct rdma_addr *own = &id->rdma.route.addr;
	uint8_t gid[SRDMA_GID_LEN], here[SRDMA_GID_LEN];
	int r = cm_address_gid(gid, a);

	if (id->state != CM_IDLE)
		return -EINVAL;
	if (r)
		return r;
	cm_own_gid(here);
	if (!cm_address_any(a) && !cm_address_localhost(a) &&
	    memcmp(gid, here, sizeof(gid)))
		return -ENODEV;
	memcpy(&own->src_storage, a, cm_address_len(a));
	if (!cm_address_any(a))
		r = cm_id_attach(id);
	if (!r)
		id->state = CM_BOUND;
	return r;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	struct cm_id *own = cm_id_of(id);

	if (!addr)
		return cm_fail(EINVAL);
	if (cm_hold(own))
		return -1;
	return cm_done(own, -bind_to(own, addr));
}

/* Returns the status of the event; errors of the call have another way. */
static int resolve(struct cm_id *id, const struct sockaddr *dst)
{
	struct rdma_addr *a = &id->rdma.route.addr;
	int r = cm_address_gid(id->gid, dst);

	if (!r)
		r = cm_id_attach(id);
	if (r)
		return r;
	if (cm_address_any(dst)) /* this host, as the kernel has it */
		cm_own_gid(id->gid);
	cm_address_of(&a->dst_storage, id->gid, srdma_addr_port(dst));
	memcpy(a->addr.ibaddr.dgid.raw, id->gid, SRDMA_GID_LEN);
	if (verbs_gid_is_group(id->gid))
		return cm_is_ud(id) ? 0 : -EINVAL;
	id->peer = cm_policy_peer(id->gid);
	return id->peer ? 0 : -EACCES;
}

static int resolve_addr(struct cm_id *id, const struct sockaddr *src,
			const struct sockaddr *dst)
{
	int r = src && id->state == CM_IDLE ? bind_to(id, src) : 0;

	if (r)
		return r;
	if (id->state != CM_IDLE && id->state != CM_BOUND)
		return -EINVAL;
	r = resolve(id, dst);
	if (!r)
		id->state = CM_RESOLVED;
	return cm_report(
		id, r ? RDMA_CM_EVENT_ADDR_ERROR : RDMA_CM_EVENT_ADDR_RESOLVED,
		r, NULL);
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src_addr,
		      struct sockaddr *dst_addr, int timeout_ms)
{
	struct cm_id *own = cm_id_of(id);

	(void)timeout_ms; /* it takes no time */
	if (!dst_addr)
		return cm_fail(EINVAL);
	if (cm_hold(own) ||
	    cm_done(own, -resolve_addr(own, src_addr, dst_addr)))
		return -1;
	return cm_complete(own);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	struct cm_id *own = cm_id_of(id);
	int r = -EINVAL;

	(void)timeout_ms;
	if (cm_hold(own))
		return -1;
	if (own->state == CM_RESOLVED)
		r = cm_report(own, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL);
	if (!r)
		own->state = CM_ROUTED;
	return cm_done(own, -r) ? -1 : cm_complete(own);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return htons(srdma_addr_port(&id->route.addr.src_addr));
}

__be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	return htons(srdma_addr_port(&id->route.addr.dst_addr));
}

/* --- options ----------------------------------------------------------------------------- */

static int set_timeout(struct cm_id *id, uint8_t timeout)
{
	if (cm_is_ud(id) || timeout > CM_TIMEOUT_MAX)
		return cm_fail(EINVAL);
	if (cm_hold(id))
		return -1;
	id->timeout = timeout;
	return cm_done(id, 0);
}

/* The other options are checked, and have no effect: packets have no type of service
 * that a program chooses. */
int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
		    size_t optlen)
{
	static const size_t sizes[] = {
		[RDMA_OPTION_ID_TOS] = sizeof(uint8_t),
		[RDMA_OPTION_ID_REUSEADDR] = sizeof(int),
		[RDMA_OPTION_ID_AFONLY] = sizeof(int),
		[RDMA_OPTION_ID_ACK_TIMEOUT] = sizeof(uint8_t),
	};

	if (level != RDMA_OPTION_ID || optname < 0 ||
	    (size_t)optname >= sizeof(sizes) / sizeof(*sizes))
		return cm_fail(EOPNOTSUPP);
	if (!optval || optlen != sizes[optname])
		return cm_fail(EINVAL);
	return optname == RDMA_OPTION_ID_ACK_TIMEOUT
		       ? set_timeout(cm_id_of(id), *(const uint8_t *)optval)
		       : 0;
}
