/*
 * The objects behind the public handles. The worker has structures of its own
 * with the names srdma_qp and srdma_mr, in another program.
 */
#ifndef SRDMA_HOST_OBJECTS_H
#define SRDMA_HOST_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "host/channel.h"
#include "host/host.h"
#include "host/lasting_control.h"
#include "host/leg.h"
#include "srdma/device.h"
#include "srdma/memory.h"
#include "srdma/queue.h"

struct srdma_device {
	struct srdma_lasting_control *control; /* to worker process 0 */
	pthread_mutex_t lock;		       /* of control */
	struct srdma_ctl_hello_answer hello;
	char path[SRDMA_SOCKET_PATH]; /* control socket of process 0 */
	struct srdma_agent_place agent;
	int restricted;	  /* 1: connections to the worker come from the agent */
	int remote;	  /* 1: worker and agent are on another computer */
	atomic_uint next; /* worker process of the next PD */
	atomic_uint users; /* PDs and listeners */
};

enum { SRDMA_GROUP_MAX = 64 };

struct srdma_pd {
	struct srdma_device *device;
	struct srdma_lasting_control *control; /* the leg ends with it */
	struct srdma_host_leg *leg;
	struct srdma_host *host;
	struct srdma_qp *qps; /* list */
	uint32_t number;      /* of the leg */
	uint8_t token[SRDMA_TOKEN_LEN];
	char path[SRDMA_SOCKET_PATH];
	char group[SRDMA_GROUP_MAX + 1]; /* trust group; "": none */
	int epoll;	/* on the leg and the control connection */
	int armed;	/* 1: after srdma_req_notify_cq() */
	int gone;	/* 1: the worker or the leg ended */
	int64_t looked; /* last check that the worker lives, ms */
	int64_t slept;	/* ms in srdma_wait_cq() since the last completion, or
			 * since the last check that the leg lives */
	unsigned users; /* QPs, regions and connections */
	/* 1: an UNINSTALL timed out, and may have succeeded */
	int uninstalling;
};

struct srdma_qp {
	struct srdma_pd *pd;
	struct srdma_qp *next;
	struct srdma_ctl_init_answer made; /* for the peer (protocol.md 8.2) */
	enum srdma_qp_status status;
	uint32_t reason;
	struct srdma_qp_params params;
	int reset; /* 1: the worker ended it, and it may keep its QPN */
};

struct srdma_mr {
	struct srdma_pd *pd;
	struct srdma_host_leg_region memory;
	uint32_t key;
	int allocated;	   /* 1: the memory is of srdma_alloc_mr() */
	int deregistering; /* 1: DEREG_MR was requested, as in srdma_qp */
};

/* As srdma_reg_mr(), of memory that is mapped from `offset` of a memfd on, which the
 * caller may close afterwards; -1: of none. */
int srdma_reg_mr_of_file(struct srdma_mr **mr, struct srdma_pd *pd,
			 const struct srdma_mr_attr *attr, int fd,
			 uint64_t offset);

/*
 * `made`, another region of the same PD, takes the place of *mr and its key (REPLACE,
 * docs/local-interface.md 3.5). 0: *mr is `made`, and the former region is freed.
 * Errors of a control call (pd.c): both live, and the former one may be deregistered
 * at the worker.
 */
int srdma_replace_mr(struct srdma_mr **mr, struct srdma_mr *made);

/* A new connection to the worker process at the path. It may be of another kind
 * than the device's: the agent may have been started again. Errors of
 * srdma_control_connect(), srdma_access_connect() and
 * srdma_lasting_control_create(). */
int srdma_device_connect(const struct srdma_device *d,
			 struct srdma_lasting_control **out, const char *path);

/* 0, or -ENOTSUP: this library has no legs of the kind that the worker of the
 * device has. Sets the error text. */
int srdma_device_check_leg(const struct srdma_device *d);

/* OPEN: makes the leg of the PD, of the kind that the worker has, its number
 * and its token. 0 or -errno, with an error text; pd->leg may be set then. */
int srdma_pd_open_leg(struct srdma_pd *pd, uint32_t ring);

/*
 * Puts a QP to error by its program (IBA 10.3.1.6): it ends at the worker, and
 * all its work requests, those posted later too, complete with an error, the
 * first request with reason. Errors of srdma_destroy_qp(); the QP did not
 * change then.
 */
int srdma_qp_flush(struct srdma_qp *qp, uint32_t reason);
/*
 * Makes a QP that was flushed anew, with its QPN and depths: it is in INIT, has no
 * work requests and shares no queue. Requires that the agent has released it
 * (srdma_connection_end()). Errors of a control call (pd.c), -ENOENT: the worker
 * has freed the QP; the program calls srdma_destroy_qp() then.
 */
int srdma_qp_reinit(struct srdma_qp *qp);

/* MODIFY with all its fields; the qpn is set here. Errors of srdma_modify_qp(). */
int srdma_change_qp(struct srdma_qp *qp, const struct srdma_qp_change *change);

/*
 * A shared queue of receives: the receive queue of a QP that is not connected. The
 * QPs of the PD that join it take its receives, which srdma_post_recv() of the
 * holder posts; their completions name the QP that took them.
 * depth: 1 to SRDMA_DEPTH_MAX. srdma_destroy_qp() ends the holder, after the QPs
 * that joined. Errors of srdma_create_qp().
 */
int srdma_shared_queue_create(struct srdma_qp **holder, struct srdma_pd *pd,
			      uint32_t depth);
/* Requires a QP that has no receives. Errors of a control call (pd.c). */
int srdma_shared_queue_join(struct srdma_qp *qp, struct srdma_qp *holder);
/* Number of outstanding receives of the shared queue. */
uint32_t srdma_shared_queue_posted(const struct srdma_qp *holder);
/* Receives that one QP takes from a shared queue at once, at most: the `rq` with
 * which it is made. */
enum { SRDMA_SHARED_TAKEN = 16 };

/* Requests that the QP can take until a completion of it is polled. */
uint32_t srdma_qp_send_room(const struct srdma_qp *qp);

/* 1 if the worker or the leg of the PD has ended. Fails the outstanding
 * requests of the PD then. */
int srdma_pd_gone(struct srdma_pd *pd);

/*
 * Asks the worker whether it still has the leg, which may end alone: its
 * control connection stays open then. Waits for the answer until the deadline.
 * After the end of the leg srdma_pd_gone() returns 1.
 */
void srdma_pd_check_leg(struct srdma_pd *pd, int64_t deadline);

/*
 * srdma_lasting_control_call() for a request about the leg of the PD.
 * -ENOTCONN: the worker or the leg has ended; the outstanding requests of the
 * PD fail then. A request that makes an object (REG_MR, INIT, INSTALL) and
 * times out may succeed later, with a result that is lost: it ends the leg,
 * unless the worker is on another computer.
 */
int srdma_pd_call(struct srdma_pd *pd, struct srdma_ctl_msg *m,
		  const struct srdma_socket_fds *out);

#endif
