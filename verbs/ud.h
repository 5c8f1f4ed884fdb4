/*
 * UD QPs (docs/run.md 4.1). The worker has no UD: each pair of UD QPs that talk
 * has a session, a connected QP at either end, which is made when the first
 * message is sent. A message is copied into memory of the session, so that a UD
 * QP waits for none of its peers; and a message that arrives lies in memory of
 * the library until it was checked and a receive of the program takes it.
 * All functions require the lock of the context.
 */
#ifndef VERBS_UD_H
#define VERBS_UD_H

#include "verbs/objects.h"
#include "verbs/recvs.h"
#include "verbs/ud_members.h"
#include "verbs/ud_ring.h"
#include "verbs/ud_wire.h"

enum {
	UD_MTU = 4096,
	UD_SESSIONS = 64,     /* of a UD QP */
	UD_SESSIONS_GID = 32, /* of them, that one GID has caused */
	UD_IN_USE_MS = 10000, /* after a message */
	UD_SENDS = 128,	      /* work requests of the QP of a session */
	UD_PLACES = 128,      /* least messages under way of a session */
	UD_PLACES_MOST = 1024,
	UD_RECVS = 128, /* messages of a UD QP that have arrived */
	UD_RECVS_EARLY =
		64, /* of them, of sessions whose keys are not confirmed */
	UD_SLOT = UD_HEAD_MAX + UD_MTU,
	UD_GROUPS = 16,	    /* of a UD QP */
	UD_GROUPS_LEG = 64, /* of all UD QPs of a PD (docs/agent.md 14) */
};

/* Why a message was dropped. */
enum ud_drop {
	UD_DROP_NO_SESSION, /* the peer does not permit one, or is not there */
	UD_DROP_FULL,	    /* the peer takes no messages */
	UD_DROP_LOST,	    /* its session ended before it arrived */
	UD_DROP_BAD,	    /* of a peer: malformed, or too long */
	UD_DROP_QKEY,	    /* of a peer: another Q_Key */
	UD_DROP_SHORT,	    /* of a peer: the receive is too short for it */
	UD_DROP_EARLY,	  /* of peers: too many before the keys are confirmed */
	UD_DROP_NO_GROUP, /* the members of the group are not known */
	UD_DROP_MEMBERS,  /* the group has members to which none goes */
	UD_DROP_GROUP,	  /* of a peer: for a group without this UD QP */
	UD_DROPS,
};

enum ud_state {
	UD_CALLING,  /* the peer is to answer */
	UD_ARRIVING, /* the agent is to give the peer's talk to this process */
	UD_KEYING,   /* the agent is to confirm the keys */
	UD_WAITING,  /* the peer is to say that its agent has */
	UD_UP,
	UD_FAILED, /* no QP; no attempt before `deadline` */
};

/* A message that waits for its turn, or for its end, in the memory of a session. */
struct ud_message {
	uint32_t request; /* number of the work request in the UD QP */
	uint32_t len;	  /* with the head */
	uint32_t imm;
	int has_imm;
};

struct ud_session {
	struct ud_session *next;
	struct verbs_ud *ud;
	enum ud_state state;
	int incoming; /* 1: the peer began it */
	int copies;   /* 1: this end began it for copies for groups */
	uint8_t gid[SRDMA_GID_LEN];
	uint32_t peer;	 /* QPN of its UD QP */
	uint32_t theirs; /* QPN of the peer's QP of the session */
	int heard;	 /* 1: the peer has said that it is ready */
	struct srdma_qp *qp;
	uint32_t qp_num;
	struct srdma_channel *talk;
	struct srdma_connection *connection;
	int64_t deadline;    /* ms, of the state; UD_UP: next look */
	int64_t used;	     /* ms, of the last message */
	int64_t moved;	     /* ms: `done` changed, or nothing was under way */
	struct srdma_mr *mr; /* of ud->places slots; NULL: nothing was sent */
	struct ud_message *messages; /* ud->places */
	uint32_t put, posted, done;  /* messages, modulo 2^32 */
	int lost;		     /* 1: its QP has ended */
};

/* 1: the peer is the right one, so that its messages may be delivered. */
static inline int ud_has_keys(const struct ud_session *s)
{
	return s->state == UD_WAITING || s->state == UD_UP;
}

/* A work request of the program whose completion is due in its turn. */
struct ud_send {
	uint64_t wr_id;
	struct ud_session *session; /* NULL: it is complete, or for a group */
	uint32_t number;	    /* of the message in the session */
	int group;		    /* 1: its messages have `request` */
	uint32_t request;
	int64_t posted; /* ms */
	uint32_t len;
	enum ibv_wc_status status;
	int signaled;
};

struct ud_arrival {
	struct ud_session *session; /* NULL: it had keys, and has ended */
	uint32_t slot;
	const uint8_t *payload;
	uint32_t len;
	uint32_t imm;
	int has_imm;
	uint8_t from[SRDMA_GID_LEN], to[SRDMA_GID_LEN]; /* to: or a group */
	uint32_t peer;
};

/* A multicast group that a UD QP uses. */
struct ud_group {
	struct ud_group *next; /* of the QP */
	uint8_t gid[SRDMA_GID_LEN];
	int attached;		       /* 1: the QP receives from it */
	int lasting;		       /* 1: attaching has succeeded */
	struct srdma_channel *channel; /* NULL: none */
	int joined;		       /* 1: the agent has told all members */
	int err;		       /* errno of the last attempt, or 0 */
	int told; /* err of the last line on stderr, or 0 */
	char why[160];
	int64_t open_at; /* ms: next attempt */
	int64_t used;	 /* ms, of the last message */
	uint32_t round;	 /* number of the channel */
	struct ud_members members;
};

struct verbs_ud {
	struct verbs_ud *next; /* of the context */
	struct verbs_qp *qp;   /* its QP of the worker has the receives */
	struct verbs_root *root;
	struct srdma_lasting_channel *service; /* NULL: no peer may call */
	int64_t serve_at;		       /* ms: next attempt to serve */
	int ready; /* 1: in RTR or RTS, so that peers may call */
	struct ud_session *sessions;
	struct srdma_mr *mr; /* of UD_RECVS slots */
	uint32_t
		places; /* of each session, for messages under way; a power of 2 */
	struct ud_ring sends, arrivals;
	struct ud_send *send;		/* sends.room */
	uint32_t requests;		/* that were posted, modulo 2^32 */
	struct verbs_recvs own, *recvs; /* the own ones, or those of its SRQ */
	struct ud_arrival arrival[UD_RECVS];
	uint32_t late[UD_RECVS], n_late; /* free slots; the leg was full */
	uint64_t drops[UD_DROPS];
};

static inline struct srdma_pd *ud_leg(const struct verbs_ud *ud)
{
	return ((struct verbs_pd *)ud->qp->ibv.pd)->pd;
}

/* Milliseconds of a monotonic clock. */
int64_t ud_now(void);
uint8_t *ud_slot(const struct srdma_mr *mr, uint32_t i);
uint32_t ud_key(const struct srdma_mr *mr);
/* Counts dropped messages. The first ones of a reason are told on stderr; why may
 * be NULL. */
void ud_drop(struct verbs_ud *ud, enum ud_drop reason, uint32_t n,
	     const char *why);

/* --- ud_talk.c -------------------------------------------------------------------- */

/* Calls the UD QP of the session's peer. policy: of its GID. 0 or -errno. */
int ud_talk_call(struct ud_session *s, const struct verbs_peer *policy);
/* Takes the talk that a peer began. 0 or -errno: without s->talk it is to be refused. */
int ud_talk_answer(struct ud_session *s, uint64_t talk,
		   const struct verbs_peer *policy);
/* Refuses it: an answer whose channel ends. */
void ud_talk_refuse(const struct verbs_ud *ud, uint64_t talk);
/* Says a message to the peer. 0 or -errno. */
int ud_talk_say(const struct ud_session *s, enum ud_hello_kind kind);

/* --- ud_session.c ---------------------------------------------------------------- */

struct ud_name {
	const uint8_t *gid;
	uint32_t qp_num; /* of a UD QP */
	/* The message is a copy for this member of a group. NULL: the program
	 * sends it to the UD QP itself. */
	struct ud_pause *pause;
};

/* The session for messages to a UD QP, which is begun if there is none. NULL, and
 * *why: there is none now. */
struct ud_session *ud_session_to(struct verbs_ud *ud, const struct ud_name *to,
				 const char **why);
struct ud_session *ud_session_find(struct verbs_ud *ud, uint32_t qp_num);
/* A peer calls. */
void ud_session_called(struct verbs_ud *ud, const struct srdma_agent_event *e);
/* Goes on with what does not depend on completions. */
void ud_session_look(struct ud_session *s);
/* Ends all sessions. 0 or -errno: some live on. */
int ud_session_end_all(struct verbs_ud *ud);

/* --- ud_room.c ------------------------------------------------------------------- */

/* *gives_way: the session that is to end before one with this peer begins, or NULL. 0, or
 * -EBUSY: none gives way to a session for copies for groups. */
int ud_room_for(const struct verbs_ud *ud, const struct ud_name *peer,
		int incoming, struct ud_session **gives_way);

/* --- ud_group.c ------------------------------------------------------------------ */

/* The QP sends to a group, and receives from it if `attach`. Waits until the agent
 * has asked for the members, without the lock, if the QP is in RTR or RTS. 0; ENOMEM:
 * also if it uses too many groups; ETIMEDOUT; errno of the agent, also of the last attempt
 * for a group to which the QP was attached before, and stays attached. */
int ud_group_use(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN],
		 int attach);
/* The QP does not send to it any more, unless it is attached. */
void ud_group_leave(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN]);
/* 0, or EINVAL: it is not attached. */
int ud_group_detach(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN]);
int ud_group_attached(const struct verbs_qp *qp,
		      const uint8_t gid[SRDMA_GID_LEN]);
/* The group for a message. NULL, and *why: its members are not known now. */
const struct ud_group *ud_group_to(struct verbs_ud *ud,
				   const uint8_t gid[SRDMA_GID_LEN],
				   const char **why);
/* Reads what the agent says. */
void ud_group_look(struct verbs_ud *ud);
/* The agent forgets the QP until it is in RTR again. The members stay, because a message
 * may be on its way to them when the QP fails. */
void ud_group_pause(struct verbs_qp *qp);
/* The QP sends no more: the agent tells the members again before it does. */
void ud_group_forget(struct verbs_qp *qp);
/* The QP ends. */
void ud_group_drop_all(struct verbs_qp *qp);

/* --- ud_send.c ------------------------------------------------------------------- */

/* A completion of the QP of a session. */
void ud_send_done(struct ud_session *s, const struct srdma_wc *wc);
/* Gives the messages of a session that is UP to its QP. */
void ud_send_flush(struct ud_session *s);
/* The session ends: messages that did not arrive are dropped. */
void ud_send_forget(struct ud_session *s);
/* Completes requests. */
void ud_send_complete(struct verbs_ud *ud);

/* --- ud_recv.c ------------------------------------------------------------------- */

/* The payload of a message of the QP itself. */
struct ud_own {
	const uint8_t *payload;
	uint32_t len;
	uint32_t imm;
	int has_imm;
};

/* Gives slot i to the worker. 0 or -errno. */
int ud_recv_offer(struct verbs_ud *ud, uint32_t i);
/* A message has arrived, or a slot came back. s NULL: its session is no more. */
void ud_recv_arrived(struct verbs_ud *ud, struct ud_session *s,
		     const struct srdma_wc *wc);
/* The session ends: its messages stay if it had keys. */
void ud_recv_forget(struct ud_session *s);
/* A message of the QP itself for a group takes a receive that is posted. */
void ud_recv_own(struct verbs_ud *ud, const struct ud_head *head,
		 const struct ud_own *own);
/* Gives messages to receives of the program, and free slots to the worker. */
void ud_recv_deliver(struct verbs_ud *ud);
/* Drops the receives of the QP, not those of its SRQ, and the messages that wait for
 * receives. */
void ud_recv_clear(struct verbs_ud *ud);
/* Completes all receives of the QP, not those of its SRQ, with an error. */
void ud_recv_flush(struct verbs_ud *ud);

#endif
