/* Private state of a leg over verbs, shared by the leg_verbs files only. */
#ifndef SRDMA_HOST_LEG_VERBS_IMPL_H
#define SRDMA_HOST_LEG_VERBS_IMPL_H

#include "host/leg_verbs.h"
#include "host/rdma.h"
#include "host/verbs_queue.h"

enum { SRDMA_LEG_VERBS_WHY = 160 /* bytes of the text */ };

struct srdma_leg_verbs {
	struct srdma_host_leg base;
	const struct srdma_rdma *rdma;
	struct rdma_event_channel *cm;
	struct rdma_cm_id *id; /* its device; outlives all objects of it */
	struct ibv_device_attr limits;
	int connected; /* 1: a REQ was sent */

	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct srdma_verbs_queue queue;

	uint8_t *records; /* the completion ring */
	struct ibv_mr *records_mr;
	uint32_t ring; /* its records */
	uint8_t *slots;
	struct ibv_mr *slots_mr;

	/* The descriptor to wait on: on cm, channel, timer and over. */
	int epoll;
	int timer; /* readable when keepalive is due */
	int over;  /* readable after the end of the leg */
	int has_ended;
	char why[SRDMA_LEG_VERBS_WHY]; /* of the end */
};

/* Notes why the leg ended, tells the worker, and moves the QP to error, which
 * ends all DMA. Only the first call has an effect. */
__attribute__((format(printf, 2, 3))) void
srdma_leg_verbs_end(struct srdma_leg_verbs *leg, const char *format, ...);

/* --- leg_verbs_device.c: objects of the device --- */
/* Makes everything but the connection, when leg->id has a device. 0 or -errno,
 * with an error text. */
int srdma_leg_verbs_device_open(struct srdma_leg_verbs *leg);
/* Frees what srdma_leg_verbs_device_open() made, also after it failed. */
void srdma_leg_verbs_device_close(struct srdma_leg_verbs *leg);
int srdma_leg_verbs_reg(struct srdma_host_leg *leg,
			struct srdma_host_leg_region *m);
void srdma_leg_verbs_dereg(struct srdma_host_leg *leg,
			   struct srdma_host_leg_region *m);

/* --- leg_verbs_cm.c: the connection manager --- */
/* Opens the event channel, finds the device, and connects. 0 or -errno, with an
 * error text. */
int srdma_leg_verbs_connect(struct srdma_leg_verbs *leg,
			    const struct srdma_leg_verbs_params *params,
			    int64_t deadline);
/* Handles the events that arrived; one that ends the connection ends the leg.
 */
void srdma_leg_verbs_cm_poll(struct srdma_leg_verbs *leg);
void srdma_leg_verbs_cm_close(struct srdma_leg_verbs *leg);

#endif
