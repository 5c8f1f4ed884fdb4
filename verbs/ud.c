/* UD QPs: their life, and what moves their messages (ud.h). */
#include "verbs/ud.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "host/error.h"
#include "host/talk.h"
#include "verbs/verbs.h"
#include "wire/reason.h"

enum {
	SERVE_AGAIN_MS = 1000,
	LINGER_MS = 1000, /* of the end of a UD QP, for its messages */
	PAUSE_NS = 1000000,
};

int64_t ud_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

uint8_t *ud_slot(const struct srdma_mr *mr, uint32_t i)
{
	struct srdma_mr_info info;

	srdma_query_mr(mr, &info);
	return (uint8_t *)info.addr + (size_t)i * UD_SLOT;
}

uint32_t ud_key(const struct srdma_mr *mr)
{
	struct srdma_mr_info info;

	srdma_query_mr(mr, &info);
	return info.key;
}

static const char *const drop_texts[UD_DROPS] = {
	[UD_DROP_NO_SESSION] = "no session with the peer",
	[UD_DROP_FULL] = "a peer takes no more messages",
	[UD_DROP_LOST] = "a session ended before they arrived",
	[UD_DROP_BAD] = "messages of a peer are malformed",
	[UD_DROP_QKEY] = "messages of a peer have another Q_Key",
	[UD_DROP_SHORT] = "receives are too short",
	[UD_DROP_EARLY] = "peers send too much before their keys are confirmed",
	[UD_DROP_NO_GROUP] = "the members of a group are not known",
	[UD_DROP_MEMBERS] = "a group has more members than copies are sent",
	[UD_DROP_GROUP] = "peers send to a group without this QP",
};

void ud_drop(struct verbs_ud *ud, enum ud_drop reason, uint32_t n,
	     const char *why)
{
	if (!ud->drops[reason] && n)
		fprintf(stderr, "srdma: UD QP 0x%06x drops messages: %s%s%s\n",
			ud->qp->ibv.qp_num, drop_texts[reason], why ? ": " : "",
			why ? why : "");
	ud->drops[reason] += n;
}

/* Says on stderr how many messages were dropped, if there was more than the first. */
static void report_drops(const struct verbs_ud *ud)
{
	for (int i = 0; i < UD_DROPS; i++)
		if (ud->drops[i] > 1)
			fprintf(stderr,
				"srdma: UD QP 0x%06x dropped %llu messages: "
				"%s\n",
				ud->qp->ibv.qp_num,
				(unsigned long long)ud->drops[i],
				drop_texts[i]);
}

/* --- life -------------------------------------------------------------------------- */

/* A program may post all requests of its send queue to one peer at once. */
static uint32_t places_for(uint32_t sq)
{
	uint32_t n = UD_PLACES;

	while (n < sq && n < UD_PLACES_MOST)
		n *= 2;
	return n;
}

static int alloc_rings(struct verbs_ud *ud)
{
	const struct verbs_qp *qp = ud->qp;

	ud->sends.room = qp->sq;
	ud->places = places_for(qp->sq);
	ud->arrivals.room = UD_RECVS;
	ud->send = calloc(qp->sq, sizeof(*ud->send));
	return ud->send ? 0 : -ENOMEM;
}

/* 0 or -errno. */
static int choose_recvs(struct verbs_ud *ud)
{
	const struct verbs_qp *qp = ud->qp;
	const struct verbs_srq *srq = (const struct verbs_srq *)qp->ibv.srq;

	ud->recvs = srq ? srq->recvs : &ud->own;
	if (srq)
		return ud->recvs ? 0 : -EOPNOTSUPP; /* the worker has them */
	return -verbs_recvs_create(&ud->own, qp->rq, qp->cap.max_recv_sge);
}

static int offer_slots(struct verbs_ud *ud, struct srdma_pd *pd)
{
	const struct srdma_mr_attr attr = { .length =
						    (size_t)UD_RECVS * UD_SLOT,
					    .access =
						    SRDMA_ACCESS_LOCAL_WRITE };
	int r = srdma_alloc_mr(&ud->mr, pd, &attr);

	for (uint32_t i = 0; i < UD_RECVS && !r; i++)
		r = ud_recv_offer(ud, i);
	return r;
}

static void release(struct verbs_ud *ud)
{
	free(ud->send);
	verbs_recvs_destroy(&ud->own);
	free(ud);
}

int verbs_ud_create(struct verbs_qp *qp)
{
	struct srdma_pd *pd = ((struct verbs_pd *)qp->ibv.pd)->pd;
	struct verbs_root *root = verbs_root_of(qp->ibv.context);
	struct verbs_ud *ud = calloc(1, sizeof(*ud));
	int r;

	if (!ud)
		return -ENOMEM;
	ud->qp = qp;
	ud->root = root;
	r = alloc_rings(ud);
	if (!r)
		r = choose_recvs(ud);
	if (!r)
		r = srdma_shared_queue_create(&qp->qp, pd, UD_RECVS);
	if (!r)
		r = offer_slots(ud, pd);
	if (!r) {
		qp->ud = ud;
		ud->next = root->uds;
		root->uds = ud;
		return 0;
	}
	srdma_destroy_qp(qp->qp);
	qp->qp = NULL;
	srdma_dereg_mr(ud->mr);
	release(ud);
	return r;
}

/* 1: messages may still arrive at their peers. */
static int is_sending(const struct verbs_ud *ud)
{
	const struct ud_session *s = ud->sessions;

	while (s && (s->state == UD_FAILED || s->lost || s->put == s->done))
		s = s->next;
	return s != NULL;
}

/* A NIC has sent what a program posted before it ends the QP. */
static void linger(struct verbs_ud *ud)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };
	const int64_t end = ud_now() + LINGER_MS;

	while (is_sending(ud) && ud_now() < end) {
		verbs_collect(ud->root);
		nanosleep(&pause, NULL);
	}
}

static int end_sessions(struct verbs_ud *ud)
{
	linger(ud);
	ud->ready = 0;
	ud_group_pause(ud->qp);
	ud_group_forget(ud->qp);
	return ud_session_end_all(ud);
}

static void end_service(struct verbs_ud *ud)
{
	if (!ud->service)
		return;
	verbs_loop_unwatch(ud->root, srdma_lasting_fd(ud->service));
	srdma_lasting_close(ud->service);
	ud->service = NULL;
}

int verbs_ud_stop(struct verbs_ud *ud)
{
	int r = end_sessions(ud);

	end_service(ud);
	return r;
}

void verbs_ud_destroy(struct verbs_qp *qp)
{
	struct verbs_ud *ud = qp->ud, **at = &ud->root->uds;

	while (*at != ud)
		at = &(*at)->next;
	*at = ud->next;
	report_drops(ud);
	srdma_dereg_mr(ud->mr);
	release(ud);
	qp->ud = NULL;
}

int verbs_ud_reset(struct verbs_qp *qp)
{
	struct verbs_ud *ud = qp->ud;
	int r = end_sessions(ud);

	if (r)
		return r;
	ud_recv_clear(ud);
	ud->sends.count = 0;
	return 0;
}

void verbs_ud_error(struct verbs_qp *qp)
{
	struct verbs_ud *ud = qp->ud;

	if (qp->ibv.srq && qp->ibv.state != IBV_QPS_ERR)
		verbs_event_put(ud->root, &qp->last_wqe,
				IBV_EVENT_QP_LAST_WQE_REACHED);
	qp->ibv.state = IBV_QPS_ERR;
	ud->ready = 0;
	ud_group_pause(qp);
	ud_send_complete(ud);
	ud_recv_flush(ud);
}

/* --- peers that call ----------------------------------------------------------------- */

static void serve(struct verbs_ud *ud, int64_t now)
{
	const struct verbs_policy *policy = ud->root->policy;
	const struct srdma_pd *pd = ((struct verbs_pd *)ud->qp->ibv.pd)->pd;
	const struct srdma_talk_self self = { .agent = &pd->device->agent,
					      .worker = pd->path,
					      .identity = policy->identity };

	if (now < ud->serve_at)
		return;
	ud->serve_at = now + SERVE_AGAIN_MS;
	if (srdma_talk_serve_qp(&ud->service, &self, ud->qp->ibv.qp_num,
				pd->token) ||
	    verbs_loop_watch(ud->root, srdma_lasting_fd(ud->service)))
		end_service(ud);
}

int verbs_ud_ready(struct verbs_qp *qp)
{
	int err = verbs_loop_start(qp->ud->root);

	if (err)
		return err;
	qp->ud->ready = 1;
	if (!qp->ud->service)
		serve(qp->ud, ud_now());
	return 0;
}

/* Reads one event, so that peers that call do not keep the program busy. */
static void hear(struct verbs_ud *ud)
{
	struct srdma_agent_event e;

	if (!srdma_lasting_next(ud->service, &e, 0) &&
	    !strcmp(e.event, "called") && e.has_talk)
		ud_session_called(ud, &e);
	if (!srdma_lasting_over(ud->service))
		return;
	end_service(ud);
}

int verbs_ud_look(struct verbs_root *root)
{
	const int64_t now = ud_now();
	int waits = 0;

	for (struct verbs_ud *ud = root->uds; ud; ud = ud->next) {
		if (ud->ready && !ud->service)
			serve(ud, now);
		if (ud->service)
			hear(ud);
		if (ud->ready)
			ud_group_look(ud);
		for (struct ud_session *s = ud->sessions; s; s = s->next)
			ud_session_look(s);
		waits |= ud->ready || ud->sessions;
	}
	return waits;
}

/* --- completions ----------------------------------------------------------------------- */

static void sort(struct verbs_ud *ud, struct ud_session *s,
		 const struct srdma_wc *wc)
{
	if (wc->opcode == SRDMA_WC_QP_EVENT)
		s->lost = 1;
	else if (wc->opcode & IBV_WC_RECV)
		ud_recv_arrived(ud, s, wc);
	else
		ud_send_done(s, wc);
}

void verbs_ud_record(struct verbs_root *root, const struct srdma_wc *wc)
{
	struct ud_session *s = NULL;

	for (struct verbs_ud *ud = root->uds; ud && !s; ud = ud->next) {
		s = ud_session_find(ud, wc->qp_num);
		if (s)
			sort(ud, s, wc);
		else if (ud->qp->ibv.qp_num == wc->qp_num &&
			 wc->opcode == SRDMA_WC_QP_EVENT)
			verbs_ud_error(ud->qp);
	}
}

void verbs_ud_progress(struct verbs_root *root)
{
	for (struct verbs_ud *ud = root->uds; ud; ud = ud->next) {
		for (struct ud_session *s = ud->sessions; s; s = s->next)
			ud_send_flush(s);
		ud_send_complete(ud);
		ud_recv_deliver(ud);
	}
}

uint32_t verbs_ud_due(const struct verbs_cq *cq)
{
	const struct verbs_root *root = verbs_root_of(cq->ibv.context);
	uint32_t n = 0;

	for (const struct verbs_ud *ud = root->uds; ud; ud = ud->next)
		if (ud->qp->ibv.send_cq == &cq->ibv)
			n += ud->sends.count;
	return n;
}
