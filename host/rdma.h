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
	/* Where these functions leave errno: a libc of their own, if they are in
	 * a namespace of their own. */
	int *(*errno_location)(void);
};

/* errno as the functions of the table set it. */
static inline int srdma_rdma_errno(const struct srdma_rdma *rdma)
{
	return *rdma->errno_location();
}

static inline void srdma_rdma_clear_errno(const struct srdma_rdma *rdma)
{
	*rdma->errno_location() = 0;
}

/*
 * For a process whose libibverbs.so.1 and librdmacm.so.1 are others (docs/run.md
 * 8): the libraries of the system, with these paths, are loaded in a link
 * namespace of their own. Before the first srdma_rdma_load(); the texts must
 * stay. NULL: the machine has none, and legs over RDMA are refused.
 */
void srdma_rdma_set_paths(const char *verbs, const char *cm);

/*
 * The functions, loaded once per process. 0; -ENOTSUP, with an error text: a
 * library is missing, or one of its functions.
 */
int srdma_rdma_load(const struct srdma_rdma **out);

#endif
