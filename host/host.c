#include "host/host.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "host/id_pool.h"
#include "host/work.h"
#include "host/wr_queue.h"
#include "wire/reason.h"
#include "wire/wire.h"

enum {
	LEAST_BUCKETS = 16,
	RECORDS = 4, /* ring entries per bucket; a QP needs at least 3 */
	HOLDER_SHIFT = SRDMA_ID_POOL_BITS + 1,
};

_Static_assert((int)SRDMA_HOST_MAX_DEPTH <= (int)SRDMA_ID_POOL_DEPTH &&
		       SRDMA_MAX_QPN <= UINT64_MAX >> HOLDER_SHIFT,
	       "ids of shared receives");

struct host_qp {
	struct host_qp *next; /* next in the bucket */
	uint32_t qpn;
	uint8_t event_seen;
	uint32_t failed; /* enum srdma_reason, srdma_host_qp_fail(); 0: not */
	/* Records of the leg up to this number are of a former QP; 0: none is. */
	uint64_t former;
	struct host_qp *failed_next; /* next that failed */
	struct srdma_wr_queue sq, rq;
	struct srdma_id_pool *shared; /* its receives; NULL: not shared */
	struct host_qp *holder; /* whose receives it takes; NULL: its own */
	struct srdma_wr_entry entries[]; /* of both queues */
};

struct srdma_host {
	const uint8_t *ring;
	uint32_t entries;
	uint32_t reserved; /* records reserved for the QPs */
	uint64_t consumed; /* records */
	uint64_t told;	   /* `consumed` in the newest descriptor */
	uint32_t posted;   /* descriptors, modulo 2^32 */
	uint32_t failed;   /* enum srdma_reason; 0: not failed */
	uint64_t ignored;
	uint32_t buckets;
	struct host_qp **qps;
	struct host_qp *failed_qps; /* list */
};

static struct host_qp **qp_slot(const struct srdma_host *h, uint32_t qpn)
{
	struct host_qp **at = &h->qps[srdma_hash_bucket(qpn, h->buckets - 1)];

	while (*at && (*at)->qpn != qpn)
		at = &(*at)->next;
	return at;
}

static uint32_t records_of(const struct host_qp *qp)
{
	return qp->sq.depth + qp->rq.depth + 1;
}

int srdma_host_create(struct srdma_host **out, const void *ring,
		      uint32_t entries)
{
	struct srdma_host *h;

	*out = NULL;
	if (!ring || (uintptr_t)ring % sizeof(uint64_t))
		return -EINVAL;
	if (!entries || entries > SRDMA_HOST_MAX_RING ||
	    (entries & (entries - 1)))
		return -EINVAL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->buckets = entries / RECORDS;
	if (h->buckets < LEAST_BUCKETS)
		h->buckets = LEAST_BUCKETS;
	h->qps = calloc(h->buckets, sizeof(struct host_qp *));
	if (!h->qps) {
		free(h);
		return -ENOMEM;
	}
	h->ring = ring;
	h->entries = entries;
	*out = h;
	return 0;
}

void srdma_host_destroy(struct srdma_host *h)
{
	if (!h)
		return;
	for (uint32_t i = 0; i < h->buckets; i++) {
		while (h->qps[i]) {
			struct host_qp *qp = h->qps[i];

			h->qps[i] = qp->next;
			srdma_id_pool_free(qp->shared);
			free(qp);
		}
	}
	free(h->qps);
	free(h);
}

int srdma_host_qp_add(struct srdma_host *h, uint32_t qpn, uint32_t sq,
		      uint32_t rq)
{
	struct host_qp **at, *qp;

	if (!qpn || qpn > SRDMA_MAX_QPN || !sq || sq > SRDMA_HOST_MAX_DEPTH ||
	    !rq || rq > SRDMA_HOST_MAX_DEPTH)
		return -EINVAL;
	at = qp_slot(h, qpn);
	if (*at)
		return -EEXIST;
	if (sq + rq + 1 > h->entries - h->reserved)
		return -ENOSPC;
	qp = calloc(1, sizeof(*qp) + (sq + rq) * sizeof(struct srdma_wr_entry));
	if (!qp)
		return -ENOMEM;
	qp->sq = (struct srdma_wr_queue){ .depth = sq, .entries = qp->entries };
	qp->rq = (struct srdma_wr_queue){ .depth = rq,
					  .entries = qp->entries + sq };
	qp->qpn = qpn;
	h->reserved += records_of(qp);
	*at = qp;
	return 0;
}

int srdma_host_qp_fail(struct srdma_host *h, uint32_t qpn, uint32_t reason)
{
	struct host_qp *qp = *qp_slot(h, qpn);

	if (!qp)
		return -ENOENT;
	if (qp->failed)
		return 0;
	qp->failed = reason;
	qp->failed_next = h->failed_qps;
	h->failed_qps = qp;
	return 0;
}

static void leave_failed(struct srdma_host *h, const struct host_qp *qp)
{
	struct host_qp **at = &h->failed_qps;

	while (*at && *at != qp)
		at = &(*at)->failed_next;
	if (*at)
		*at = qp->failed_next;
}

int srdma_host_qp_restart(struct srdma_host *h, uint32_t qpn, uint32_t records)
{
	struct host_qp *qp = *qp_slot(h, qpn);
	const int32_t ahead = (int32_t)(records - (uint32_t)h->consumed);

	if (!qp || qp->shared)
		return -ENOENT;
	leave_failed(h, qp);
	srdma_wr_queue_drop(&qp->sq);
	srdma_wr_queue_drop(&qp->rq);
	qp->failed = 0;
	qp->event_seen = 0;
	qp->holder = NULL;
	qp->former = ahead > 0 ? h->consumed + (uint32_t)ahead : 0;
	return 0;
}

/* --- shared queues ------------------------------------------------------- */

int srdma_host_share(struct srdma_host *h, uint32_t holder)
{
	struct host_qp *qp = *qp_slot(h, holder);

	if (!qp)
		return -ENOENT;
	qp->shared = srdma_id_pool_create(qp->rq.depth);
	return qp->shared ? 0 : -ENOMEM;
}

int srdma_host_join(struct srdma_host *h, uint32_t qpn, uint32_t holder)
{
	struct host_qp *qp = *qp_slot(h, qpn);
	struct host_qp *from = *qp_slot(h, holder);

	if (!qp || !from || !from->shared)
		return -ENOENT;
	qp->holder = from;
	return 0;
}

/* The QPs that took its receives have their own, empty queues from now on. */
static void end_sharing(const struct srdma_host *h,
			const struct host_qp *holder)
{
	for (uint32_t i = 0; holder->shared && i < h->buckets; i++)
		for (struct host_qp *qp = h->qps[i]; qp; qp = qp->next)
			if (qp->holder == holder)
				qp->holder = NULL;
}

uint32_t srdma_host_shared(const struct srdma_host *h, uint32_t holder)
{
	const struct host_qp *qp = *qp_slot(h, holder);

	return qp && qp->shared ? srdma_id_pool_count(qp->shared) : 0;
}

/* The id of a receive of a shared queue: holder << HOLDER_SHIFT | number << 1 | 1.
 * So the holder of a record is known when the QP that took the receive is not. */
static uint64_t share_id(const struct host_qp *holder, uint64_t wr_id)
{
	return (uint64_t)holder->qpn << HOLDER_SHIFT |
	       srdma_id_pool_add(holder->shared, wr_id) << 1 | 1;
}

/* As retire(), of a receive of a shared queue. qp: the QP that took it; NULL: it was
 * removed, and the receive is not outstanding any more. */
static int retire_shared(const struct srdma_host *h, const struct host_qp *qp,
			 struct srdma_record *rec)
{
	const uint64_t mask = (UINT64_C(1) << SRDMA_ID_POOL_BITS) - 1;
	const struct host_qp *holder =
		*qp_slot(h, (uint32_t)(rec->id >> HOLDER_SHIFT));

	if (!(rec->id & 1) || !holder || !holder->shared ||
	    (qp && qp->holder != holder) ||
	    srdma_id_pool_take(holder->shared, rec->id >> 1 & mask, &rec->id))
		return 0;
	if (rec->opcode != SRDMA_WC_RECV_RDMA_WITH_IMM)
		rec->opcode = SRDMA_WC_RECV;
	return qp != NULL;
}

int srdma_host_qp_remove(struct srdma_host *h, uint32_t qpn)
{
	struct host_qp **at = qp_slot(h, qpn);
	struct host_qp *qp = *at;

	if (!qp)
		return -ENOENT;
	leave_failed(h, qp);
	*at = qp->next;
	h->reserved -= records_of(qp);
	end_sharing(h, qp);
	srdma_id_pool_free(qp->shared);
	free(qp);
	return 0;
}

/* --- posting ------------------------------------------------------------- */

static int is_full(const struct host_qp *qp, const struct srdma_wr_queue *q)
{
	if (q == &qp->rq && qp->shared)
		return srdma_id_pool_is_full(qp->shared);
	return q->tail - q->head >= q->depth;
}

int srdma_host_post(struct srdma_host *h, const struct srdma_desc *wr,
		    const void *behind, uint8_t *slot)
{
	struct srdma_desc d = *wr;
	struct host_qp *qp;
	struct srdma_wr_queue *q;
	uint32_t len, more = srdma_work_behind(wr, behind);
	int rc = srdma_work_check(wr, behind);

	if (rc < 0)
		return rc;
	if (h->failed)
		return -ENOTCONN;
	qp = *qp_slot(h, wr->qpn);
	if (!qp)
		return -EINVAL;
	q = wr->opcode == SRDMA_DESC_RECV ? &qp->rq : &qp->sq;
	if (is_full(qp, q))
		return -ENOSPC;

	d.id = q == &qp->rq && qp->shared ? share_id(qp, wr->id)
					  : srdma_wr_queue_add(q, wr) << 1 |
						    (uint64_t)(q == &qp->rq);
	if (qp->failed)
		return 0;
	h->told = h->consumed;
	d.consumed = (uint32_t)h->told;
	if (wr->opcode == SRDMA_DESC_RECV)
		d.flags |= SRDMA_DESC_SIGNALED;
	if (wr->opcode == SRDMA_DESC_ATOMIC_WRITE)
		d.opcode = SRDMA_DESC_WRITE;
	if (behind && !wr->sges)
		d.flags |= SRDMA_DESC_INLINE;
	len = srdma_desc_encode(slot, &d);
	if (more)
		memcpy(slot + SRDMA_DESC_LEN, behind, more);
	h->posted++;
	return (int)(len + more);
}

uint32_t srdma_host_send_room(const struct srdma_host *h, uint32_t qpn)
{
	const struct host_qp *qp = *qp_slot(h, qpn);

	return qp ? qp->sq.depth - (uint32_t)(qp->sq.tail - qp->sq.head) : 0;
}

int srdma_host_owes(const struct srdma_host *h)
{
	return !h->failed && h->consumed != h->told &&
	       h->consumed - h->told >= h->entries / 2;
}

int srdma_host_credit(struct srdma_host *h, uint8_t *slot)
{
	struct srdma_desc d = {
		.opcode = SRDMA_DESC_CREDIT,
		.consumed = (uint32_t)h->consumed,
	};

	if (!srdma_host_owes(h))
		return 0;
	h->told = h->consumed;
	h->posted++;
	return (int)srdma_desc_encode(slot, &d);
}

uint32_t srdma_host_posted(const struct srdma_host *h)
{
	return h->posted;
}

/* --- polling ------------------------------------------------------------- */

/*
 * Copies the next record out of the ring. The NIC stores the sequence, the
 * record's last word, last; after an acquire load of it the other fields are
 * complete.
 */
static int next_record(struct srdma_host *h, struct srdma_record *rec)
{
	const uint8_t *at = h->ring + (size_t)(h->consumed & (h->entries - 1)) *
					      SRDMA_RECORD_LEN;
	uint8_t copy[SRDMA_RECORD_LEN], word[4];
	uint32_t sequence;

	sequence = __atomic_load_n(
		(const uint32_t *)(const void *)(at + SRDMA_LEG_SHM_SEQUENCE),
		__ATOMIC_ACQUIRE);
	memcpy(word, &sequence, sizeof(word));
	if (srdma_load32(word) != (uint32_t)(h->consumed + 1))
		return 0;
	memcpy(copy, at, sizeof(copy));
	srdma_record_decode(rec, copy);
	h->consumed++;
	return 1;
}

/* Completes the entry that a record names, and sets wr_id. 1, or 0: ignore it. */
static int retire(struct host_qp *qp, struct srdma_record *rec)
{
	struct srdma_wr_queue *q = rec->id & 1 ? &qp->rq : &qp->sq;
	const struct srdma_wr_entry *e = srdma_wr_queue_retire(q, rec->id >> 1);

	if (!e)
		return 0;
	if (q == &qp->sq || rec->opcode != SRDMA_WC_RECV_RDMA_WITH_IMM)
		rec->opcode = e->opcode;
	rec->id = e->wr_id;
	return 1;
}

static int deliver(struct srdma_host *h, struct srdma_record *rec)
{
	struct host_qp *qp = *qp_slot(h, rec->qpn);

	if (qp && h->consumed <= qp->former)
		qp = NULL; /* the record is of a former QP with this QPN */
	if (rec->opcode != SRDMA_WC_QP_EVENT)
		return !qp || (qp->holder && (rec->id & 1))
			       ? retire_shared(h, qp, rec)
			       : retire(qp, rec);
	rec->id = 0;
	if (!qp || qp->event_seen)
		return 0;
	qp->event_seen = 1;
	return 1;
}

static void make_record(struct srdma_record *out, const struct host_qp *qp,
			uint8_t opcode, uint32_t reason)
{
	*out = (struct srdma_record){
		.qpn = qp->qpn,
		.opcode = opcode,
		.status = srdma_reason(reason)->status,
		.vendor_err = reason,
	};
}

/* Fails up to n entries of a queue: the first with reason, others FLUSHED. */
static int fail_queue(const struct host_qp *qp, struct srdma_wr_queue *q,
		      uint32_t reason, struct srdma_record *out, int n)
{
	int got = 0;

	for (; got < n && q->head < q->tail; q->head++, got++) {
		const struct srdma_wr_entry *e =
			&q->entries[q->head % q->depth];

		if (q->failing)
			reason = SRDMA_REASON_FLUSHED;
		q->failing = 1;
		make_record(&out[got], qp, e->opcode, reason);
		out[got].id = e->wr_id;
	}
	return got;
}

/* Fails the work requests of a QP: the first request with `request`, the first
 * receive with `receive`. */
static int fail_queues(struct host_qp *qp, uint32_t request, uint32_t receive,
		       struct srdma_record *out, int n)
{
	int got = fail_queue(qp, &qp->sq, request, out, n);

	return got + fail_queue(qp, &qp->rq, receive, out + got, n - got);
}

static int fail_qp(struct srdma_host *h, struct host_qp *qp,
		   struct srdma_record *out, int n)
{
	int got = 0;

	if (n && !qp->event_seen) {
		make_record(&out[got++], qp, SRDMA_WC_QP_EVENT, h->failed);
		qp->event_seen = 1;
	}
	return got + fail_queues(qp, h->failed, h->failed, out + got, n - got);
}

static int poll_failed(struct srdma_host *h, struct srdma_record *out, int n)
{
	int got = 0;

	for (uint32_t i = 0; i < h->buckets; i++)
		for (struct host_qp *qp = h->qps[i]; qp; qp = qp->next)
			got += fail_qp(h, qp, out + got, n - got);
	return got;
}

int srdma_host_poll(struct srdma_host *h, struct srdma_record *out, int n)
{
	struct srdma_record rec;
	int got = 0;

	/* At most one lap of the ring, so that the loop ends even if the ring's
	 * content is hostile. */
	for (uint32_t i = 0; got < n && i < h->entries; i++) {
		if (!next_record(h, &rec))
			break;
		if (deliver(h, &rec))
			out[got++] = rec;
		else
			h->ignored++;
	}
	if (h->failed && got < n)
		got += poll_failed(h, out + got, n - got);
	for (struct host_qp *qp = h->failed_qps; qp && got < n;
	     qp = qp->failed_next)
		got += fail_queues(qp, qp->failed, SRDMA_REASON_FLUSHED,
				   out + got, n - got);
	return got;
}

void srdma_host_fail(struct srdma_host *h, uint32_t reason)
{
	if (!h->failed)
		h->failed = reason;
}

uint64_t srdma_host_ignored(const struct srdma_host *h)
{
	return h->ignored;
}
