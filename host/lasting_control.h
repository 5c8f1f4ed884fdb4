/*
 * A control connection that outlives the link to another computer
 * (docs/control-link.md 2.5): after its end another one comes from the proxy,
 * and attaches to the leg. All work is done in the calls below. Functions that
 * fail set the error text (error.h).
 */
#ifndef SRDMA_HOST_LASTING_CONTROL_H
#define SRDMA_HOST_LASTING_CONTROL_H

#include "host/channel.h"
#include "host/control.h"

struct srdma_lasting_control;

struct srdma_lasting_control_params {
	/* Used until the end. NULL: the worker is on this computer, and the
	 * connection is not made again. */
	const struct srdma_agent_place *agent;
	char path[SRDMA_SOCKET_PATH]; /* of the worker process */
	int has_leg;
	uint8_t token[SRDMA_TOKEN_LEN]; /* of the leg */
};

/* control: is owned from now on, also after an error. -ENOMEM; another -errno
 * for a lack of descriptors. */
int srdma_lasting_control_create(struct srdma_lasting_control **out,
				 struct srdma_control *control,
				 const struct srdma_lasting_control_params *p);
/* The worker has opened the leg with this token. */
void srdma_lasting_control_set_leg(struct srdma_lasting_control *l,
				   const uint8_t token[SRDMA_TOKEN_LEN]);
/* l may be NULL. */
void srdma_lasting_control_close(struct srdma_lasting_control *l);

/* 1 if another connection is made after the end of one (params.agent). */
int srdma_lasting_control_lasts(const struct srdma_lasting_control *l);

/* See srdma_control_end(). Nothing if it lasts: another connection would be
 * made. */
void srdma_lasting_control_end(struct srdma_lasting_control *l);
/* See srdma_control_pid(). */
pid_t srdma_lasting_control_pid(const struct srdma_lasting_control *l);

/* Readable when srdma_lasting_control_alive() should be called. Stays the
 * same. */
int srdma_lasting_control_fd(const struct srdma_lasting_control *l);

/* 0 once the connection ended and no other is made any more, else 1. Works on
 * another connection, without waiting. */
int srdma_lasting_control_alive(struct srdma_lasting_control *l);

/* A text that says why no other connection is made; NULL: one may be. */
const char *srdma_lasting_control_over(const struct srdma_lasting_control *l);

/*
 * As srdma_control_call_until(); without a deadline, as srdma_control_call().
 * While there is no connection, it waits for another one. A request whose
 * connection ends is sent again if that changes nothing; otherwise -ETIMEDOUT.
 * -ETIMEDOUT also: there is no connection at the deadline. -ENOTCONN: no other
 * one is made any more, after an attempt that failed SRDMA_CTL_KEEP_LEGS or more after
 * the end was noticed (without a leg there is no limit), after the end of the
 * leg, or because the agent refuses this program.
 */
int srdma_lasting_control_call_until(struct srdma_lasting_control *l,
				     struct srdma_ctl_msg *m,
				     const struct srdma_socket_fds *out,
				     struct srdma_socket_fds *in,
				     int64_t deadline);
int srdma_lasting_control_call(struct srdma_lasting_control *l,
			       struct srdma_ctl_msg *m,
			       const struct srdma_socket_fds *out,
			       struct srdma_socket_fds *in);

#endif
