/*
 * Functions of libibverbs that srdma does not have (docs/run.md 4). They fail
 * with EOPNOTSUPP; those without a result do nothing. The private functions are
 * for providers of rdma-core, whose libraries some programs are linked with.
 * Their constructors call verbs_register_driver_34(); the others are never
 * reached, as no provider gets a device.
 *
 * This file does not include verbs.h: the parameters do not matter.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* clang-format off */
#define ABSENT(NAME)                                                           \
	int NAME(void);                                                        \
	int NAME(void) { return errno = EOPNOTSUPP; }
#define ABSENT_POINTER(NAME)                                                   \
	void *NAME(void);                                                      \
	void *NAME(void) { errno = EOPNOTSUPP; return NULL; }
#define ABSENT_MINUS(NAME)                                                     \
	int NAME(void);                                                        \
	int NAME(void) { errno = EOPNOTSUPP; return -1; }
#define NOTHING(NAME)                                                          \
	void NAME(void);                                                       \
	void NAME(void) { }

ABSENT(ibv_query_ece)
ABSENT(ibv_resolve_eth_l2_from_gid)
ABSENT(ibv_set_ece)

ABSENT_POINTER(ibv_import_dm)
ABSENT_POINTER(ibv_reg_dmabuf_mr)
ABSENT_POINTER(ibv_get_sysfs_path) /* the kernel has no such device */
ABSENT_MINUS(ibv_read_sysfs_file)
/* 0: the order of data within a WRITE is not promised. */
int ibv_query_qp_data_in_order(void);
int ibv_query_qp_data_in_order(void) { return 0; }

NOTHING(ibv_copy_ah_attr_from_kern)
NOTHING(ibv_copy_path_rec_from_kern)
NOTHING(ibv_copy_path_rec_to_kern)
NOTHING(ibv_copy_qp_attr_from_kern)
NOTHING(ibv_register_driver)
NOTHING(ibv_unimport_dm)

/* Private functions */
extern bool verbs_allow_disassociate_destroy;
bool verbs_allow_disassociate_destroy;

ABSENT(execute_ioctl)
ABSENT(ibv_cmd_advise_mr)
ABSENT(ibv_cmd_alloc_dm)
ABSENT(ibv_cmd_alloc_mw)
ABSENT(ibv_cmd_alloc_pd)
ABSENT(ibv_cmd_attach_mcast)
ABSENT(ibv_cmd_close_xrcd)
ABSENT(ibv_cmd_create_ah)
ABSENT(ibv_cmd_create_counters)
ABSENT(ibv_cmd_create_cq)
ABSENT(ibv_cmd_create_cq_ex)
ABSENT(ibv_cmd_create_flow)
ABSENT(ibv_cmd_create_flow_action_esp)
ABSENT(ibv_cmd_create_qp)
ABSENT(ibv_cmd_create_qp_ex)
ABSENT(ibv_cmd_create_qp_ex2)
ABSENT(ibv_cmd_create_rwq_ind_table)
ABSENT(ibv_cmd_create_srq)
ABSENT(ibv_cmd_create_srq_ex)
ABSENT(ibv_cmd_create_wq)
ABSENT(ibv_cmd_dealloc_mw)
ABSENT(ibv_cmd_dealloc_pd)
ABSENT(ibv_cmd_dereg_mr)
ABSENT(ibv_cmd_destroy_ah)
ABSENT(ibv_cmd_destroy_counters)
ABSENT(ibv_cmd_destroy_cq)
ABSENT(ibv_cmd_destroy_flow)
ABSENT(ibv_cmd_destroy_flow_action)
ABSENT(ibv_cmd_destroy_qp)
ABSENT(ibv_cmd_destroy_rwq_ind_table)
ABSENT(ibv_cmd_destroy_srq)
ABSENT(ibv_cmd_destroy_wq)
ABSENT(ibv_cmd_detach_mcast)
ABSENT(ibv_cmd_free_dm)
ABSENT(ibv_cmd_get_context)
ABSENT(ibv_cmd_modify_cq)
ABSENT(ibv_cmd_modify_flow_action_esp)
ABSENT(ibv_cmd_modify_qp)
ABSENT(ibv_cmd_modify_qp_ex)
ABSENT(ibv_cmd_modify_srq)
ABSENT(ibv_cmd_modify_wq)
ABSENT(ibv_cmd_open_qp)
ABSENT(ibv_cmd_open_xrcd)
ABSENT(ibv_cmd_poll_cq)
ABSENT(ibv_cmd_post_recv)
ABSENT(ibv_cmd_post_send)
ABSENT(ibv_cmd_post_srq_recv)
ABSENT(ibv_cmd_query_context)
ABSENT(ibv_cmd_query_device_any)
ABSENT(ibv_cmd_query_mr)
ABSENT(ibv_cmd_query_port)
ABSENT(ibv_cmd_query_qp)
ABSENT(ibv_cmd_query_srq)
ABSENT(ibv_cmd_read_counters)
ABSENT(ibv_cmd_reg_dm_mr)
ABSENT(ibv_cmd_reg_dmabuf_mr)
ABSENT(ibv_cmd_reg_mr)
ABSENT(ibv_cmd_req_notify_cq)
ABSENT(ibv_cmd_rereg_mr)
ABSENT(ibv_cmd_resize_cq)
ABSENT(verbs_init_cq)
ABSENT(__ioctl_final_num_attrs)
ABSENT_POINTER(_verbs_init_and_alloc_context)
ABSENT_POINTER(verbs_open_device)
ABSENT_MINUS(ibv_read_ibdev_sysfs_file)
NOTHING(__verbs_log)
NOTHING(verbs_set_ops)
NOTHING(verbs_uninit_context)
NOTHING(verbs_register_driver_34)
