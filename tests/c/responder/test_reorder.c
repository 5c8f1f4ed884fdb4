/*
 * Reorder buffer and gaps, compared with a model that examines every packet
 * separately.
 */
#include "responder/reorder.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "port/port.h"

enum {
	MESSAGES = 60,
	PACKETS = 6 * MESSAGES,
	LIVES = 400,
	STEPS = 400,
	FIRST_PN = 1000
};

static uint64_t seed;

static uint32_t below(uint32_t n)
{
	seed = seed * UINT64_C(6364136223846793005) +
	       UINT64_C(1442695040888963407);
	return (uint32_t)((seed >> 32) * n >> 32);
}

/* --- counted buffers ------------------------------------------------------ */

static int bufs_out;

static void put(struct srdma_buf *buf)
{
	assert_true(buf->len > 0);
	buf->len = 0;
	bufs_out--;
}

static const struct srdma_port_ops ops = { .buf_put = put };
static struct srdma_port port = { .ops = &ops };
static struct srdma_buf bufs[SRDMA_REORDER_MAX + 1];

static struct srdma_buf *get(void)
{
	for (size_t i = 0; i < sizeof(bufs) / sizeof(*bufs); i++) {
		if (bufs[i].len)
			continue;
		bufs[i].len = 1;
		bufs[i].port = &port;
		bufs_out++;
		return &bufs[i];
	}
	return NULL;
}

static struct srdma_share_group group; /* of most tests */
static struct srdma_ledger *ledger;
static struct srdma_account *account; /* of most tests */

static struct srdma_account *account_of(const char *name)
{
	struct srdma_account *a;

	assert_int_equal(srdma_account_open(ledger, SRDMA_ACCOUNT_IDENTITY,
					    name, NULL, &a),
			 0);
	return a;
}

static int open_ledger(void **state)
{
	struct srdma_ledger_params params = { .minima = 0 };

	(void)state;
	params.capacity[SRDMA_SIDE_REMOTE][SRDMA_RES_KEPT] = 1 << 20;
	assert_int_equal(srdma_ledger_create(&ledger, &params), 0);
	account = account_of("most");
	return 0;
}

static int close_ledger(void **state)
{
	(void)state;
	assert_int_equal(
		srdma_ledger_used(ledger, SRDMA_SIDE_REMOTE, SRDMA_RES_KEPT),
		0);
	srdma_ledger_destroy(ledger);
	return 0;
}

/* --- model ---------------------------------------------------------------- */

struct model {
	struct srdma_packet packet[PACKETS]; /* all packets, in order */
	int kept[PACKETS];
	int count;
	int at;	      /* packets before this index are executed */
	int furthest; /* highest verified index; -1: none */
	/*
	 * pn: next packet number. before: 1 if a packet was lost since the
	 * highest one arrived.
	 */
	uint64_t pn, before;
	uint64_t highest;
};

/* Fills the model with READs, multi-packet messages and empty ones. */
static void fill(struct model *m)
{
	static const uint8_t opcodes[2][4] = {
		{ SRDMA_OP_WRITE_ONLY, SRDMA_OP_WRITE_FIRST,
		  SRDMA_OP_WRITE_MIDDLE, SRDMA_OP_WRITE_LAST },
		{ SRDMA_OP_SEND_ONLY, SRDMA_OP_SEND_FIRST, SRDMA_OP_SEND_MIDDLE,
		  SRDMA_OP_SEND_LAST_IMM },
	};

	memset(m, 0, sizeof(*m));
	m->furthest = -1;
	m->pn = FIRST_PN;
	m->highest = FIRST_PN - 1;
	for (uint64_t id = 0; id < MESSAGES; id++) {
		uint32_t n = 1 + below(below(2) ? 1 : 6), offset = 0;
		uint32_t kind = below(3);

		for (uint32_t i = 0; i < n; i++) {
			struct srdma_packet *p = &m->packet[m->count++];
			uint32_t len =
				n == 1 && below(3) == 0 ? 0 : 1 + below(90);

			p->request_id = id;
			p->offset = offset;
			offset += len;
			if (kind == 2) {
				p->opcode = SRDMA_OP_READ_REQUEST;
				p->traits = srdma_wire_traits(p->opcode);
				p->dma_len = len;
				continue;
			}
			p->payload_len = len;
			p->opcode = opcodes[kind][n == 1       ? 0
						  : i == 0     ? 1
						  : i == n - 1 ? 3
							       : 2];
			p->traits = srdma_wire_traits(p->opcode);
		}
	}
}

static struct srdma_reorder_from expected(const struct model *m)
{
	const struct srdma_packet *p;
	struct srdma_reorder_from from = { .highest = m->highest,
					   .credit = MESSAGES };

	if (!m->at)
		return from;
	p = &m->packet[m->at - 1];
	from.at = srdma_position_after(p);
	from.reading = p->opcode == SRDMA_OP_READ_REQUEST && p->dma_len;
	return from;
}

static int in_gap(const struct srdma_gap *g, const struct srdma_packet *p)
{
	if (g->length & SRDMA_GAP_IDS) {
		uint64_t end = g->request_id + (g->length ^ SRDMA_GAP_IDS);

		return p->request_id < end &&
		       (p->request_id > g->request_id ||
			(p->request_id == g->request_id &&
			 p->offset >= g->offset));
	}
	return p->request_id == g->request_id && p->offset >= g->offset &&
	       p->offset - g->offset < g->length;
}

/*
 * Returns 1 for a missing read chunk that no gap reports: chunks of the same
 * READ before it are present, and so is the start of the next request. The
 * length of a READ is unknown, so that the chunk need not exist.
 */
static int passed_over(const struct model *m, int i)
{
	uint64_t id = m->packet[i].request_id;
	int next = i, before = i;

	while (before >= m->at && !m->kept[before])
		before--;
	while (next < m->count && !m->kept[next])
		next++;
	return before >= 0 && m->packet[before].request_id == id &&
	       m->packet[i].opcode == SRDMA_OP_READ_REQUEST &&
	       next < m->count && m->packet[next].request_id == id + 1 &&
	       !m->packet[next].offset;
}

static int missing(const struct model *m, int i)
{
	if (m->kept[i] || i < m->at || passed_over(m, i))
		return 0;
	return i <= m->furthest || m->before;
}

/* Returns 1 if p lies behind the whole gap. */
static int behind(const struct srdma_gap *g, const struct srdma_packet *p)
{
	if (g->length & SRDMA_GAP_IDS)
		return p->request_id >=
		       g->request_id + (g->length ^ SRDMA_GAP_IDS);
	return p->request_id > g->request_id ||
	       (p->request_id == g->request_id &&
		p->offset >= g->offset + g->length);
}

/*
 * Returns 1 if a gap begins after a read chunk: the length of a READ is
 * unknown, so that the gap may be empty.
 */
static int follows_a_read(const struct model *m, const struct srdma_gap *g)
{
	for (int i = 0; i < m->count; i++) {
		const struct srdma_packet *p = &m->packet[i];

		if (p->opcode == SRDMA_OP_READ_REQUEST &&
		    p->request_id == g->request_id &&
		    p->offset + p->dma_len == g->offset)
			return 1;
	}
	return 0;
}

static void check(const struct model *m, struct srdma_reorder *b)
{
	const struct srdma_reorder_from from = expected(m);
	struct srdma_reorder_gaps gaps;
	unsigned named[SRDMA_MAX_GAPS] = { 0 };
	uint8_t n;

	srdma_reorder_gaps(b, &from, &gaps);
	n = gaps.count;
	assert_true(n <= SRDMA_MAX_GAPS && (n || !gaps.skips));
	for (int i = 0; i < m->count; i++) {
		const struct srdma_packet *p = &m->packet[i];
		int found = 0;

		for (uint8_t g = 0; g < n; g++) {
			int in = in_gap(&gaps.gap[g], p);

			found += in;
			named[g] += (unsigned)in;
		}
		/*
		 * Gaps before the reported ones (skips), and gaps after the
		 * eighth, are not in this ack.
		 */
		if (gaps.skips && !found && !behind(&gaps.gap[0], p))
			continue;
		if (n == SRDMA_MAX_GAPS && behind(&gaps.gap[n - 1], p))
			break;
		assert_int_equal(found, missing(m, i));
	}
	for (uint8_t g = 0; g < n; g++)
		assert_true(named[g] || follows_a_read(m, &gaps.gap[g]));
}

/* --- random sequences ----------------------------------------------------- */

static void execute(struct model *m, struct srdma_reorder *b)
{
	m->at++;
	while (b->head && m->at < m->count && m->kept[m->at]) {
		assert_int_equal(b->head->packet.request_id,
				 m->packet[m->at].request_id);
		assert_int_equal(b->head->packet.offset,
				 m->packet[m->at].offset);
		srdma_reorder_pop(b);
		m->kept[m->at++] = 0;
	}
}

static void note(struct model *m, struct srdma_reorder *b, int i)
{
	srdma_reorder_note(b, &m->packet[i]);
	if (i <= m->furthest)
		return;
	m->furthest = i;
	m->before = 0;
}

static void keep(struct model *m, struct srdma_reorder *b, int i)
{
	struct srdma_packet *p = &m->packet[i];
	struct srdma_buf *buf = p->payload_len ? get() : NULL;
	const uint32_t full =
		b->share.count == SRDMA_REORDER_MAX || !b->pool->left;
	struct srdma_reorder_entry *k;
	int r = srdma_reorder_keep(b, p, &buf, 1, &k);

	if (m->kept[i]) {
		assert_int_equal(r, -EALREADY);
	} else if (full) {
		assert_int_equal(r, -ENOSPC);
	} else {
		assert_int_equal(r, 0);
		assert_null(buf);
		m->kept[i] = 1;
	}
	if (buf)
		put(buf);
	note(m, b, i);
}

static void step(struct model *m, struct srdma_reorder *b)
{
	int ahead = (int)below(below(2) ? 4 : 120);
	int i = below(3) ? m->at : m->at + ahead;
	uint64_t pn = m->pn++;

	if (below(5) == 0) { /* lost */
		m->before = 1;
		return;
	}
	srdma_reorder_count(b, pn);
	m->highest = pn;
	if (below(8) == 0 || i >= m->count)
		return; /* an ack or a response */
	m->packet[i].pn = pn;
	if (i > m->at) {
		keep(m, b, i);
		return;
	}
	note(m, b, i);
	execute(m, b);
}

/*
 * Returns 0 if the latest packets are lost: the responder cannot know that yet.
 */
static int known(const struct model *m)
{
	return m->highest == m->pn - 1;
}

static void test_random_sequences_match_model(void **state)
{
	static struct model m;
	unsigned checks = 0;

	(void)state;
	for (seed = 1; seed <= LIVES; seed++) {
		const uint64_t life = seed;
		struct srdma_reorder_pool pool;
		struct srdma_reorder b = { .pool = &pool,
					   .account = account,
					   .share.group = &group,
					   .pn = FIRST_PN - 1 };
		uint32_t records = life % 3 ? 400 : 3;

		assert_int_equal(srdma_reorder_pool_create(&pool, records), 0);
		fill(&m);
		for (int n = 0; n < STEPS && m.at < m.count; n++) {
			step(&m, &b);
			if (!known(&m))
				continue;
			check(&m, &b);
			checks++;
		}
		assert_int_equal(pool.left + b.share.count, records);
		srdma_reorder_drop(&b);
		assert_int_equal(pool.left, records);
		assert_int_equal(bufs_out, 0);
		assert_null(b.tail);
		srdma_reorder_pool_destroy(&pool);
		seed = life;
	}
	assert_true(checks > LIVES * 50);
}

/* --- examples ------------------------------------------------------------- */

static struct srdma_packet write_at(uint64_t id, uint32_t offset, uint32_t len)
{
	return (struct srdma_packet){ .opcode = SRDMA_OP_WRITE_MIDDLE,
				      .traits = srdma_wire_traits(
					      SRDMA_OP_WRITE_MIDDLE),
				      .request_id = id,
				      .offset = offset,
				      .payload_len = len };
}

static int keep_one(struct srdma_reorder *b, struct srdma_packet p)
{
	struct srdma_buf *buf = get();
	struct srdma_reorder_entry *k;
	int r = srdma_reorder_keep(b, &p, &buf, 1, &k);

	srdma_reorder_note(b, &p);
	if (buf)
		put(buf);
	return r;
}

/* A packet that overlaps a kept packet is not kept. */
static void test_overlapping_packets_are_not_kept(void **state)
{
	struct srdma_reorder_pool pool;
	struct srdma_reorder b = { .pool = &pool,
				   .account = account,
				   .share.group = &group };
	struct srdma_packet last = write_at(5, 200, 10);

	(void)state;
	assert_int_equal(srdma_reorder_pool_create(&pool, 100), 0);
	last.opcode = SRDMA_OP_WRITE_LAST;
	last.traits = srdma_wire_traits(last.opcode);
	assert_int_equal(keep_one(&b, write_at(5, 100, 50)), 0);
	assert_int_equal(keep_one(&b, last), 0);
	assert_int_equal(keep_one(&b, write_at(5, 100, 50)), -EALREADY);
	assert_int_equal(keep_one(&b, last), -EALREADY);
	assert_int_equal(keep_one(&b, write_at(5, 99, 2)), -EINVAL);
	assert_int_equal(keep_one(&b, write_at(5, 90, 100)), -EINVAL);
	assert_int_equal(keep_one(&b, write_at(5, 149, 1)), -EINVAL);
	assert_int_equal(keep_one(&b, write_at(5, 140, 20)), -EINVAL);
	assert_int_equal(keep_one(&b, write_at(5, 150, 51)), -EINVAL);
	assert_int_equal(keep_one(&b, write_at(5, 210, 9)), -EINVAL);
	assert_int_equal(keep_one(&b, write_at(5, 150, 50)), 0);
	assert_int_equal(keep_one(&b, write_at(5, 99, 1)), 0);
	assert_int_equal(keep_one(&b, write_at(6, 0, 1)), 0);
	assert_int_equal(b.share.count, 5);
	srdma_reorder_drop(&b);
	srdma_reorder_pool_destroy(&pool);
}

/* A QP may keep at most 512 packets, and the whole pool if no other QP needs
 * it. */
/* RFC 5042 R6.4.3.1-1, R6.4.3.1-3 */
static void test_limits_of_kept_packets(void **state)
{
	static const uint32_t rows[][2] = {
		{ 0, 0 }, { 1, 1 },	{ 2, 2 },
		{ 4, 4 }, { 100, 100 }, { 4000, 512 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_reorder_pool pool;
		struct srdma_reorder b = { .pool = &pool,
					   .account = account,
					   .share.group = &group };

		assert_int_equal(srdma_reorder_pool_create(&pool, rows[i][0]),
				 0);
		for (uint32_t n = 0; n < 600; n++) {
			int r = keep_one(&b, write_at(9, 10 * n, 5));

			assert_int_equal(r, n < rows[i][1] ? 0 : -ENOSPC);
		}
		assert_int_equal(b.share.count, rows[i][1]);
		srdma_reorder_drop(&b);
		assert_int_equal(bufs_out, 0);
		srdma_reorder_pool_destroy(&pool);
	}
}

/* --- shares --------------------------------------------------------------- */

enum { HOLDERS = 6, ENTRIES = 120 };

/* Buffers of one pool: the first `rivals` belong to one group and account, the
 * others to one each. */
struct market {
	struct srdma_ledger *ledger; /* with as many entries as the pool */
	struct srdma_account *account[HOLDERS]; /* of each group */
	struct srdma_reorder_pool pool;
	struct srdma_share_group group[HOLDERS];
	struct srdma_reorder b[HOLDERS];
	uint32_t next[HOLDERS]; /* offset of the next packet */
};

static void open_market(struct market *m, int rivals)
{
	struct srdma_ledger_params params = { .minima = 0 };

	memset(m, 0, sizeof(*m));
	params.capacity[SRDMA_SIDE_REMOTE][SRDMA_RES_KEPT] = ENTRIES;
	assert_int_equal(srdma_ledger_create(&m->ledger, &params), 0);
	assert_int_equal(srdma_reorder_pool_create(&m->pool, ENTRIES), 0);
	for (int i = 0; i < HOLDERS; i++) {
		const char name[] = { (char)('a' + i), '\0' };
		const int one = i < rivals ? 0 : i;

		assert_int_equal(srdma_account_open(m->ledger,
						    SRDMA_ACCOUNT_IDENTITY,
						    name, NULL, &m->account[i]),
				 0);
		m->b[i].pool = &m->pool;
		m->b[i].account = m->account[one];
		m->b[i].share.group = &m->group[one];
	}
}

static void set_quota(struct market *m, int i, uint64_t minimum, uint64_t limit)
{
	const char name[] = { (char)('a' + i), '\0' };
	struct srdma_quota q;

	memset(&q, 0xff, sizeof(q)); /* SRDMA_QUOTA_DEFAULT */
	q.of[SRDMA_RES_KEPT].minimum = minimum;
	q.of[SRDMA_RES_KEPT].limit = limit;
	assert_int_equal(
		srdma_quota_set(m->ledger, SRDMA_ACCOUNT_IDENTITY, name, &q, 1),
		0);
}

/* Keeps n packets in buffer i; returns how many were refused. */
static uint32_t keep_many(struct market *m, int i, uint32_t n)
{
	uint32_t refused = 0;

	while (n--) {
		m->next[i] += 10;
		refused += keep_one(&m->b[i], write_at(9, m->next[i], 5)) ==
			   -ENOSPC;
	}
	return refused;
}

static void close_market(struct market *m)
{
	for (int i = 0; i < HOLDERS; i++) {
		srdma_reorder_drop(&m->b[i]);
		assert_null(m->b[i].tail);
	}
	assert_int_equal(m->pool.left, ENTRIES);
	assert_int_equal(bufs_out, 0);
	assert_true(LIST_EMPTY(&m->pool.groups));
	assert_int_equal(
		srdma_ledger_used(m->ledger, SRDMA_SIDE_REMOTE, SRDMA_RES_KEPT),
		0);
	srdma_reorder_pool_destroy(&m->pool);
	srdma_ledger_destroy(m->ledger);
}

/* Five QPs of one identity hold the whole pool. Another one gets half of it, and
 * then the five share the rest equally. */
static void test_the_largest_holder_gives_way(void **state)
{
	struct market m;

	(void)state;
	open_market(&m, 5);
	assert_int_equal(keep_many(&m, 0, ENTRIES), 0);
	for (int i = 1; i < 5; i++)
		assert_int_equal(keep_many(&m, i, ENTRIES / 5), 0);
	assert_int_equal(m.pool.left, 0);
	assert_int_equal(keep_many(&m, 5, ENTRIES), ENTRIES / 2);
	assert_int_equal(m.b[5].share.count, ENTRIES / 2);
	for (int i = 0; i < 5; i++)
		assert_in_range(m.b[i].share.count, ENTRIES / 10 - 1,
				ENTRIES / 10 + 1);
	/* the five cannot take it back */
	for (int i = 0; i < 5; i++)
		keep_many(&m, i, ENTRIES);
	assert_int_equal(m.b[5].share.count, ENTRIES / 2);
	close_market(&m);
}

/* The holder that gives way loses its last packets: the first ones are executed
 * soonest. */
static void test_the_last_packets_give_way(void **state)
{
	struct market m;

	(void)state;
	open_market(&m, 0);
	assert_int_equal(keep_many(&m, 0, ENTRIES), 0);
	assert_int_equal(keep_many(&m, 1, 7), 0);
	assert_int_equal(m.b[0].share.count, ENTRIES - 7);
	assert_int_equal(m.b[0].head->packet.offset, 10);
	assert_int_equal(m.b[0].tail->packet.offset, 10 * (ENTRIES - 7));
	close_market(&m);
}

/* Without a free buffer a packet is kept only where a larger holder releases
 * one; packets without payload need none. */
static void test_buffers_give_way(void **state)
{
	struct srdma_packet chunk = { .opcode = SRDMA_OP_READ_REQUEST,
				      .request_id = 9,
				      .dma_len = 5 };
	struct srdma_packet data = write_at(9, 10, 5);
	struct srdma_reorder_entry *k;
	struct srdma_buf *buf = get();
	struct market m;

	(void)state;
	chunk.traits = srdma_wire_traits(chunk.opcode);
	open_market(&m, 0);
	assert_int_equal(srdma_reorder_keep(&m.b[0], &data, &buf, 0, &k),
			 -ENOSPC);
	for (chunk.request_id = 1; chunk.request_id < 4; chunk.request_id++)
		assert_int_equal(
			srdma_reorder_keep(&m.b[1], &chunk, &buf, 0, &k), 0);
	assert_int_equal(srdma_reorder_keep(&m.b[0], &data, &buf, 0, &k),
			 -ENOSPC);
	/* None of them gives way: they have no buffers. */
	assert_int_equal(m.b[1].share.count, 3);
	assert_int_equal(keep_many(&m, 2, 5), 0);
	assert_int_equal(srdma_reorder_keep(&m.b[0], &data, &buf, 0, &k), 0);
	assert_null(buf);
	assert_int_equal(m.b[2].share.count, 4);
	close_market(&m);
}

/* RFC 5042 R6.4.1-1 */
static void test_an_identity_at_its_limit_takes_nothing_of_others(void **state)
{
	struct srdma_usage u;
	struct market m;

	(void)state;
	open_market(&m, 2);
	set_quota(&m, 0, 0, 30);
	assert_int_equal(keep_many(&m, 0, 20), 0);
	assert_int_equal(keep_many(&m, 2, ENTRIES - 20), 0);
	assert_int_equal(keep_many(&m, 1, 20), 10);
	srdma_account_usage(m.account[0], SRDMA_RES_KEPT, &u);
	assert_int_equal(u.used, 30);
	assert_int_equal(u.refused, 10);
	assert_int_equal(m.b[2].share.count, ENTRIES - 30);
	close_market(&m);
}

/* Entries that a quota holds back are free for its identity, not for others. */
static void test_a_minimum_of_kept_packets_is_held_back(void **state)
{
	struct market m;

	(void)state;
	open_market(&m, 0);
	set_quota(&m, 1, 40, ENTRIES);
	assert_int_equal(keep_many(&m, 0, ENTRIES), 40);
	assert_int_equal(m.pool.left, 40);
	/* A third one takes from the larger one, not from what is held back. */
	assert_int_equal(keep_many(&m, 2, 10), 0);
	assert_int_equal(m.pool.left, 40);
	assert_int_equal(keep_many(&m, 1, 40), 0);
	assert_int_equal(m.pool.left, 0);
	assert_int_equal(m.b[0].share.count, ENTRIES - 50);
	close_market(&m);
}

/* The largest holder keeps what its quota guarantees. */
static void test_guaranteed_packets_do_not_give_way(void **state)
{
	struct market m;

	(void)state;
	open_market(&m, 0);
	set_quota(&m, 0, ENTRIES - 20, ENTRIES);
	assert_int_equal(keep_many(&m, 0, ENTRIES), 0);
	assert_int_equal(keep_many(&m, 1, 30), 10);
	assert_int_equal(m.b[0].share.count, ENTRIES - 20);
	close_market(&m);
}

/* Gaps hold the low 32 bits of request ids. */
static void test_gaps_hold_low_32_bits_of_ids(void **state)
{
	const uint64_t high = (UINT64_C(7) << 32) - 2;
	const struct srdma_reorder_from from = { .at = { high, 12 },
						 .credit = high + 100 };
	struct srdma_reorder_pool pool;
	struct srdma_reorder b = { .pool = &pool,
				   .account = account,
				   .share.group = &group };
	struct srdma_reorder_gaps gaps;
	const struct srdma_gap *gap = gaps.gap;

	(void)state;
	assert_int_equal(srdma_reorder_pool_create(&pool, 100), 0);
	keep_one(&b, write_at(high + 5, 30, 10));
	srdma_reorder_gaps(&b, &from, &gaps);
	assert_int_equal(gaps.count, 2);
	assert_int_equal(gap[0].request_id, 0xfffffffe);
	assert_int_equal(gap[0].offset, 12);
	assert_int_equal(gap[0].length, SRDMA_GAP_IDS + 5);
	assert_int_equal(gap[1].request_id, 3);
	assert_int_equal(gap[1].offset, 0);
	assert_int_equal(gap[1].length, 30);
	srdma_reorder_drop(&b);
	srdma_reorder_pool_destroy(&pool);
}

/*
 * A gap after the highest request is reported if a packet number above that of
 * its packet is missing. A missing lower number does not count.
 */
static void test_missing_packet_number_makes_gap(void **state)
{
	struct srdma_reorder_from from = { .at = { 1, 0 }, .credit = 100 };
	struct srdma_reorder_pool pool;
	struct srdma_reorder b = { .pool = &pool, .pn = 8 };
	struct srdma_packet p = { .opcode = SRDMA_OP_SEND_ONLY,
				  .traits =
					  srdma_wire_traits(SRDMA_OP_SEND_ONLY),
				  .pn = 10 };
	struct srdma_reorder_gaps gaps;

	(void)state;
	assert_int_equal(srdma_reorder_pool_create(&pool, 100), 0);
	srdma_reorder_count(&b, 10);
	srdma_reorder_note(&b, &p);
	from.highest = 10;
	srdma_reorder_gaps(&b, &from, &gaps);
	assert_int_equal(gaps.count, 0);
	srdma_reorder_count(&b, 12);
	srdma_reorder_count(&b, 9);
	from.highest = 12;
	srdma_reorder_gaps(&b, &from, &gaps);
	assert_int_equal(gaps.count, 1);
	assert_int_equal(gaps.gap[0].request_id, 1);
	assert_int_equal(gaps.gap[0].length, SRDMA_GAP_IDS + 99);
	srdma_reorder_count(&b, 11);
	srdma_reorder_gaps(&b, &from, &gaps);
	assert_int_equal(gaps.count, 0);
	srdma_reorder_pool_destroy(&pool);
}

static void expect_page(struct srdma_reorder *b, uint32_t first, uint8_t count,
			uint8_t skips)
{
	const struct srdma_reorder_from from = { .at = { 9, 0 }, .credit = 99 };
	struct srdma_reorder_gaps gaps;

	srdma_reorder_gaps(b, &from, &gaps);
	assert_int_equal(gaps.count, count);
	assert_int_equal(gaps.skips, skips);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(gaps.gap[i].request_id, 9);
		assert_int_equal(gaps.gap[i].offset, (first + i) * 10);
		assert_int_equal(gaps.gap[i].length, 5);
	}
}

/*
 * More gaps than an ack can hold are reported in pages, alternating with the
 * newest gaps.
 */
static void test_many_gaps_are_reported_in_pages(void **state)
{
	struct srdma_reorder_pool pool;
	struct srdma_reorder b = { .pool = &pool,
				   .account = account,
				   .share.group = &group };

	(void)state;
	assert_int_equal(srdma_reorder_pool_create(&pool, 100), 0);
	for (uint32_t n = 0; n < 8; n++)
		keep_one(&b, write_at(9, 10 * n + 5, 5));
	expect_page(&b, 0, 8, 0);
	expect_page(&b, 0, 8, 0);
	for (uint32_t n = 8; n < 20; n++)
		keep_one(&b, write_at(9, 10 * n + 5, 5));
	for (int i = 0; i < 2; i++) {
		expect_page(&b, 13, 7, 1);
		expect_page(&b, 0, 8, 0);
		expect_page(&b, 13, 7, 1);
		expect_page(&b, 8, 8, 1);
		expect_page(&b, 13, 7, 1);
		expect_page(&b, 16, 4, 1);
	}
	/* All gaps from the next page on are closed: paging starts again. */
	expect_page(&b, 13, 7, 1);
	expect_page(&b, 0, 8, 0);
	expect_page(&b, 13, 7, 1);
	for (uint32_t n = 8; n < 20; n++)
		keep_one(&b, write_at(9, 10 * n, 5));
	expect_page(&b, 0, 8, 0);
	srdma_reorder_drop(&b);
	assert_int_equal(bufs_out, 0);
	srdma_reorder_pool_destroy(&pool);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_sequences_match_model),
		cmocka_unit_test(test_overlapping_packets_are_not_kept),
		cmocka_unit_test(test_limits_of_kept_packets),
		cmocka_unit_test(test_the_largest_holder_gives_way),
		cmocka_unit_test(test_the_last_packets_give_way),
		cmocka_unit_test(test_buffers_give_way),
		cmocka_unit_test(
			test_an_identity_at_its_limit_takes_nothing_of_others),
		cmocka_unit_test(test_a_minimum_of_kept_packets_is_held_back),
		cmocka_unit_test(test_guaranteed_packets_do_not_give_way),
		cmocka_unit_test(test_gaps_hold_low_32_bits_of_ids),
		cmocka_unit_test(test_missing_packet_number_makes_gap),
		cmocka_unit_test(test_many_gaps_are_reported_in_pages),
	};

	return cmocka_run_group_tests(tests, open_ledger, close_ledger);
}
