/*
 * The objects behind the handles of librdmacm (docs/run.md 5). Each begins with
 * the structure that programs see. The fields of an id belong to the thread that
 * holds it (hold.c), but for those that name the lock. One thread (loop.c) reads
 * what the agent says, and makes events of it.
 */
#ifndef RDMACM_OBJECTS_H
#define RDMACM_OBJECTS_H

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "host/talk.h"
#include "rdmacm/wire.h"
#include "verbs/private.h"

_Static_assert((int)CM_MESSAGE_MAX == (int)SRDMA_DATA_MAX, "a talk has room");
_Static_assert((int)CM_DEPTH_MAX == (int)SRDMA_PRIVATE_RD_ATOMIC, "depth");

enum {
	CM_ANSWER_MS = 60000,
	CM_KEYS_MS = 60000,
	CM_TIMEOUT = 18, /* of a QP, if the program sets none */
	CM_TIMEOUT_MAX = 31,
	CM_BACKLOG = 1024, /* most requests of a listener that wait */
};

/* The progress of an id. */
enum cm_state {
	CM_IDLE,
	CM_BOUND,
	CM_RESOLVED, /* address */
	CM_ROUTED,
	CM_LISTENING,
	CM_CALLING,   /* the peer has not answered */
	CM_RESPONDED, /* the peer has; the program connects its QP */
	CM_KEYING,    /* the QP has no keys yet */
	CM_ARRIVING,  /* the peer called; the program does not know it yet */
	CM_REQUESTED, /* the program has not answered */
	CM_ACCEPTED,  /* the peer has not confirmed */
	CM_CONNECTED,
	CM_DEPARTED, /* the program has disconnected, the peer has not */
	CM_OVER,     /* no connection any more; or a UD QP was looked up */
};

struct cm_event;

/* A multicast group that an id has joined, or failed to join. */
struct cm_group {
	struct cm_group *next; /* of the id */
	uint8_t gid[SRDMA_GID_LEN];
	void *context; /* of the program */
	int send_only; /* 1: its QP is not attached */
	int failed;    /* 1: the event was MULTICAST_ERROR */
};

struct cm_channel {
	/* fd: an eventfd that counts the events of the queue */
	struct rdma_event_channel rdma;
	unsigned generation;
	struct cm_event *first, *last; /* with the lock */
};

struct cm_id {
	struct rdma_cm_id rdma;
	struct cm_id *next; /* of all ids; with the lock */
	uint64_t serial;    /* name of the id in the loop's epoll */
	unsigned generation;
	/* With the lock: 1 while a thread holds the id; 1: the loop was told of its
	 * descriptor, and is told again after cm_loop_rearm(); 1: the loop has not
	 * looked at its times. */
	int held, disarmed, late;
	enum cm_state state;
	int sync; /* 1: the channel is of the library, and calls wait */
	unsigned
		unacknowledged; /* events that the program has; with the lock */
	struct srdma_lasting_channel *service;
	struct srdma_channel *talk; /* the holder changes it, with the lock */
	/* Of this request, until the program has it; with the lock. */
	struct cm_id *listener;
	unsigned backlog; /* LISTENING: most requests that wait */
	int any_port;	  /* 1: the own port was not chosen by the program */
	const struct verbs_peer *peer;
	uint8_t gid[SRDMA_GID_LEN]; /* of the peer */
	struct cm_message own, theirs;
	uint32_t qp_num;
	uint8_t timeout;  /* of the QP (ibv_modify_qp(3)) */
	int srq_ends;	  /* 1: a thread is in rdma_destroy_srq() */
	int64_t deadline; /* CALLING, KEYING, ACCEPTED; INT64_MAX: none */
	int confirmed;	  /* ACCEPTED: CM_CONFIRM has arrived */
	int parted; /* 1: DISCONNECTED was reported; CONNECTED: the peer departed */
	int left; /* 1: the program has disconnected */
	struct cm_group *groups;
	/* Of a passive rdma_create_ep(), for the ids of its requests. */
	struct ibv_qp_init_attr *init;
};

struct cm_event {
	struct rdma_cm_event rdma;
	struct cm_event *next;
	struct cm_id *holder; /* whose end waits for rdma_ack_cm_event() */
	uint8_t private_data[CM_PRIVATE_MAX];
};

static inline struct cm_id *cm_id_of(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

/* -1, and errno. */
int cm_fail(int err);

/* --- library.c ---------------------------------------------------------------- */

void cm_lock(void);
void cm_unlock(void);
/* Waits for cm_changed() of another thread, with the lock. */
void cm_wait(void);
void cm_changed(void);
/* The context of srdma0, opened by the first call, and its PD, made by the first
 * cm_pd(). NULL, and errno. They may wait for the worker: without the lock. */
struct ibv_context *cm_device(void);
struct ibv_pd *cm_pd(void);
/* The end of this program, for peers of this entry of the policy, or all of them if it is
 * NULL. patterns: room for VERBS_PATTERNS. */
void cm_self(struct srdma_talk_self *self, const struct verbs_peer *peer,
	     const char **patterns);
/* GID of the device. */
void cm_own_gid(uint8_t gid[SRDMA_GID_LEN]);
const struct verbs_peer *cm_policy_peer(const uint8_t gid[SRDMA_GID_LEN]);
/* In a child of fork(): what the parent had is not used any more. */
void cm_library_forget(void);

/* --- type.c --------------------------------------------------------------------- */

struct cm_type {
	enum cm_kind request, reply;
	/* Most bytes of private data of the program. */
	uint8_t request_private, reply_private, reject_private;
	/* The event of a call that is rejected, and its status. */
	enum rdma_cm_event_type rejected;
	uint8_t no_service, by_consumer;
};

const struct cm_type *cm_type_of(const struct cm_id *id);
int cm_is_ud(const struct cm_id *id);
/* 0 or EOPNOTSUPP: there are no ids of this type in the port space. */
int cm_type_check(enum ibv_qp_type type, enum rdma_port_space ps);
/* The type of rdma_create_id(). */
enum ibv_qp_type cm_type_usual(enum rdma_port_space ps);

/* --- hold.c --------------------------------------------------------------------- */

/* The number of this process: a child of fork() has another one than its parent. */
unsigned cm_generation(void);
/* 0; or -1 and EINVAL: an object with this number is that of a parent. */
int cm_check_own(unsigned generation);
/* Calls in_child() of this file after each fork(). 0 or -errno. With the lock. */
int cm_watch_forks(void);
/* Waits until no other thread holds the id, and holds it. Without the lock. 0; or -1
 * and EINVAL: as cm_check_own(). */
int cm_hold(struct cm_id *id);
/* The id has no holder any more. With the lock. */
void cm_release(struct cm_id *id);
/* The same without the lock, at the end of a call. err: 0, or errno of the call.
 * Returns 0, or -1 and errno. */
int cm_done(struct cm_id *id, int err);

/* --- address.c ------------------------------------------------------------------ */

/* 0 or -EAFNOSUPPORT. */
int cm_address_gid(uint8_t gid[SRDMA_GID_LEN], const struct sockaddr *a);
void cm_address_of(struct sockaddr_storage *a, const uint8_t gid[SRDMA_GID_LEN],
		   uint16_t port);
socklen_t cm_address_len(const struct sockaddr *a);
/* 1: 0.0.0.0 or ::. */
int cm_address_any(const struct sockaddr *a);
/* 1: 127.0.0.1 or ::1. */
int cm_address_localhost(const struct sockaddr *a);

/* --- channel.c --------------------------------------------------------------------- */

/* As cm_check_own(). */
int cm_check_channel(const struct rdma_event_channel *channel);
/* Puts an event into the queue of the id's channel. message: NULL, or of the
 * peer. Without the lock. 0 or -ENOMEM. */
int cm_report(struct cm_id *id, enum rdma_cm_event_type type, int status,
	      const struct cm_message *message);
/* MULTICAST_JOIN, or MULTICAST_ERROR if the status is not 0. Without the lock. 0 or
 * -ENOMEM. */
int cm_report_group(struct cm_id *id, const struct cm_group *g, int status);
/* CONNECT_REQUEST of a new id, in place of one whose caller has left. Without the
 * lock. */
int cm_report_request(struct cm_id *id);
/* Drops the events of an id that the program has not got. With the lock. */
void cm_drop_events(const struct cm_id *id);
/* Acknowledges the event that a synchronous id keeps, if there is one. Without
 * the lock. */
void cm_release_event(struct rdma_cm_id *id);
/* Waits until the program has acknowledged the events. With the lock. */
void cm_await_acknowledged(struct cm_id *id);

/* --- id.c --------------------------------------------------------------------------- */

/* A new id, in the list. NULL: no memory. held: 1: the caller holds it. */
struct cm_id *cm_id_create(struct cm_channel *channel, void *context,
			   enum rdma_port_space ps, int held);
/* Ends the talk of an id that the program has not got, and frees it. With the lock. */
void cm_id_forget(struct cm_id *id);
/* The requests of a listener whose callers wait, and which the program has not
 * got. Without the lock. */
unsigned cm_id_waiting(const struct cm_id *listener);
/* The id has this talk from now on, which the loop watches. 0 or -errno. */
int cm_id_set_talk(struct cm_id *id, struct srdma_channel *talk);
/* The id has no talk any more. */
void cm_id_end_talk(struct cm_id *id);
/* Gives it the device and its own address. 0 or -errno. */
int cm_id_attach(struct cm_id *id);
/* For a call that a synchronous id completes: waits for its event, without the
 * lock. 0, or -1 and errno. */
int cm_complete(struct cm_id *id);

/* --- qp.c ---------------------------------------------------------------------------- */

/* The address of a peer, or of a multicast group. */
void cm_qp_address(struct ibv_ah_attr *a, const uint8_t gid[SRDMA_GID_LEN]);
/* RTR and RTS. 0 or errno. */
int cm_qp_connect(struct cm_id *id);
void cm_qp_error(struct cm_id *id);
/* After a call that failed: ERR, but a UD QP may have other peers. */
void cm_qp_fail(struct cm_id *id);

/* --- multicast.c ---------------------------------------------------------------------- */

/* The id ends. */
void cm_group_leave_all(struct cm_id *id);

/* --- loop.c --------------------------------------------------------------------------- */

/* Starts the thread, once. 0 or -errno. */
int cm_loop_start(void);
/* In a child of fork(): there is no thread. */
void cm_loop_forget(void);
/* The loop looks at the talk or service of the id from now on. 0 or -errno. */
int cm_loop_watch(struct cm_id *id, int fd);
void cm_loop_unwatch(int fd);
/* It looks at it again: the loop is told once of each descriptor. */
void cm_loop_rearm(const struct cm_id *id);
/* The loop looks at all ids. */
void cm_loop_wake(void);
/* ms on the loop's clock. */
int64_t cm_loop_now(void);
/* All ids, with the lock. */
extern struct cm_id *cm_ids;

/* --- connect.c ------------------------------------------------------------------------- */

/* Says a message to the peer of the id's talk. 0 or -errno. */
int cm_say(const struct cm_id *id, const struct cm_message *m);
/* Refuses the caller of an id that was not answered. */
void cm_refuse(struct cm_id *id);

/* --- progress.c ------------------------------------------------------------------------ */

/* Reads what the agent has said about an id that the loop holds. Returns 0 if the id
 * is no more. */
int cm_progress(struct cm_id *id);
/* 1: the id has times or keys to look at. */
int cm_ticks(const struct cm_id *id);
/* Looks at times and keys. Returns ms until the next look, INT64_MAX: none. */
int64_t cm_tick(struct cm_id *id);

#endif
