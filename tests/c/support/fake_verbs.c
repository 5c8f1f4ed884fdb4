#include "support/fake_verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/addr.h"

enum { ATOMS = 16, FIRST_INTERFACE = 7, QP_NUMBER = 0x11 };

struct fake_verbs fake_verbs;

static struct {
	struct ibv_device device[FAKE_VERBS_DEVICES];
	struct ibv_context context[FAKE_VERBS_DEVICES];
	struct rdma_cm_event events[FAKE_VERBS_QUEUE];
	uint8_t hello[FAKE_VERBS_HELLO];
	uint32_t events_put, events_taken;
	struct ibv_wc wcs[FAKE_VERBS_QUEUE];
	uint32_t wcs_put, wcs_taken;
	uint64_t receive_ids[FAKE_VERBS_QUEUE];
	uint32_t receives_put, receives_taken;
} machine;

/* --- the test's side ---------------------------------------------------- */

void fake_verbs_reset(void)
{
	static const struct fake_verbs usual = {
		.gids = { { "fe80::1", "::ffff:10.0.0.1", "2001:db8::1" },
			  { "fe80::2", "::ffff:10.0.0.2" } },
		.gid_type = IBV_GID_TYPE_ROCE_V2,
	};

	fake_verbs = usual;
	memset(&machine, 0, sizeof(machine));
	for (int i = 0; i < FAKE_VERBS_DEVICES; i++) {
		snprintf(machine.device[i].name, IBV_SYSFS_NAME_MAX, "fake%d",
			 i);
		machine.context[i].device = &machine.device[i];
	}
}

void fake_verbs_event(struct rdma_cm_id *id, enum rdma_cm_event_type type)
{
	assert_true(machine.events_put < FAKE_VERBS_QUEUE);
	machine.events[machine.events_put++] =
		(struct rdma_cm_event){ .id = id, .event = type };
}

void fake_verbs_request(const struct fake_verbs_request *r)
{
	struct rdma_cm_id *id = calloc(1, sizeof(*id));
	struct rdma_conn_param *param;

	assert_non_null(id);
	assert_int_equal(srdma_addr_parse(&id->route.addr.src_storage,
					  r->address, SRDMA_ADDR_NO_PORT),
			 0);
	id->verbs = &machine.context[r->device];
	fake_verbs.id = id;
	memset(fake_verbs.refused, 0, sizeof(fake_verbs.refused));
	param = &machine.events[machine.events_put].param.conn;
	fake_verbs_event(id, RDMA_CM_EVENT_CONNECT_REQUEST);
	memcpy(machine.hello, r->hello, sizeof(machine.hello));
	param->private_data = machine.hello;
	param->private_data_len = r->hello_len;
	param->initiator_depth = r->reads;
}

static void completed(const struct ibv_wc *wc)
{
	assert_true(machine.wcs_put < FAKE_VERBS_QUEUE);
	machine.wcs[machine.wcs_put++] = *wc;
}

void fake_verbs_complete(uint32_t n, enum ibv_wc_status status)
{
	assert_true(n < fake_verbs.sends);
	completed(&(struct ibv_wc){ .wr_id = fake_verbs.sent[n].wr.wr_id,
				    .status = status });
}

void fake_verbs_receive(uint32_t length)
{
	assert_true(machine.receives_taken < machine.receives_put);
	--fake_verbs.receives;
	completed(&(struct ibv_wc){
		.wr_id = machine.receive_ids[machine.receives_taken++],
		.opcode = IBV_WC_RECV,
		.byte_len = length });
}

/* --- libibverbs --------------------------------------------------------- */

struct ibv_device **(ibv_get_device_list)(int *n)
{
	static struct ibv_device *list[FAKE_VERBS_DEVICES + 1];

	for (int i = 0; i < FAKE_VERBS_DEVICES; i++)
		list[i] = &machine.device[i];
	*n = FAKE_VERBS_DEVICES;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	(void)list;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct fake_verbs_send *send;

	(void)qp;
	(void)bad;
	for (; wr; wr = wr->next) {
		assert_true(fake_verbs.sends < FAKE_VERBS_QUEUE);
		send = &fake_verbs.sent[fake_verbs.sends++];
		send->wr = *wr;
		send->wr.sg_list = NULL;
		send->wr.next = NULL;
		send->length = wr->num_sge ? wr->sg_list->length : 0;
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	(void)qp;
	(void)bad;
	for (; wr; wr = wr->next) {
		assert_true(machine.receives_put < FAKE_VERBS_QUEUE);
		machine.receive_ids[machine.receives_put++] = wr->wr_id;
		++fake_verbs.receives;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	int n = 0;

	(void)cq;
	while (n < most && machine.wcs_taken < machine.wcs_put)
		wc[n++] = machine.wcs[machine.wcs_taken++];
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	(void)cq;
	(void)solicited;
	return 0;
}

static int never_readable(void)
{
	int fd = eventfd(0, EFD_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context = calloc(1, sizeof(*context));

	assert_non_null(context);
	context->device = device;
	context->async_fd = never_readable();
	context->ops.post_send = post_send;
	context->ops.post_recv = post_recv;
	context->ops.poll_cq = poll_cq;
	context->ops.req_notify_cq = req_notify_cq;
	return context;
}

int ibv_close_device(struct ibv_context *context)
{
	close(context->async_fd);
	free(context);
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = (struct ibv_device_attr){ .max_cqe = 1 << 16,
					  .max_qp_init_rd_atom = ATOMS,
					  .atomic_cap = IBV_ATOMIC_HCA };
	return 0;
}

static int number_of(const struct ibv_device *device)
{
	return device == &machine.device[1];
}

ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t most,
			     uint32_t flags, size_t size)
{
	const int number = number_of(context->device);
	ssize_t n = 0;

	(void)flags;
	assert_int_equal(size, sizeof(*entries));
	assert_true(most >= FAKE_VERBS_GIDS);
	for (; n < FAKE_VERBS_GIDS && fake_verbs.gids[number][n]; n++) {
		entries[n] = (struct ibv_gid_entry){
			.gid_index = (uint32_t)n,
			.port_num = 1,
			.gid_type = fake_verbs.gid_type,
			.ndev_ifindex = (uint32_t)(FIRST_INTERFACE + number),
		};
		assert_int_equal(inet_pton(AF_INET6, fake_verbs.gids[number][n],
					   entries[n].gid.raw),
				 1);
	}
	return n;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel = calloc(1, sizeof(*channel));

	assert_non_null(channel);
	channel->context = context;
	channel->fd = never_readable();
	return channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	close(channel->fd);
	free(channel);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	assert_non_null(pd);
	pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *addr, size_t length,
			    int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	assert_non_null(mr);
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	struct ibv_cq *cq = calloc(1, sizeof(*cq));

	(void)cq_context;
	(void)vector;
	assert_non_null(cq);
	cq->context = context;
	cq->channel = channel;
	cq->cqe = cqe;
	return cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	free(cq);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp *qp = calloc(1, sizeof(*qp));

	assert_non_null(qp);
	qp->context = pd->context;
	qp->qp_context = attr->qp_context;
	qp->qp_num = QP_NUMBER;
	return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	free(qp);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp;
	(void)mask;
	if (attr->qp_state == IBV_QPS_RTS)
		fake_verbs.rts = *attr;
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **context)
{
	(void)channel;
	(void)cq;
	(void)context;
	return -1;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	(void)cq;
	(void)n;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	(void)context;
	(void)event;
	return -1;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event;
}

/* --- librdmacm ---------------------------------------------------------- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *channel = calloc(1, sizeof(*channel));

	assert_non_null(channel);
	channel->fd = never_readable();
	return channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	*id = calloc(1, sizeof(**id));
	assert_non_null(*id);
	(*id)->channel = channel;
	(*id)->context = context;
	(*id)->ps = ps;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	free(id);
	return 0;
}

static int has_gid(int number, const char *text)
{
	for (int i = 0; i < FAKE_VERBS_GIDS && fake_verbs.gids[number][i]; i++)
		if (!strcmp(fake_verbs.gids[number][i], text))
			return 1;
	return 0;
}

static void gid_text(char out[INET6_ADDRSTRLEN], const struct sockaddr *addr)
{
	const struct sockaddr_in6 *six = (const void *)addr;
	const struct sockaddr_in *four = (const void *)addr;
	char ip[INET_ADDRSTRLEN];

	if (addr->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &six->sin6_addr, out, INET6_ADDRSTRLEN);
		return;
	}
	inet_ntop(AF_INET, &four->sin_addr, ip, sizeof(ip));
	snprintf(out, INET6_ADDRSTRLEN, "::ffff:%s", ip);
}

/* As in Linux, a wildcard address binds to no device. */
int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	const size_t len = addr->sa_family == AF_INET6
				   ? sizeof(struct sockaddr_in6)
				   : sizeof(struct sockaddr_in);
	char text[INET6_ADDRSTRLEN];

	gid_text(text, addr);
	memcpy(&fake_verbs.bound, addr, len);
	memcpy(&id->route.addr.src_storage, addr, len);
	if (!strcmp(text, "::ffff:0.0.0.0") || !strcmp(text, "::"))
		return 0;
	for (int i = 0; i < FAKE_VERBS_DEVICES; i++)
		if (has_gid(i, text))
			id->verbs = &machine.context[i];
	errno = ENODEV;
	return id->verbs ? 0 : -1;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	(void)id;
	(void)backlog;
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	(void)channel;
	if (machine.events_taken == machine.events_put)
		return -1;
	*event = &machine.events[machine.events_taken++];
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	(void)event;
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	(void)id;
	assert_true(len < sizeof(fake_verbs.refused));
	memcpy(fake_verbs.refused, data, len);
	++fake_verbs.refusals;
	return 0;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	(void)param;
	++fake_verbs.accepted;
	return 0;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	(void)param;
	return 0;
}

int rdma_establish(struct rdma_cm_id *id)
{
	(void)id;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	(void)id;
	++fake_verbs.disconnected;
	return 0;
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
		      int *mask)
{
	(void)id;
	(void)attr;
	*mask = 0;
	return 0;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *source,
		      struct sockaddr *target, int timeout)
{
	(void)source;
	(void)timeout;
	fake_verbs.id = id;
	id->verbs = &machine.context[0]; /* the route is over fake0 */
	memcpy(&fake_verbs.resolved, target,
	       target->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					     : sizeof(struct sockaddr_in));
	return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout)
{
	(void)id;
	(void)timeout;
	return 0;
}
