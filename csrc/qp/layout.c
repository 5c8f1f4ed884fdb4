/*
 * Layout of a QP: its parts, in one block of memory. The only file that sees
 * all of them; elsewhere struct srdma_qp is incomplete, and each part is
 * complete in its own folder only.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "path/path_impl.h"
#include "base/prefetch.h"
#include "qp/qp_impl.h"
#include "relay/entry_impl.h"
#include "requester/requester_impl.h"
#include "responder/responder_impl.h"
#include "session/session.h"

struct srdma_qp {
	struct srdma_qp_core core;
	struct srdma_relay_entry entry;
	struct srdma_qp_path path;
	struct srdma_requester requester;
	struct srdma_responder responder;
};

/* The parts of a const QP are writable. Each part's type is visible in its own
 * folder only, so no other folder can write it. */
static struct srdma_qp *qp_of(const struct srdma_qp *qp)
{
	return (struct srdma_qp *)(uintptr_t)qp;
}

struct srdma_qp_core *srdma_qp_core(const struct srdma_qp *qp)
{
	return &qp_of(qp)->core;
}

struct srdma_relay_entry *srdma_qp_entry(const struct srdma_qp *qp)
{
	return &qp_of(qp)->entry;
}

struct srdma_qp_path *srdma_qp_path(const struct srdma_qp *qp)
{
	return &qp_of(qp)->path;
}

struct srdma_requester *srdma_qp_requester(const struct srdma_qp *qp)
{
	return &qp_of(qp)->requester;
}

struct srdma_responder *srdma_qp_responder(const struct srdma_qp *qp)
{
	return &qp_of(qp)->responder;
}

struct srdma_qp *srdma_qp_of_timer(struct srdma_timer *timer)
{
	return (struct srdma_qp *)(void *)((char *)timer -
					   offsetof(struct srdma_qp,
						    core.timer));
}

/* The first fields of each part are those that each packet touches. */
void srdma_qp_prefetch(const struct srdma_qp *qp)
{
	srdma_prefetch(&qp->core, offsetof(struct srdma_qp_core, counts) +
					  4 * sizeof(uint64_t));
	srdma_prefetch(&qp->entry, offsetof(struct srdma_relay_entry, mtu));
	srdma_prefetch(&qp->path,
		       offsetof(struct srdma_qp_path, connect.failures));
	srdma_prefetch(&qp->requester, offsetof(struct srdma_requester, proof));
	srdma_prefetch(&qp->responder,
		       offsetof(struct srdma_responder, reorder.pool));
}

int srdma_qp_create(struct srdma_qp **out, const struct srdma_qp_make *make)
{
	const struct srdma_requester_make requester = { make->sq, make->timeout,
							make->captable };
	struct srdma_qp *qp = calloc(1, sizeof(*qp));
	int err;

	if (!qp)
		return -ENOMEM;
	qp->core = (struct srdma_qp_core){ .qp = qp,
					   .env = make->env,
					   .leg = make->leg,
					   .cq = make->cq,
					   .pdkeys = make->pdkeys,
					   .qpn = make->qpn,
					   .failed_id = SRDMA_NONE };
	srdma_path_create(qp);
	err = srdma_requester_create(qp, &requester);
	if (!err)
		err = srdma_responder_create(qp, make->rq);
	if (!err)
		err = srdma_qp_move(qp, SRDMA_QP_INIT);
	if (err) {
		srdma_qp_free(qp);
		return err;
	}
	*out = qp;
	return 0;
}

void srdma_qp_free(struct srdma_qp *qp)
{
	srdma_requester_destroy(qp);
	srdma_responder_destroy(qp);
	srdma_session_destroy(qp->core.session);
	srdma_qp_pd_release(qp);
	srdma_tenant_leave(&qp->core.env->tenants, qp->core.tenant);
	free(qp);
}
