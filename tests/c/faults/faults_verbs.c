/* The functions of libibverbs and librdmacm that the verbs port calls. */
#include "faults/faults_impl.h"

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* macros of verbs.h around the functions of these names */
#undef ibv_get_device_list
#undef ibv_reg_mr

/* clang-format off */
FAULT(ibv_get_device_list, struct ibv_device **, (int *n), (n), NULL, ENOMEM)
FAULT(ibv_open_device, struct ibv_context *, (struct ibv_device *d), (d), NULL,
      EACCES)
FAULT(ibv_query_device, int, (struct ibv_context *c, struct ibv_device_attr *out),
      (c, out), EIO, EIO)
FAULT(_ibv_query_gid_table, ssize_t,
      (struct ibv_context *c, struct ibv_gid_entry *out, size_t n, uint32_t flags,
       size_t size), (c, out, n, flags, size), -EIO, EIO)
FAULT(ibv_create_comp_channel, struct ibv_comp_channel *, (struct ibv_context *c),
      (c), NULL, ENOMEM)
FAULT(ibv_alloc_pd, struct ibv_pd *, (struct ibv_context *c), (c), NULL, ENOMEM)
FAULT(ibv_reg_mr, struct ibv_mr *,
      (struct ibv_pd *pd, void *at, size_t len, int access), (pd, at, len, access),
      NULL, ENOMEM)
FAULT(ibv_create_cq, struct ibv_cq *,
      (struct ibv_context *c, int n, void *ctx, struct ibv_comp_channel *channel,
       int vector), (c, n, ctx, channel, vector), NULL, ENOMEM)
FAULT(ibv_create_qp, struct ibv_qp *,
      (struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (pd, attr), NULL, ENOMEM)
FAULT(ibv_modify_qp, int, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask),
      (qp, attr, mask), EINVAL, EINVAL)
FAULT(ibv_get_cq_event, int,
      (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **ctx),
      (channel, cq, ctx), -1, EAGAIN)
FAULT(rdma_create_event_channel, struct rdma_event_channel *, (void), (), NULL,
      ENODEV)
FAULT(rdma_create_id, int,
      (struct rdma_event_channel *channel, struct rdma_cm_id **id, void *ctx,
       enum rdma_port_space ps), (channel, id, ctx, ps), -1, ENOMEM)
FAULT(rdma_bind_addr, int, (struct rdma_cm_id *id, struct sockaddr *at), (id, at),
      -1, EADDRINUSE)
FAULT(rdma_listen, int, (struct rdma_cm_id *id, int backlog), (id, backlog), -1,
      EADDRINUSE)
FAULT(rdma_get_cm_event, int,
      (struct rdma_event_channel *channel, struct rdma_cm_event **event),
      (channel, event), -1, EAGAIN)
FAULT(rdma_reject, int, (struct rdma_cm_id *id, const void *data, uint8_t len),
      (id, data, len), -1, ENOMEM)
FAULT(rdma_accept, int, (struct rdma_cm_id *id, struct rdma_conn_param *param),
      (id, param), -1, ENOMEM)
FAULT(rdma_connect, int, (struct rdma_cm_id *id, struct rdma_conn_param *param),
      (id, param), -1, ENOMEM)
FAULT(rdma_establish, int, (struct rdma_cm_id *id), (id), -1, ENOMEM)
FAULT(rdma_init_qp_attr, int,
      (struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask),
      (id, attr, mask), -1, EINVAL)
FAULT(rdma_resolve_addr, int,
      (struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int ms),
      (id, from, to, ms), -1, EADDRNOTAVAIL)
FAULT(rdma_resolve_route, int, (struct rdma_cm_id *id, int ms), (id, ms), -1,
      ENOMEM)
/* clang-format on */
