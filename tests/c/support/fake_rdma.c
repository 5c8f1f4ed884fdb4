#include "support/fake_rdma.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/bytes.h"

enum { QUEUE = 1024 };

struct fake_rdma fake_rdma;

static struct ibv_device device;
static struct ibv_context context;
static struct ibv_comp_channel channel;
static struct ibv_pd pd;
static struct ibv_cq cq;
static struct ibv_qp qp;
static struct rdma_event_channel cm;
static struct rdma_cm_id cm_id;

static struct rdma_cm_event events[QUEUE];
static uint32_t event_head, event_tail;
static struct ibv_wc wcs[QUEUE];
static uint32_t wc_head, wc_tail;
static int armed;
static uint32_t rkey;

/* 1 if the test wants this call to fail; errno is set. */
static int fails(const char *name)
{
	if (!fake_rdma.fails || strcmp(fake_rdma.fails, name) != 0 ||
	    fake_rdma.after-- > 0)
		return 0;
	errno = fake_rdma.error;
	return 1;
}

/* --- verbs --------------------------------------------------------------- */

static void *create(const char *name, void *object)
{
	if (fails(name))
		return NULL;
	fake_rdma.objects++;
	return object;
}

static int destroy(void)
{
	fake_rdma.objects--;
	return 0;
}

static const char *get_device_name(struct ibv_device *d)
{
	(void)d;
	return "fake0";
}

static const char *wc_status_str(enum ibv_wc_status status)
{
	(void)status;
	return "a failed completion";
}

static int query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	(void)c;
	memset(attr, 0, sizeof(*attr));
	attr->atomic_cap = fake_rdma.atomics;
	attr->max_qp_rd_atom = fake_rdma.reads;
	return fails("query_device") ? errno : 0;
}

static struct ibv_pd *alloc_pd(struct ibv_context *c)
{
	(void)c;
	return create("alloc_pd", &pd);
}

static int dealloc_pd(struct ibv_pd *p)
{
	(void)p;
	return destroy();
}

static struct ibv_mr *reg_mr(struct ibv_pd *p, void *addr, size_t length,
			     int access)
{
	struct ibv_mr *mr;

	(void)p;
	if (fails("reg_mr"))
		return NULL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return NULL;
	create("", mr);
	mr->addr = addr;
	mr->lkey = mr->rkey = rkey++;
	fake_rdma.mr_length = length;
	fake_rdma.mr_access = access;
	return mr;
}

static int dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return destroy();
}

static struct ibv_comp_channel *create_comp_channel(struct ibv_context *c)
{
	(void)c;
	channel.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	if (channel.fd < 0)
		return NULL;
	if (fails("create_comp_channel")) {
		close(channel.fd);
		return NULL;
	}
	return create("", &channel);
}

static int destroy_comp_channel(struct ibv_comp_channel *c)
{
	close(c->fd);
	return destroy();
}

static struct ibv_cq *create_cq(struct ibv_context *c, int cqe, void *user,
				struct ibv_comp_channel *ch, int vector)
{
	(void)c;
	(void)cqe;
	(void)user;
	(void)ch;
	(void)vector;
	cq.context = &context;
	return create("create_cq", &cq);
}

static int destroy_cq(struct ibv_cq *c)
{
	(void)c;
	return destroy();
}

static int get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **out,
			void **user)
{
	eventfd_t one;

	*user = NULL;
	*out = &cq;
	return eventfd_read(ch->fd, &one);
}

static void ack_cq_events(struct ibv_cq *c, unsigned n)
{
	assert_ptr_equal(c, &cq);
	assert_int_equal(n, 1);
}

static struct ibv_qp *create_qp(struct ibv_pd *p, struct ibv_qp_init_attr *attr)
{
	(void)p;
	if (attr->cap.max_inline_data > fake_rdma.inline_max) {
		errno = EINVAL;
		return NULL;
	}
	qp.context = &context;
	qp.qp_num = 77;
	return create("create_qp", &qp);
}

static int modify_qp(struct ibv_qp *q, struct ibv_qp_attr *attr, int mask)
{
	(void)q;
	assert_true(mask & IBV_QP_STATE);
	if (fails("modify_qp"))
		return errno;
	fake_rdma.state = attr->qp_state;
	fake_rdma.attr[attr->qp_state] = *attr;
	return 0;
}

static int destroy_qp(struct ibv_qp *q)
{
	(void)q;
	return destroy();
}

/* --- queues -------------------------------------------------------------- */

static int poll_cq(struct ibv_cq *c, int n, struct ibv_wc *out)
{
	int got = 0;

	(void)c;
	fake_rdma.polls++;
	if (fails("poll_cq"))
		return -1;
	while (got < n && wc_head != wc_tail)
		out[got++] = wcs[wc_head++ % QUEUE];
	return got;
}

static int req_notify_cq(struct ibv_cq *c, int solicited)
{
	(void)c;
	assert_int_equal(solicited, 0);
	armed = 1;
	return fails("req_notify_cq") ? errno : 0;
}

static int post_send(struct ibv_qp *q, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	const uint8_t *at;

	(void)q;
	*bad = wr;
	if (fails("post_send"))
		return errno;
	for (; wr; wr = wr->next) {
		assert_int_equal(wr->opcode, IBV_WR_SEND);
		if (!wr->num_sge) {
			assert_int_equal(wr->send_flags, IBV_SEND_SIGNALED);
			fake_rdma.beats++;
			continue;
		}
		assert_int_equal(wr->num_sge, 1);
		at = (const uint8_t *)(uintptr_t)wr->sg_list->addr;
		fake_rdma.sent[fake_rdma.sends++ % FAKE_SENT] =
			(struct fake_sent){
				.length = wr->sg_list->length,
				.flags = wr->send_flags,
				.wr_id = wr->wr_id,
				.first = *at,
				.consumed = srdma_load32(at + 16),
			};
	}
	return 0;
}

static int post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	(void)q;
	*bad = wr;
	if (fails("post_recv"))
		return errno;
	for (; wr; wr = wr->next, fake_rdma.receives++)
		assert_int_equal(wr->num_sge, 0);
	return 0;
}

void fake_rdma_complete(enum ibv_wc_opcode opcode, uint64_t wr_id,
			enum ibv_wc_status status)
{
	wcs[wc_tail++ % QUEUE] = (struct ibv_wc){ .opcode = opcode,
						  .wr_id = wr_id,
						  .status = status };
	if (armed)
		eventfd_write(channel.fd, 1);
	armed = 0;
}

/* --- connection manager -------------------------------------------------- */

void fake_rdma_event(enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = &events[event_tail++ % QUEUE];

	*e = (struct rdma_cm_event){ .event = type,
				     .status = fake_rdma.status,
				     .id = &cm_id };
	if (type == RDMA_CM_EVENT_REJECTED && fake_rdma.reject_len) {
		e->param.conn.private_data = fake_rdma.reject;
		e->param.conn.private_data_len = fake_rdma.reject_len;
	}
	eventfd_write(cm.fd, 1);
}

static int answer(const char *name, int event)
{
	if (fails(name))
		return -1;
	if (event != FAKE_SILENCE_)
		fake_rdma_event((enum rdma_cm_event_type)event);
	return 0;
}

static struct rdma_event_channel *create_event_channel(void)
{
	if (fails("create_event_channel"))
		return NULL;
	cm.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	return cm.fd < 0 ? NULL : create("", &cm);
}

static void destroy_event_channel(struct rdma_event_channel *ch)
{
	close(ch->fd);
	destroy();
}

static int create_id(struct rdma_event_channel *ch, struct rdma_cm_id **out,
		     void *user, enum rdma_port_space space)
{
	(void)ch;
	(void)user;
	assert_int_equal(space, RDMA_PS_TCP);
	memset(&cm_id, 0, sizeof(cm_id));
	*out = create("create_id", &cm_id);
	return *out ? 0 : -1;
}

static int destroy_id(struct rdma_cm_id *id)
{
	(void)id;
	return destroy();
}

static int resolve_addr(struct rdma_cm_id *id, struct sockaddr *own,
			struct sockaddr *peer, int timeout)
{
	const int n = fake_rdma.resolved < 3 ? fake_rdma.resolved++ : 3;

	assert_non_null(own);
	assert_int_equal(own->sa_family, peer->sa_family);
	assert_in_range(timeout, 1, 1000);
	id->verbs = fake_rdma.no_device ? NULL : &context;
	return answer("resolve_addr", fake_rdma.addr_events[n]);
}

static int resolve_route(struct rdma_cm_id *id, int timeout)
{
	(void)id;
	(void)timeout;
	return answer("resolve_route", fake_rdma.route_event);
}

static int init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
			int *mask)
{
	(void)id;
	(void)attr;
	*mask = IBV_QP_STATE;
	return fails("init_qp_attr") ? -1 : 0;
}

static int connect_id(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	(void)id;
	fake_rdma.param = *param;
	assert_int_equal(param->private_data_len, FAKE_HELLO);
	memcpy(fake_rdma.hello, param->private_data, FAKE_HELLO);
	return answer("connect", fake_rdma.connect_event);
}

static int establish(struct rdma_cm_id *id)
{
	(void)id;
	assert_int_equal(fake_rdma.state, IBV_QPS_RTS);
	return fails("establish") ? -1 : 0;
}

static int disconnect(struct rdma_cm_id *id)
{
	(void)id;
	fake_rdma.disconnected++;
	return 0;
}

static int get_cm_event(struct rdma_event_channel *ch,
			struct rdma_cm_event **out)
{
	eventfd_t one;

	if (fails("get_cm_event") || eventfd_read(ch->fd, &one))
		return -1;
	*out = &events[event_head++ % QUEUE];
	fake_rdma.objects++;
	return 0;
}

static int ack_cm_event(struct rdma_cm_event *e)
{
	(void)e;
	return destroy();
}

static const char *event_str(enum rdma_cm_event_type type)
{
	switch (type) {
	case RDMA_CM_EVENT_DISCONNECTED:
		return "RDMA_CM_EVENT_DISCONNECTED";
	case RDMA_CM_EVENT_UNREACHABLE:
		return "RDMA_CM_EVENT_UNREACHABLE";
	default:
		return "another event";
	}
}

/* --- table --------------------------------------------------------------- */

static const struct srdma_rdma table = {
	.alloc_pd = alloc_pd,
	.dealloc_pd = dealloc_pd,
	.reg_mr = reg_mr,
	.dereg_mr = dereg_mr,
	.create_comp_channel = create_comp_channel,
	.destroy_comp_channel = destroy_comp_channel,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.get_cq_event = get_cq_event,
	.ack_cq_events = ack_cq_events,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.destroy_qp = destroy_qp,
	.query_device = query_device,
	.get_device_name = get_device_name,
	.wc_status_str = wc_status_str,
	.create_event_channel = create_event_channel,
	.destroy_event_channel = destroy_event_channel,
	.create_id = create_id,
	.destroy_id = destroy_id,
	.resolve_addr = resolve_addr,
	.resolve_route = resolve_route,
	.init_qp_attr = init_qp_attr,
	.connect = connect_id,
	.establish = establish,
	.disconnect = disconnect,
	.get_cm_event = get_cm_event,
	.ack_cm_event = ack_cm_event,
	.event_str = event_str,
	.errno_location = __errno_location,
};

int fake_rdma_load(const struct srdma_rdma **out)
{
	*out = &table;
	return fails("load") ? -ENOTSUP : 0;
}

int fake_rdma_setup(void **state)
{
	static const struct ibv_context_ops queues = {
		.poll_cq = poll_cq,
		.req_notify_cq = req_notify_cq,
		.post_send = post_send,
		.post_recv = post_recv,
	};

	(void)state;
	fake_rdma = (struct fake_rdma){
		.error = EIO,
		.addr_events = { RDMA_CM_EVENT_ADDR_RESOLVED },
		.route_event = RDMA_CM_EVENT_ROUTE_RESOLVED,
		.connect_event = RDMA_CM_EVENT_CONNECT_RESPONSE,
		.inline_max = 512,
		.atomics = IBV_ATOMIC_HCA,
		.reads = 128,
	};
	context = (struct ibv_context){ .device = &device, .ops = queues };
	event_head = event_tail = wc_head = wc_tail = 0;
	armed = 0;
	rkey = FAKE_RKEY;
	return 0;
}

int fake_rdma_teardown(void **state)
{
	(void)state;
	return fake_rdma.objects;
}
