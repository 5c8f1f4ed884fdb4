/*
 * The functions of libibverbs and librdmacm. The libraries are loaded when the
 * first leg over verbs is made, so that libsrdma works on machines without
 * them. Posting and polling are inline functions of <infiniband/verbs.h>, which
 * call the device's provider directly.
 */
#ifndef SRDMA_HOST_RDMA_H
#define SRDMA_HOST_RDMA_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define SRDMA_RDMA_VERBS(each)                                                 \
	each(alloc_pd) each(dealloc_pd) each(reg_mr) each(dereg_mr)            \
		each(create_comp_channel) each(destroy_comp_channel) each(     \
			create_cq) each(destroy_cq) each(get_cq_event)         \
			each(ack_cq_events) each(create_qp) each(modify_qp)    \
				each(destroy_qp) each(query_device)            \
					each(get_device_name)                  \
						each(wc_status_str)

#define SRDMA_RDMA_CM(each)                                                    \
	each(create_event_channel) each(destroy_event_channel) each(create_id) \
		each(destroy_id) each(resolve_addr) each(resolve_route)        \
			each(init_qp_attr) each(connect) each(establish)       \
				each(disconnect) each(get_cm_event)            \
					each(ack_cm_event) each(event_str)

#define SRDMA_RDMA_IBV_FIELD(name) __typeof__(ibv_##name) *name;
#define SRDMA_RDMA_CM_FIELD(name)  __typeof__(rdma_##name) *name;

/* The function ibv_NAME or rdma_NAME is the field NAME. */
struct srdma_rdma {
	SRDMA_RDMA_VERBS(SRDMA_RDMA_IBV_FIELD)
	SRDMA_RDMA_CM(SRDMA_RDMA_CM_FIELD)
};

/*
 * The functions, loaded once per process. 0; -ENOTSUP, with an error text: a
 * library is missing, or one of its functions.
 */
int srdma_rdma_load(const struct srdma_rdma **out);

#endif
