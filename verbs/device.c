/* The device srdma0: the worker that the policy names. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "host/rdma.h"
#include "verbs/objects.h"
#include "verbs/private.h"
#include "verbs/ud.h"
#include "verbs/verbs.h"

enum {
	MR_MAX = 1 << 20,
	AH_MAX = 1 << 16, /* nominal: memory limits them */
	MTU = 4096,
	VENDOR = 0x027264, /* an OUI of IEEE 802 that is administered locally */
	VENDOR_PART = 1,
	PHYS_LINK_UP = 5,
	WIDTH_4X = 2,
	SPEED_25G = 32,
	GID_TYPE_IB = 0, /* as sysfs numbers them */
	GID_TYPE_ROCE_V2 = 1,
	GIDS = 2, /* places of the table: the first one has a GID */
};

/* --- the list ------------------------------------------------------------------- */

/* Says on stderr why a program will find no device. */
static void explain(const char *what, const char *why)
{
	fprintf(stderr, "srdma: no RDMA device: %s: %s\n", what, why);
}

static struct verbs_device *make_device(void)
{
	struct verbs_device *d = calloc(1, sizeof(*d));
	const char *why;

	if (!d)
		return NULL;
	why = verbs_policy_read(&d->policy);
	if (why) {
		explain(VERBS_POLICY_ENV, why);
		free(d);
		return NULL;
	}
	srdma_rdma_set_paths(d->policy.libibverbs, d->policy.librdmacm);
	d->ibv.node_type = IBV_NODE_CA;
	d->ibv.transport_type = IBV_TRANSPORT_IB;
	strcpy(d->ibv.name, "srdma0");
	strcpy(d->ibv.dev_name, "uverbs0");
	strcpy(d->ibv.dev_path, "/sys/class/infiniband_verbs/uverbs0");
	strcpy(d->ibv.ibdev_path, "/sys/class/infiniband/srdma0");
	return d;
}

/* Network byte order. */
static __be64 guid_of(const struct srdma_device_attr *attr)
{
	__be64 guid;

	memcpy(&guid, attr->gid + sizeof(attr->gid) - sizeof(guid),
	       sizeof(guid));
	return guid;
}

/* The only device, which exists from the first success on. */
static struct verbs_device *the_device(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct verbs_device *device;
	struct srdma_device_attr attr;
	struct srdma_device *worker;

	pthread_mutex_lock(&lock);
	if (!device)
		device = make_device();
	pthread_mutex_unlock(&lock);
	if (!device)
		return NULL;
	if (srdma_open_device(&worker, device->policy.worker,
			      device->policy.agent)) {
		explain(device->policy.worker, srdma_error_text());
		return NULL;
	}
	srdma_query_device(worker, &attr);
	srdma_close_device(worker);
	pthread_mutex_lock(&lock);
	device->guid = guid_of(&attr);
	pthread_mutex_unlock(&lock);
	return device;
}

#undef ibv_get_device_list
struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof(*list));
	struct verbs_device *d = list ? the_device() : NULL;

	if (!list)
		errno = ENOMEM;
	if (d)
		list[0] = &d->ibv;
	if (num_devices)
		*num_devices = d != NULL;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1; /* the kernel has no such device */
}

/* --- contexts ------------------------------------------------------------------- */

static int query_port(struct ibv_context *context, uint8_t port_num,
		      struct ibv_port_attr *attr, size_t len);

static void set_operations(struct verbs_root *root)
{
	struct ibv_context *c = &root->ctx.context;

	root->ctx.sz = sizeof(root->ctx);
	root->ctx.query_port = query_port;
	root->ctx.query_device_ex = verbs_query_device_ex;
	root->ctx.query_rt_values = verbs_query_rt_values;
	root->ctx.create_cq_ex = verbs_create_cq_ex;
	root->ctx.create_srq_ex = verbs_create_srq_ex;
	root->ctx.create_qp_ex = verbs_create_qp_ex;
	root->ctx.alloc_td = verbs_alloc_td;
	root->ctx.dealloc_td = verbs_dealloc_td;
	root->ctx.alloc_parent_domain = verbs_alloc_parent_domain;
	c->abi_compat = __VERBS_ABI_IS_EXTENDED;
	c->ops.poll_cq = verbs_poll_cq;
	c->ops.req_notify_cq = verbs_req_notify_cq;
	c->ops.post_send = verbs_post_send;
	c->ops.post_recv = verbs_post_recv;
	c->ops.post_srq_recv = verbs_post_srq_recv;
}

static int open_worker(struct verbs_root *root)
{
	int r = srdma_open_device(&root->device, root->policy->worker,
				  root->policy->agent);

	if (r)
		return verbs_error(r);
	srdma_query_device(root->device, &root->attr);
	r = verbs_worker_open(root);
	if (!r)
		r = verbs_async_open(root);
	if (!r && !verbs_worker_tells_end(root))
		r = verbs_loop_start(root);
	if (r)
		return r;
	/* There is no device file. Programs that share a device duplicate its
	 * descriptor before ibv_import_device(). */
	root->ctx.context.cmd_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return root->ctx.context.cmd_fd < 0 ? errno : 0;
}

static void release(struct verbs_root *root)
{
	verbs_loop_stop(root);
	verbs_async_close(root);
	verbs_worker_close(root);
	if (root->ctx.context.cmd_fd >= 0)
		close(root->ctx.context.cmd_fd);
	srdma_close_device(root->device);
	pthread_mutex_destroy(&root->ctx.context.mutex);
	pthread_mutex_destroy(&root->lock);
	free(root);
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct verbs_device *d = (struct verbs_device *)device;
	struct verbs_root *root = calloc(1, sizeof(*root));
	int err;

	if (!root)
		return verbs_null(ENOMEM);
	root->policy = &d->policy;
	root->events_end = &root->events;
	root->ctx.context.device = device;
	root->ctx.context.async_fd = root->ctx.context.cmd_fd = -1;
	root->events_fd = root->ends_fd = root->gone_fd = -1;
	root->ctx.context.num_comp_vectors = 1;
	pthread_mutex_init(&root->lock, NULL);
	pthread_mutex_init(&root->ctx.context.mutex, NULL);
	set_operations(root);
	err = open_worker(root);
	if (!err) {
		verbs_import_offer(root);
		return &root->ctx.context;
	}
	release(root);
	return verbs_null(err);
}

int ibv_close_device(struct ibv_context *context)
{
	struct verbs_root *root = verbs_root_of(context);
	const int left = verbs_import_close(root);

	if (left < 0) {
		errno = -left;
		return -1;
	}
	if (left)
		return 0;
	release(root);
	return 0;
}

/* --- attributes ------------------------------------------------------------------- */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	const struct verbs_root *root = verbs_root_of(context);

	*attr = (struct ibv_device_attr){
		.fw_ver = "srdma",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 4096,
		.vendor_id = VENDOR,
		.vendor_part_id = VENDOR_PART,
		.max_qp = 1024,
		.max_qp_wr = SRDMA_DEPTH_MAX,
		.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN,
		.max_sge = SRDMA_SGE_MAX,
		.max_sge_rd = SRDMA_SGE_MAX,
		.max_cq = 1024,
		.max_cqe = VERBS_CQE_MAX,
		.max_mr = MR_MAX,
		.max_pd = 1024,
		.max_qp_rd_atom = SRDMA_PRIVATE_RD_ATOMIC,
		.max_res_rd_atom = SRDMA_PRIVATE_RD_ATOMIC * 1024,
		.max_qp_init_rd_atom = SRDMA_PRIVATE_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mcast_grp = UD_GROUPS_LEG,
		.max_mcast_qp_attach = UD_MEMBERS,
		.max_total_mcast_qp_attach = UD_GROUPS_LEG,
		.max_ah = AH_MAX,
		.max_srq = 1024,
		.max_srq_wr = SRDMA_DEPTH_MAX,
		.max_srq_sge = SRDMA_SGE_MAX,
		.max_pkeys = 1,
		.phys_port_cnt = 1,
	};
	attr->node_guid = guid_of(&root->attr);
	attr->sys_image_guid = attr->node_guid;
	return 0;
}

static int query_port(struct ibv_context *context, uint8_t port_num,
		      struct ibv_port_attr *attr, size_t len)
{
	const struct ibv_port_attr found = {
		.state = IBV_PORT_ACTIVE,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.gid_tbl_len = GIDS,
		.max_msg_sz = SRDMA_MESSAGE_MAX,
		.pkey_tbl_len = 1,
		.active_width = WIDTH_4X,
		.active_speed = SPEED_25G,
		.phys_state = PHYS_LINK_UP,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.flags = IBV_QPF_GRH_REQUIRED,
	};

	(void)context;
	if (port_num != 1)
		return verbs_result(EINVAL);
	memset(attr, 0, len);
	memcpy(attr, &found, len < sizeof(found) ? len : sizeof(found));
	return 0;
}

#undef ibv_query_port
/* Of programs that were compiled before ibv_port_attr grew: its last fields are
 * not there. */
int ibv_query_port(struct ibv_context *context, uint8_t port_num,
		   struct _compat_ibv_port_attr *attr)
{
	return query_port(context, port_num, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int bad_index(uint32_t port_num, uint32_t index, uint32_t places)
{
	return port_num != 1 || index >= places;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port_num, int index,
		  union ibv_gid *gid)
{
	if (bad_index(port_num, (uint32_t)index, GIDS)) {
		errno = EINVAL;
		return -1;
	}
	memset(gid, 0, sizeof(*gid));
	if (!index)
		memcpy(gid->raw, verbs_root_of(context)->attr.gid,
		       sizeof(gid->raw));
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
		      uint32_t gid_index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t entry_size)
{
	struct ibv_gid_entry found = { .port_num = 1,
				       .gid_type = IBV_GID_TYPE_ROCE_V2 };

	if (flags || bad_index(port_num, gid_index, GIDS))
		return verbs_result(EINVAL);
	if (gid_index)
		return verbs_result(ENODATA);
	ibv_query_gid(context, 1, 0, &found.gid);
	memcpy(entry, &found,
	       entry_size < sizeof(found) ? entry_size : sizeof(found));
	return 0;
}

/* A private function that pyverbs uses. */
int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
		       unsigned index, uint32_t *type);

int ibv_query_gid_type(struct ibv_context *context, uint8_t port_num,
		       unsigned index, uint32_t *type)
{
	(void)context;
	if (bad_index(port_num, index, GIDS)) {
		errno = EINVAL;
		return -1;
	}
	*type = index ? GID_TYPE_IB : GID_TYPE_ROCE_V2;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t max_entries,
			     uint32_t flags, size_t entry_size)
{
	if (flags)
		return -EOPNOTSUPP;
	if (!max_entries)
		return -EINVAL;
	_ibv_query_gid_ex(context, 1, 0, entries, 0, entry_size);
	return 1;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port_num, int index,
		   __be16 *pkey)
{
	(void)context;
	if (bad_index(port_num, (uint32_t)index, 1)) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port_num,
		       __be16 pkey)
{
	(void)context;
	return port_num == 1 && pkey == 0xffff ? 0 : -1;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return ((const struct verbs_device *)device)->guid;
}
