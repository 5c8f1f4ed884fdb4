/*
 * The objects behind the handles of libibverbs (docs/run.md). Each begins with
 * the structure that programs see. One lock per context covers the context and
 * all that was made from it, since an srdma_pd is used by one thread at a time.
 */
#ifndef VERBS_OBJECTS_H
#define VERBS_OBJECTS_H

#include <infiniband/verbs.h>
#include <time.h>

#include "host/objects.h"
#include "srdma/connection.h"
#include "verbs/map.h"
#include "verbs/policy.h"
#include "verbs/transport.h"

enum {
	VERBS_QP_BUCKETS = 256,
	VERBS_BATCH = 64, /* completions taken at once */
	VERBS_CQE_MAX = 1 << 20,
	VERBS_UD_RECVS = 1 << 16, /* receives that a UD QP can have posted */
	/* Records of a leg: the depths of all QPs of a PD. */
	VERBS_RING = 16384,
};

struct verbs_pd;
struct verbs_cq;
struct verbs_qp;
struct verbs_ud;
struct verbs_recvs;
struct verbs_loop;
struct srdma_channel;

struct verbs_device {
	struct ibv_device ibv;
	struct verbs_policy policy;
	__be64 guid;
};

/* An asynchronous event of an object, which contains it: it waits to be read at
 * most once. */
struct verbs_event {
	struct verbs_event *next;
	struct ibv_async_event event;
	int waits;
};

struct verbs_root {
	struct verbs_root *next; /* of the process */
	unsigned opens;		 /* by the program, imports included */
	uint32_t handles;	 /* of its PDs and regions */
	struct srdma_device *device;
	struct srdma_device_attr attr;
	pthread_mutex_t lock;
	struct verbs_pd *pds;
	struct verbs_qp *qps[VERBS_QP_BUCKETS]; /* by QPN */
	struct verbs_ud *uds;			/* of UD QPs */
	struct verbs_loop *loop;		/* NULL: no thread is needed */
	const struct verbs_policy *policy;
	unsigned idle;		  /* polls in a row that found nothing */
	unsigned armed;		  /* CQs */
	struct verbs_event fatal; /* the end of the worker */
	int gone;		  /* 1: it was reported */
	struct verbs_event *events, **events_end; /* to be read */
	int events_fd; /* an eventfd: readable while there are some */
	/* Readable when the worker has ended: an epoll, and the eventfd in it that stays
	 * readable afterwards. */
	int ends_fd, gone_fd;
	int64_t look_at;	  /* next look at connections, ms */
	struct verbs_context ctx; /* the last field: verbs_get_ctx() */
};

struct verbs_td {
	struct ibv_td ibv;
	unsigned users; /* parent domains */
};

struct verbs_pd {
	struct ibv_pd ibv;
	struct verbs_pd *next;
	struct srdma_pd *pd;	 /* of a parent domain: that of `parent` */
	unsigned users;		 /* QPs, SRQs, regions and parent domains */
	struct verbs_pd *parent; /* NULL: it is no parent domain */
	struct verbs_td *td;	 /* of a parent domain; NULL: none */
	/* The program's allocators for a parent domain; `alloc` is NULL if it has none. */
	struct ibv_parent_domain_init_attr allocators;
	struct verbs_mr *mrs; /* also those of parent domains */
};

struct verbs_mr {
	struct ibv_mr ibv;
	struct srdma_mr *mr;
	struct verbs_range range[2]; /* of its memory: the one at `at` */
	unsigned at, access;
	uint64_t iova;
	unsigned imports;
	struct verbs_mr *next; /* of the PD */
};

struct verbs_ah {
	struct ibv_ah ibv;
	union ibv_gid gid; /* of the peer */
};

struct verbs_channel {
	struct ibv_comp_channel ibv; /* fd: an epoll */
	struct verbs_cq *cqs;	     /* of this channel */
	int wake; /* eventfd: a completion of an armed CQ was taken */
};

/* When a completion got into its CQ, ns: of CLOCK_MONOTONIC and of CLOCK_REALTIME. 0 in
 * a CQ without time stamps. */
struct verbs_stamp {
	uint64_t raw, wall;
};

struct verbs_cqe {
	struct ibv_wc wc;
	struct verbs_stamp stamp;
};

struct verbs_cq {
	/* The fields of ibv_cq are the first ones of ibv_cq_ex. */
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ex;
	};
	struct verbs_poll *poll; /* NULL: not of ibv_create_cq_ex() */
	struct verbs_cq *channel_next;
	unsigned users; /* queues of QPs, also of QPs in RESET that have none */
	/* Completions that were taken from a leg for this CQ: a ring with room
	 * for all queues that complete here, and for cqe. */
	struct verbs_cqe *cqes;
	int stamped; /* 1: completions get time stamps */
	struct verbs_event overrun;
	uint32_t reported; /* asynchronous events that were read */
	uint32_t room, head, count, queues;
	int armed;	 /* ibv_req_notify_cq() */
	int solicited;	 /* 1: armed for errors and receives only */
	int due;	 /* 1: an event to report */
	uint32_t events; /* reported, not acknowledged */
};

struct verbs_srq {
	struct ibv_srq ibv;
	struct srdma_qp *holder; /* of the receives at the worker */
	/* The receives, as long as only UD QPs take them; else NULL. */
	struct verbs_recvs *recvs;
	struct ibv_srq_attr attr;
	unsigned users; /* QPs */
	struct verbs_event limit;
	uint32_t reported; /* events that were read */
};

struct verbs_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ex;
	};
	const struct verbs_transport *transport;
	struct verbs_batch *batch; /* NULL: it has no functions ibv_wr_*() */
	struct verbs_qp *next;	   /* in the bucket */
	struct srdma_qp *qp;
	struct srdma_connection *connection; /* NULL: none */
	int connecting;			     /* 1: no keys yet */
	int keyless; /* 1: it will have none, and its end is to be tried again */
	int sq_sig_all;
	uint32_t sq, rq;
	uint32_t recv_room; /* places in the CQ of its receives */
	struct verbs_event last_wqe;
	uint32_t reported;   /* events that were read */
	uint32_t recvs;	     /* posted, whose completions are not in the CQ */
	struct verbs_ud *ud; /* NULL: it is no UD QP */
	struct ud_group *groups; /* of a UD QP */
	int no_loop; /* 1: its messages for a group do not come back to it */
	/* Work request ids of flushed receives that are held, rq places, and 1
	 * if they are held because the peer is gone (loss.c). */
	uint64_t *flushed;
	int flushed_of_program; /* verbs_domain_alloc() */
	uint32_t held;
	int peer_gone;
	struct ibv_qp_attr attr; /* as set by the program */
	struct ibv_qp_cap cap;
};

static inline struct verbs_root *verbs_root_of(const struct ibv_context *ctx)
{
	return (struct verbs_root *)((char *)(uintptr_t)ctx -
				     offsetof(struct verbs_root, ctx.context));
}

/* --- completions (cq.c) ------------------------------------------------------ */

/* Makes room for the completions of one more queue of this depth. 0 or ENOMEM. */
int verbs_cq_join(struct verbs_cq *cq, uint32_t depth);
/* Drops the completions of a QP that were not polled. */
void verbs_cq_drop(struct verbs_cq *cq, uint32_t qp_num);
/* The queue ends, with the completions of its QP. */
void verbs_cq_leave(struct verbs_cq *cq, uint32_t depth, uint32_t qp_num);
/* Drops the completion if the CQ is full, which is reported as an event. */
void verbs_cq_put(struct verbs_cq *cq, const struct ibv_wc *wc);
/* As ibv_poll_cq(). stamp: of the last completion; NULL: it is not needed. */
int verbs_cq_poll(struct verbs_cq *cq, int n, struct ibv_wc *wc,
		  struct verbs_stamp *stamp);
/* Takes what has arrived on a leg. */
void verbs_collect_leg(struct verbs_root *root, struct srdma_pd *pd);
/* Takes what has arrived on all legs. */
void verbs_collect(struct verbs_root *root);

/* --- cq_ex.c -------------------------------------------------------------------- */

struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context,
				     struct ibv_cq_init_attr_ex *attr);
/* NULL is allowed. */
void verbs_poll_free(struct verbs_poll *p);

/* --- domain.c ------------------------------------------------------------------- */

struct ibv_td *verbs_alloc_td(struct ibv_context *context,
			      struct ibv_td_init_attr *attr);
int verbs_dealloc_td(struct ibv_td *td);
struct ibv_pd *
verbs_alloc_parent_domain(struct ibv_context *context,
			  struct ibv_parent_domain_init_attr *attr);
/* Memory of an object of a PD, by the allocator of a parent domain, if it has one. Both
 * call the program: without the lock. of_program: whose memory it is, for the end. NULL: no
 * memory. */
void *verbs_domain_alloc(struct verbs_pd *pd, size_t len, int *of_program);
void verbs_domain_free(struct verbs_pd *pd, void *memory, int of_program);
/* Ends a parent domain: 0, or EBUSY. */
int verbs_dealloc_parent_domain(struct verbs_pd *domain);

/* --- qp_ex.c -------------------------------------------------------------------- */

struct ibv_qp *verbs_create_qp_ex(struct ibv_context *context,
				  struct ibv_qp_init_attr_ex *attr);

/* --- batch.c -------------------------------------------------------------------- */

/* Gives the QP the functions ibv_wr_*(). 0 or ENOMEM. */
int verbs_batch_create(struct verbs_qp *qp);
/* NULL is allowed. */
void verbs_batch_free(struct verbs_batch *b);

/* --- device_ex.c ---------------------------------------------------------------- */

int verbs_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size);
int verbs_query_rt_values(struct ibv_context *context,
			  struct ibv_values_ex *values);
/* Nanoseconds of a clock. */
uint64_t verbs_clock_ns(clockid_t clock);

/* --- channel.c ---------------------------------------------------------------- */

/* A completion of the CQ was taken. Wakes its channel, if it is armed. */
void verbs_channel_note(struct verbs_cq *cq, const struct ibv_wc *wc);
/* The CQ ends. */
void verbs_channel_forget(struct verbs_cq *cq);
/* The channel of the CQ, if any, is woken by this descriptor. 0 or errno. */
int verbs_channel_watch(const struct verbs_cq *cq, int fd);
void verbs_channel_unwatch(const struct verbs_cq *cq, int fd);

/* --- event.c ------------------------------------------------------------------- */

/* The event is to be read, unless it waits for that already. */
void verbs_event_put(struct verbs_root *root, struct verbs_event *e,
		     enum ibv_event_type type);
/* The object of the event ends: the event is not read any more. */
void verbs_event_drop(struct verbs_root *root, struct verbs_event *e);

/* 1: *event is the oldest one that waits; 0: none does. Requires the lock. */
int verbs_event_take(struct verbs_root *root, struct ibv_async_event *event);
void verbs_event_ack(const struct ibv_async_event *event);

/* An object's events that the program has acknowledged. */
struct verbs_acks {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	uint32_t *completed;
};
void verbs_acks_add(const struct verbs_acks *a, uint32_t n);
/* Waits until as many are acknowledged as were reported. */
void verbs_acks_wait(const struct verbs_acks *a, uint32_t reported);

/* --- async.c ------------------------------------------------------------------- */

/* Opens the descriptors of events. 0 or errno; closed by verbs_async_close(). */
int verbs_async_open(struct verbs_root *root);
void verbs_async_close(struct verbs_root *root);

/* --- worker.c ------------------------------------------------------------------ */

/* Opens `ends_fd`. 0 or errno; closed by verbs_worker_close(). */
int verbs_worker_open(struct verbs_root *root);
void verbs_worker_close(struct verbs_root *root);
/* `ends_fd` is readable when the worker has closed the connection, unless another one is
 * made then. 0 or errno. */
int verbs_worker_watch(const struct verbs_root *root,
		       const struct srdma_lasting_control *c);
/* To be called before the connection is closed: a child of fork() may have it too. */
void verbs_worker_unwatch(const struct verbs_root *root,
			  const struct srdma_lasting_control *c);
/* The worker, or a leg of the context, has ended. The other legs that end with it have
 * ended when the call returns. Only the first call has an effect. */
void verbs_worker_gone(struct verbs_root *root);
/* Looks whether it has. Returns 1 from then on. */
int verbs_worker_look(struct verbs_root *root);
/* 1: `ends_fd` is readable when the worker, or a leg, has ended. */
int verbs_worker_tells_end(const struct verbs_root *root);
/* Waits for a descriptor that the program may wait for too, as a read of it would: 0, or
 * -1 with errno EAGAIN (the program has set O_NONBLOCK), EINTR or EBADF. */
int verbs_wait(int fd);

/* --- loop.c -------------------------------------------------------------------- */

/* Starts the thread of the context, if it has none. 0 or errno. */
int verbs_loop_start(struct verbs_root *root);
/* Ends it, when there are no UD QPs. Requires that the lock is free. */
void verbs_loop_stop(struct verbs_root *root);
/* The thread looks when this descriptor is readable, besides once a second. 0 or errno. */
int verbs_loop_watch(const struct verbs_root *root, int fd);
/* To be called before the descriptor is closed: if a child of fork() has it too, the
 * epoll keeps a closed one, and reports its end at each wait. */
void verbs_loop_unwatch(const struct verbs_root *root, int fd);
/* srdma_channel_drop() of a channel that the thread watches. NULL is allowed. */
void verbs_loop_end(const struct verbs_root *root, struct srdma_channel *c);

/* --- srq.c --------------------------------------------------------------------- */

/* A receive completed. */
void verbs_srq_done(struct verbs_srq *srq);
/* The QP of the worker takes receives of the SRQ. From now on they are at the worker. 0,
 * or errno: EOPNOTSUPP: UD QPs take them. */
int verbs_srq_join(struct verbs_srq *srq, struct srdma_qp *qp);
int verbs_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad_wr);
struct ibv_srq *verbs_create_srq_ex(struct ibv_context *context,
				    struct ibv_srq_init_attr_ex *attr);

/* --- loss.c
 * ------------------------------------------------------------------ */

/* Puts a completion of the QP into its CQ, or holds it. */
void verbs_loss_sort(struct verbs_qp *qp, struct ibv_wc *wc);
/* The QP event of the worker. */
void verbs_loss_event(struct verbs_qp *qp, uint32_t reason);
/* The QP is in error, and the program knows: what is held goes into the CQ. */
void verbs_loss_known(struct verbs_qp *qp);

/* --- import.c -------------------------------------------------------------------- */

/* The context may be imported from now on. */
void verbs_import_offer(struct verbs_root *root);
/* The program closes the context. 0: for the last time; 1 or more: it is imported;
 * -EBUSY: it has PDs. */
int verbs_import_close(struct verbs_root *root);

/* --- pd.c ----------------------------------------------------------------------- */

/* The regions of a PD or parent domain. */
struct verbs_mr **verbs_mrs_of(struct verbs_pd *pd);

/* The memory of an SGE in this process, all of it in the region of its key.
 * access: rights that the region needs. NULL: there is no such region. */
void *verbs_mr_at(struct ibv_pd *pd, const struct ibv_sge *sge,
		  unsigned access);

/* --- ud.c ----------------------------------------------------------------------- */

/* Makes the QP of the worker for a UD QP. 0 or -errno. */
int verbs_ud_create(struct verbs_qp *qp);
/* Ends the sessions of a UD QP. 0 or -errno: some live on. */
int verbs_ud_stop(struct verbs_ud *ud);
/* The QP of the worker has ended. */
void verbs_ud_destroy(struct verbs_qp *qp);
/* RESET: ends the sessions and drops what the program posted and what has arrived.
 * The QP of the worker and the service of the agent stay; peers that call are
 * refused until verbs_ud_ready(). 0 or -errno: some sessions live on. */
int verbs_ud_reset(struct verbs_qp *qp);
/* From now on peers may call the UD QP. 0 or errno. */
int verbs_ud_ready(struct verbs_qp *qp);
/* The UD QP goes to error. */
void verbs_ud_error(struct verbs_qp *qp);
/* Posts one request. 0 or errno. */
int verbs_ud_post_send(struct verbs_ud *ud, const struct ibv_send_wr *wr);
int verbs_ud_post_recv(struct verbs_ud *ud, const struct ibv_recv_wr *wr);
/* 0, or the errno for which one of the requests would be refused. */
int verbs_ud_check_all(const struct verbs_ud *ud, const struct ibv_send_wr *wr);
/* Requests that the send queue can take. */
uint32_t verbs_ud_send_room(const struct verbs_ud *ud);
/* A completion of a QP that is a UD QP's. */
void verbs_ud_record(struct verbs_root *root, const struct srdma_wc *wc);
/* Reads what the agent says. Returns 1 if it may say more soon. */
int verbs_ud_look(struct verbs_root *root);
/* Moves messages after completions were taken. */
void verbs_ud_progress(struct verbs_root *root);
/* Requests under way that complete in this CQ. */
uint32_t verbs_ud_due(const struct verbs_cq *cq);

/* --- attr.c --------------------------------------------------------------------- */

/* Checks attributes of the QP, and tells the worker those of the mask that it
 * enforces. 0 or errno. */
int verbs_attr_tell(struct verbs_qp *qp, const struct ibv_qp_attr *attr,
		    int mask);
/* Copies the attributes of the mask. */
void verbs_attr_keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *from,
		     int mask);

/* --- connect.c ------------------------------------------------------------------ */

/* The QP goes to RTR: requests keys for it. 0 or errno. */
int verbs_connect(struct verbs_qp *qp);
/* Reads what the agent says about QPs. */
void verbs_connect_look(struct verbs_root *root);
struct verbs_qp *verbs_qp_find(const struct verbs_root *root, uint32_t qp_num);

/* --- post.c ------------------------------------------------------------------------ */

int verbs_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		    struct ibv_send_wr **bad_wr);
/* Posts one receive: 0 or errno. */
int verbs_post_one_recv(struct srdma_qp *qp, const struct ibv_recv_wr *wr,
			uint32_t max_sge);
/* Posts n requests, or none: 0 or errno. */
int verbs_post_all(struct verbs_qp *qp, struct ibv_send_wr *wr, uint32_t n);
int verbs_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		    struct ibv_recv_wr **bad_wr);
int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only);

#endif
