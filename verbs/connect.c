/*
 * Keys for QPs. When a program moves a QP to RTR, the agent is asked for a
 * connection with the QP that the program names by GID and QPN
 * (docs/agent.md 11). RTR does not wait: one thread may move both ends.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "host/connecting.h"
#include "verbs/objects.h"
#include "verbs/verbs.h"
#include "wire/reason.h"

enum {
	LOOK_MS = 1,	      /* while keys are awaited */
	LOOK_LATER_MS = 1000, /* at connections that are made */
};

static int watch(const struct verbs_qp *qp)
{
	const int fd = srdma_connection_fd(qp->connection);
	int err = verbs_channel_watch((struct verbs_cq *)qp->ibv.send_cq, fd);

	return err ? err
		   : verbs_channel_watch((struct verbs_cq *)qp->ibv.recv_cq,
					 fd);
}

/* The descriptor of a connection that has ended stays readable, and says nothing more. */
static void unwatch(const struct verbs_qp *qp)
{
	const int fd = srdma_connection_fd(qp->connection);

	verbs_channel_unwatch((struct verbs_cq *)qp->ibv.send_cq, fd);
	verbs_channel_unwatch((struct verbs_cq *)qp->ibv.recv_cq, fd);
}

int verbs_connect(struct verbs_qp *qp)
{
	struct verbs_root *root = verbs_root_of(qp->ibv.context);
	const uint8_t *gid = qp->attr.ah_attr.grh.dgid.raw;
	const struct verbs_peer *peer = verbs_policy_peer(root->policy, gid);
	const struct srdma_settings_peer to = {
		.role = SRDMA_SETTINGS_RENDEZVOUS,
		.gid = gid,
		.qp_num = qp->attr.dest_qp_num,
	};
	struct srdma_connection_attr attr = {
		.identity = root->policy->identity,
		.qps = &qp->qp,
		.n_qps = 1,
	};
	int r, err;

	if (!peer)
		return EACCES;
	attr.peers = peer->allowed;
	attr.n_peers = peer->n;
	r = srdma_connection_begin(&qp->connection,
				   ((struct verbs_pd *)qp->ibv.pd)->pd, &to,
				   &attr);
	if (r)
		return verbs_error(r);
	err = watch(qp);
	if (err) {
		srdma_disconnect(qp->connection);
		qp->connection = NULL;
		return err;
	}
	qp->connecting = 1;
	root->look_at = 0; /* the next look may be planned for much later */
	return 0;
}

/* --- what the agent says ---------------------------------------------------------------- */

/* A QP that gets no keys has a peer that is not there. If the worker does not answer,
 * the next look tries again, because requests may have no time limit. */
static void fail(struct verbs_qp *qp)
{
	unwatch(qp);
	qp->connecting = 0;
	qp->keyless = srdma_qp_flush(qp->qp, SRDMA_REASON_WIRE_LOST) != 0;
	if (!qp->keyless)
		verbs_loss_event(qp, SRDMA_REASON_WIRE_LOST);
}

static void look(struct verbs_qp *qp)
{
	int r;

	if (qp->keyless) {
		fail(qp);
		return;
	}
	if (!qp->connecting) {
		if (srdma_check_connection(qp->connection))
			unwatch(qp);
		return;
	}
	r = srdma_connection_advance(qp->connection);
	if (r > 0)
		qp->connecting = 0;
	else if (r < 0)
		fail(qp);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void verbs_connect_look(struct verbs_root *root)
{
	const int64_t now = now_ms();
	int waits = 0;

	if (now < root->look_at)
		return;
	for (unsigned i = 0; i < VERBS_QP_BUCKETS; i++)
		for (struct verbs_qp *qp = root->qps[i]; qp; qp = qp->next) {
			if (qp->connection)
				look(qp);
			waits |= qp->connecting;
		}
	waits |= verbs_ud_look(root);
	root->look_at = now + (waits ? LOOK_MS : LOOK_LATER_MS);
}
