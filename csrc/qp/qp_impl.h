/* The core of a QP, written by the folder qp/ only. */
#ifndef SRDMA_QP_QP_IMPL_H
#define SRDMA_QP_QP_IMPL_H

#include "ledger/ledger.h"
#include "memory/mr.h"
#include "qp/op.h"
#include "qp/qp.h"
#include "base/timer.h"

/* Inbound work of a QP: inbound.h. */
struct srdma_inbound {
	struct srdma_op_list list;
	uint32_t responses; /* due to the peer */
	uint64_t progress;  /* time of the last progress, ns */
};

/* Epochs and K_PD: qp_rekey.c. */
struct srdma_qp_epochs {
	uint32_t peer_epoch; /* highest verified */
	uint8_t renewing;    /* the peer has not acknowledged a packet under the
			     new secret */
	uint8_t pd_held;     /* KEY derived a secret that no session has yet */
	uint32_t pd_serial;  /* of the K_PD held */
	uint64_t asked;	     /* last flag A that requested an ack for the next
				epoch, ns */
	uint64_t followed;   /* when the peer's epoch began, ns */
};

/* Whether a QP runs, or is on a list of env to run. */
enum srdma_qp_active {
	SRDMA_QP_INACTIVE,
	SRDMA_QP_LISTED,
	SRDMA_QP_RUNS,
	SRDMA_QP_RUNS_AGAIN, /* it runs, and was activated meanwhile */
};

/* The first fields, up to the first counters, are those that each packet touches. */
struct srdma_qp_core {
	struct srdma_qp *qp;
	struct srdma_env *env;
	struct srdma_session *session; /* from KEYS on */
	const struct srdma_leg *leg;
	struct srdma_account *identity; /* from KEYS on */
	struct srdma_tenant *tenant;	/* from KEYS on */
	struct srdma_cq *cq;
	struct srdma_qp *active_next;
	struct srdma_timer timer;
	uint8_t active;	   /* enum srdma_qp_active */
	uint8_t state;	   /* enum srdma_qp_state */
	uint8_t scheduled; /* enum srdma_say */
	uint8_t silent;	   /* no completion records */
	uint8_t event_due; /* the QP_EVENT record is not written yet */
	uint8_t ending;	   /* reason given to srdma_qp_end(); 0: none */
	struct srdma_qp_keyed keyed;
	uint32_t qpn;
	uint32_t dmas;	/* ops ISSUED */
	uint64_t heard; /* ns */
	struct srdma_inbound inbound;
	struct srdma_mr_permit permits[2]; /* of own accesses; of the peer's */
	struct srdma_qp_epochs epochs;
	struct srdma_account_counts counts;
	struct srdma_pdkeys *pdkeys;
	struct srdma_qp_last last;
	uint64_t ending_id;
	uint64_t failed_id;	   /* request that ended it, OLDEST or NONE */
	uint32_t reason;	   /* why ERR */
	uint64_t grace, grace_end; /* of requests after the peer's end, ns */
};

/* layout.c */
struct srdma_qp_core *srdma_qp_core(const struct srdma_qp *qp);

#endif
