/*
 * Revocation at the responder (protocol.md 6.3): effective when the call
 * returns.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/memory.h"
#include "memory/memguard.h"
#include "support/proving.h"

enum {
	ALL_PROOF = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
	/* offset of READ buffers in the client's memory */
	LATER = PAIR_MEMORY / 2,
};

#define SAYS(relay, text) assert_non_null(strstr(srdma_relay_why(relay), text))

/* A pair, and a region at the server with a capability for all of it. */
struct guarded {
	struct pair p;
	uint32_t key, handle;
	int busy; /* 1: DMA of the server finds no room */
};

static int dma_hook(void *ctx, const struct srdma_dma *dma, int is_write)
{
	const struct guarded *g = ctx;

	(void)dma;
	(void)is_write;
	return g->busy ? -EAGAIN : 0;
}

static void delegate(struct guarded *g, uint64_t offset, uint64_t length)
{
	g->handle = pair_install(
		&g->p, 0,
		(struct srdma_cap_params){ .key = g->key,
					   .offset = offset,
					   .length = length,
					   .rights = SRDMA_MEMKEY_READ |
						     SRDMA_MEMKEY_WRITE });
}

static void open_guarded(struct guarded *g)
{
	pair_defaults(&g->p);
	g->busy = 0;
	g->p.mode = SRDMA_MODE_MEM;
	g->p.mtu = 256;
	g->p.host[1].ctx = g;
	g->p.host[1].dma = dma_hook;
	pair_open(&g->p);
	pair_connect(&g->p, 0);
	g->key = add_region(&g->p, (struct place){ .access = ALL_PROOF });
	delegate(g, 0, REGION);
}

static void post(struct guarded *g, uint8_t opcode, uint64_t at, uint32_t len)
{
	struct srdma_desc d = {
		.opcode = opcode,
		.id = 1,
		.length = len,
		.local_addr = (uintptr_t)g->p.side[0].memory,
		.remote_addr = (uintptr_t)g->p.side[1].memory + at,
		.rkey = g->key,
		.capability = g->handle,
	};

	if (opcode == SRDMA_DESC_READ)
		d.local_addr += LATER;
	pair_post(&g->p, 0, d, NULL);
}

static int revoke(struct guarded *g, uint64_t offset, uint64_t length,
		  uint64_t *ticket)
{
	const struct srdma_revoke_params params = { g->key, offset, length };

	return srdma_relay_mr_revoke(g->p.side[1].relay, g->p.side[1].leg,
				     &params, ticket);
}

static int revoking(struct guarded *g, uint64_t offset, uint64_t length,
		    uint64_t ticket)
{
	const struct srdma_revoke_params params = { g->key, offset, length };

	return srdma_relay_mr_revoking(g->p.side[1].relay, g->p.side[1].leg,
				       &params, ticket);
}

/* Runs until the revocation is complete. Returns the number of turns. */
static int finish(struct guarded *g, uint64_t offset, uint64_t length,
		  uint64_t ticket)
{
	int turns = 0;

	for (; revoking(g, offset, length, ticket); turns++) {
		assert_in_range(turns, 0, 100);
		pair_run(&g->p, 1);
	}
	return turns;
}

/* Runs until this many DMAs use the region; all are for the peer. */
static void until_dmas(struct guarded *g, uint32_t n)
{
	const struct srdma_mr *mr =
		srdma_mr_find(&g->p.side[1].relay->env.mrs, g->key);

	for (int i = 0; mr->dmas < n; i++) {
		assert_in_range(i, 0, 100);
		pair_run(&g->p, 1);
	}
}

/* Replaces the failed QPs. */
static void connect_again(struct guarded *g)
{
	struct srdma_record r;

	pair_settle(&g->p);
	pair_destroy_qp(&g->p, 0);
	for (int side = 0; side < 2; side++)
		while (pair_record(&g->p, side, &r))
			;
	for (int side = 0; side < 2; side++)
		pair_post(&g->p, side,
			  (struct srdma_desc){ .opcode = SRDMA_DESC_CREDIT },
			  NULL);
	g->p.life++;
	pair_connect(&g->p, 0);
}

/* --- refusals of the call ------------------------------------------------- */

static void test_refusals(void **state)
{
	static const struct {
		uint64_t offset, length;
		int err;
		const char *says;
	} rows[] = {
		{ REGION, BLOCK, -ERANGE, "inside" },
		{ 0, REGION + 1, -ERANGE, "of a region of 4096" },
		{ BLOCK, 0, -ERANGE, "at least one" },
		{ BLOCK, UINT64_MAX, -ERANGE, "inside" },
		{ 1, BLOCK, -EINVAL, "multiple of 256 bytes from byte 0" },
		{ 0, 1, -EINVAL, "ending at one or at byte 4096" },
	};
	struct guarded g;
	uint64_t ticket = 77;
	uint32_t key;

	(void)state;
	open_guarded(&g);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(
			revoke(&g, rows[i].offset, rows[i].length, &ticket),
			rows[i].err);
		SAYS(g.p.side[1].relay, rows[i].says);
	}
	key = g.key;
	g.key ^= 1;
	assert_int_equal(revoke(&g, 0, 0, &ticket), -ENOENT);
	g.key = g.p.side[0].key; /* a region of another leg or no region */
	assert_int_equal(revoke(&g, 0, 0, &ticket), -ENOENT);
	g.key = g.p.side[1].key;
	assert_int_equal(revoke(&g, 0, 0, &ticket), -EPERM);
	SAYS(g.p.side[1].relay, "registered with PROOF");
	assert_int_equal(ticket, 77);
	assert_int_equal(revoking(&g, 0, 0, UINT64_MAX), 0);
	/* the failed calls revoked nothing */
	g.key = key;
	post(&g, SRDMA_DESC_WRITE, 0, REGION);
	pair_settle(&g.p);
	pair_expect(&g.p, 0, 1, SRDMA_REASON_NONE);
	assert_int_equal(
		srdma_relay_mr_dereg(g.p.side[1].relay, g.p.side[1].leg, key),
		0);
	assert_int_equal(revoke(&g, 0, 0, &ticket), -ENOENT);
	pair_close(&g.p);
}

static void test_revoked_ranges_of_region_are_limited(void **state)
{
	struct pair_region region = { .len = 200 * 64,
				      .access = ALL_PROOF,
				      .log2_block = 6,
				      .depth = 48 };
	struct guarded g;
	uint64_t ticket;

	(void)state;
	open_guarded(&g);
	g.key = pair_register(&g.p, 1, region);
	for (uint64_t i = 0; i < SRDMA_MAX_REVOKED; i++)
		assert_int_equal(revoke(&g, i * 128, 64, &ticket), 0);
	assert_int_equal(revoke(&g, 64, 64, &ticket), -ENOSPC);
	SAYS(g.p.side[1].relay, "64 revoked ranges; revoke the whole region");
	assert_int_equal(revoke(&g, 0, 0, &ticket), 0);
	assert_int_equal(revoke(&g, 64, 64, &ticket), 0);
	pair_close(&g.p);
}

/* --- validity of capabilities after a revocation -------------------------- */

static uint32_t outcome(struct guarded *g, uint8_t opcode, uint64_t at,
			uint32_t len)
{
	struct srdma_record r;

	post(g, opcode, at, len);
	pair_settle(&g->p);
	assert_int_equal(pair_record(&g->p, 0, &r), 1);
	if (r.vendor_err)
		connect_again(g);
	return r.vendor_err;
}

static void test_revoked_range_is_refused(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };
	struct guarded g;
	uint32_t old;
	uint64_t ticket;

	(void)state;
	open_guarded(&g);
	old = g.handle;
	assert_int_equal(revoke(&g, 4 * BLOCK, 2 * BLOCK, &ticket), 0);
	for (int i = 0; i < 2; i++) {
		g.handle = old;
		/* Blocks outside the range stay accessible. */
		assert_int_equal(outcome(&g, ops[i], 0, 4 * BLOCK), 0);
		assert_int_equal(outcome(&g, ops[i], 6 * BLOCK, 2 * BLOCK), 0);
		assert_int_not_equal(outcome(&g, ops[i], 4 * BLOCK, 1), 0);
		assert_int_not_equal(outcome(&g, ops[i], 6 * BLOCK - 1, 1), 0);
		/* A new capability for the range is valid. */
		delegate(&g, 4 * BLOCK, 2 * BLOCK);
		assert_int_equal(outcome(&g, ops[i], 4 * BLOCK, 2 * BLOCK), 0);
	}
	/*
	 * After revoking the whole region both are invalid, and a new one is
	 * valid.
	 */
	assert_int_equal(revoke(&g, 0, 0, &ticket), 0);
	assert_int_not_equal(outcome(&g, ops[0], 4 * BLOCK, 1), 0);
	g.handle = old;
	for (uint64_t i = 0; i < BLOCKS; i++)
		assert_int_not_equal(outcome(&g, ops[i % 2], i * BLOCK, 1), 0);
	delegate(&g, 0, REGION);
	assert_int_equal(outcome(&g, ops[0], 0, REGION), 0);
	assert_int_equal(outcome(&g, ops[1], 0, REGION), 0);
	pair_close(&g.p);
}

/*
 * A WRITE that reaches a revoked range: the bytes before the range are placed.
 */
/* review A40 */
static void test_write_into_revoked_range_places_bytes_before(void **state)
{
	struct guarded g;
	uint64_t ticket;

	(void)state;
	open_guarded(&g);
	assert_int_equal(revoke(&g, 4 * BLOCK, BLOCK, &ticket), 0);
	memset(g.p.side[0].memory, 0x5a, REGION);
	assert_int_not_equal(outcome(&g, SRDMA_DESC_WRITE, 0, REGION), 0);
	assert_int_equal(changed(&g.p, 0, 4 * BLOCK), 4 * BLOCK);
	assert_int_equal(changed(&g.p, 4 * BLOCK, 12 * BLOCK), 0);
	pair_close(&g.p);
}

/* --- DMA in progress ------------------------------------------------------ */

/*
 * A revocation waits for DMA that has begun in its range, not for later DMA or
 * other ranges.
 */
static void test_revocation_waits_for_begun_dma(void **state)
{
	struct guarded g;
	uint64_t ticket;

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		open_guarded(&g);
		memset(g.p.side[0].memory, 0x5a, REGION);
		g.p.host[1].dma_polls = 8;
		post(&g, SRDMA_DESC_WRITE, 2 * BLOCK, 2 * BLOCK);
		until_dmas(&g, 2);
		/* DMA is in blocks 2 and 3 only */
		assert_int_equal(revoke(&g, 0, 2 * BLOCK, &ticket), 0);
		assert_int_equal(revoke(&g, 4 * BLOCK, BLOCK, &ticket), 0);
		if (whole) {
			assert_int_equal(revoke(&g, 0, 0, &ticket),
					 -EINPROGRESS);
			assert_in_range(finish(&g, 0, 0, ticket), 1, 20);
		} else {
			assert_int_equal(revoke(&g, 3 * BLOCK, BLOCK, &ticket),
					 -EINPROGRESS);
			assert_in_range(finish(&g, 3 * BLOCK, BLOCK, ticket), 1,
					20);
		}
		/* the access was allowed and succeeds */
		assert_int_equal(changed(&g.p, 2 * BLOCK, 2 * BLOCK),
				 2 * BLOCK);
		pair_settle(&g.p);
		pair_expect(&g.p, 0, 1, SRDMA_REASON_NONE);
		pair_close(&g.p);
	}
}

/* A stream of later, allowed DMA does not delay a revocation. */
static void test_later_dma_does_not_delay_revocation(void **state)
{
	struct guarded g;
	uint64_t ticket;

	(void)state;
	open_guarded(&g);
	g.p.host[1].dma_polls = 6;
	post(&g, SRDMA_DESC_WRITE, 0, BLOCK);
	until_dmas(&g, 1);
	assert_int_equal(revoke(&g, 0, BLOCK, &ticket), -EINPROGRESS);
	delegate(&g, 0, BLOCK);
	for (int turn = 0; revoking(&g, 0, BLOCK, ticket); turn++) {
		assert_in_range(turn, 0, 20);
		post(&g, SRDMA_DESC_WRITE, 0, BLOCK);
		pair_run(&g.p, 1);
	}
	until_dmas(&g, 1); /* DMA of the new capability */
	assert_int_equal(revoking(&g, 0, BLOCK, ticket), 0);
	assert_int_equal(revoking(&g, 0, BLOCK, UINT64_MAX), 1);
	pair_settle(&g.p);
	assert_int_equal(verdict(&g.p), SRDMA_REASON_NONE);
	pair_close(&g.p);
}

/* DMA for the local host does not delay a revocation. */
static void test_local_dma_does_not_delay_revocation(void **state)
{
	struct srdma_desc d = { .opcode = SRDMA_DESC_WRITE,
				.id = 5,
				.length = BLOCK };
	const struct srdma_mr *mr;
	struct guarded g;
	uint64_t ticket;

	(void)state;
	open_guarded(&g);
	g.p.host[1].dma_polls = 8;
	d.local_addr = (uintptr_t)g.p.side[1].memory;
	d.local_key = g.key;
	d.remote_addr = (uintptr_t)g.p.side[0].memory;
	pair_post(&g.p, 1, d, NULL);
	mr = srdma_mr_find(&g.p.side[1].relay->env.mrs, g.key);
	for (int i = 0; !mr->dmas && i < 100; i++)
		pair_run(&g.p, 1);
	assert_int_equal(mr->dmas, 1);
	assert_int_equal(revoke(&g, 0, 0, &ticket), 0);
	pair_settle(&g.p);
	pair_expect(&g.p, 1, 5, SRDMA_REASON_NONE);
	pair_close(&g.p);
}

/* Verified WRITEs whose DMA has not begun are refused. */
static void test_revocation_refuses_accepted_writes(void **state)
{
	struct guarded g;
	uint64_t ticket;

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		open_guarded(&g);
		memset(g.p.side[0].memory, 0x5a, REGION);
		g.busy = 1;
		post(&g, SRDMA_DESC_WRITE, 0, 4 * BLOCK);
		pair_run(&g.p, 20);
		assert_int_equal(
			srdma_qp_core(qp_of(&g.p, 1))->inbound.list.count, 4);
		assert_int_equal(revoke(&g, whole ? 0 : 2 * BLOCK,
					whole ? 0 : BLOCK, &ticket),
				 0);
		g.busy = 0;
		pair_settle(&g.p);
		pair_expect(&g.p, 0, 1, SRDMA_REASON_PROOF_WRONG);
		assert_int_equal(verdict(&g.p), SRDMA_REASON_PROOF_WRONG);
		assert_int_equal(changed(&g.p, 0, 2 * BLOCK),
				 whole ? 0 : 2 * BLOCK);
		assert_int_equal(changed(&g.p, 2 * BLOCK, BLOCK), 0);
		assert_int_equal(
			srdma_qp_core(qp_of(&g.p, 1))->last.nak_at.offset,
			whole ? 0 : 2 * BLOCK);
		pair_close(&g.p);
	}
}

/*
 * An accepted READ returns no bytes that were not fetched before the
 * revocation.
 */
static void test_revocation_refuses_accepted_reads(void **state)
{
	struct guarded g;
	uint64_t ticket;

	(void)state;
	for (int whole = 0; whole < 2; whole++) {
		const uint8_t *got;

		open_guarded(&g);
		got = g.p.side[0].memory + LATER;
		memset(g.p.side[1].memory, 0x77, REGION);
		g.busy = 1;
		post(&g, SRDMA_DESC_READ, 0, 4 * BLOCK);
		pair_run(&g.p, 20);
		assert_int_equal(
			srdma_qp_responder(qp_of(&g.p, 1))->slots_count, 1);
		assert_int_equal(revoke(&g, whole ? 0 : 2 * BLOCK,
					whole ? 0 : BLOCK, &ticket),
				 0);
		g.busy = 0;
		pair_settle(&g.p);
		pair_expect(&g.p, 0, 1, SRDMA_REASON_PROOF_WRONG);
		for (uint32_t i = 0; i < 4 * BLOCK; i++)
			assert_int_equal(got[i],
					 !whole && i < 2 * BLOCK ? 0x77 : 0);
		assert_int_equal(
			srdma_relay_stats(g.p.side[1].relay)->dma_read_bytes,
			whole ? 0 : 3 * BLOCK); /* block 3 is not revoked */
		pair_close(&g.p);
	}
}

/* The key is invalid at once, although the region is still in use. */
static void deregister_under_way(struct guarded *g)
{
	const struct srdma_cap_params params = { .key = g->key,
						 .length = REGION,
						 .rights = SRDMA_MEMKEY_READ };
	struct srdma_relay *r = g->p.side[1].relay;
	struct srdma_leg *leg = g->p.side[1].leg;
	struct srdma_capability cap;
	uint64_t ticket;

	assert_int_equal(srdma_relay_mr_dereg(r, leg, g->key), -EINPROGRESS);
	assert_int_equal(srdma_relay_mr_capability(r, leg, &params, &cap),
			 -ENOENT);
	assert_int_equal(revoke(g, 0, 0, &ticket), -ENOENT);
}

/* A dead host or a deregistered region completes the revocation as well. */
static void test_dead_host_or_deregistration_completes_revocation(void **state)
{
	struct guarded g;
	uint64_t ticket;

	(void)state;
	for (int dereg = 0; dereg < 2; dereg++) {
		open_guarded(&g);
		g.p.host[1].dma_polls = 8;
		post(&g, SRDMA_DESC_WRITE, 0, BLOCK);
		until_dmas(&g, 1);
		assert_int_equal(revoke(&g, 0, 0, &ticket), -EINPROGRESS);
		if (dereg)
			deregister_under_way(&g);
		else
			srdma_port_mem_kill(g.p.side[1].conn);
		assert_int_equal(revoking(&g, 0, 0, ticket), 1);
		finish(&g, 0, 0, ticket);
		if (dereg)
			assert_int_equal(srdma_relay_mr_busy(g.p.side[1].relay,
							     g.p.side[1].leg,
							     g.key),
					 0);
		assert_int_equal(revoking(&g, 0, 0, ticket), 0);
		pair_close(&g.p);
	}
}

/* --- continuous writes ---------------------------------------------------- */

/* Posts WRITEs to random ranges, with different bytes each time. */
static void write_more(struct guarded *g, uint64_t *seed)
{
	const uint64_t at = random_below(seed, REGION);
	const uint32_t len = 1 + (uint32_t)random_below(seed, REGION - at);
	const struct srdma_qp *qp = qp_of(&g->p, 0);
	struct srdma_record r;

	memset(g->p.side[0].memory, (int)(1 + random_below(seed, 255)), len);
	while (pair_record(&g->p, 0, &r))
		;
	if (srdma_qp_requester(qp)->sq_tail - srdma_qp_requester(qp)->sq_head <
	    8)
		post(g, SRDMA_DESC_WRITE, at, len);
}

/*
 * No byte of the range changes after the revocation is complete. Returns 1 if
 * the revocation had to wait.
 */
static int race(uint64_t seed)
{
	static uint8_t before[REGION];
	struct guarded g;
	const uint64_t lo = random_below(&seed, BLOCKS);
	const uint64_t n = 1 + random_below(&seed, BLOCKS - lo);
	const int whole = !random_below(&seed, 3);
	const uint64_t offset = whole ? 0 : lo * BLOCK;
	const uint64_t length = whole ? 0 : n * BLOCK;
	uint64_t ticket;
	uint8_t *memory;
	int r;

	open_guarded(&g);
	g.p.host[1].dma_polls = (uint32_t)random_below(&seed, 6);
	for (uint64_t turns = 5 + random_below(&seed, 40); turns; turns--) {
		write_more(&g, &seed);
		g.busy = !random_below(&seed, 3);
		pair_run(&g.p, 1);
	}
	assert_int_equal(verdict(&g.p), SRDMA_REASON_NONE);
	r = revoke(&g, offset, length, &ticket);
	assert_true(!r || r == -EINPROGRESS);
	while (r && revoking(&g, offset, length, ticket)) {
		write_more(&g, &seed);
		g.busy = !random_below(&seed, 3);
		pair_run(&g.p, 1);
	}
	memory = g.p.side[1].memory + lo * BLOCK;
	memcpy(before, memory, n * BLOCK);
	g.busy = 0;
	for (int turns = 0; turns < 60; turns++) {
		if (pair_state(&g.p, 0, 0, NULL) == SRDMA_QP_RTS)
			write_more(&g, &seed);
		pair_run(&g.p, 1);
	}
	assert_memory_equal(memory, before, n * BLOCK);
	pair_close(&g.p);
	return r != 0;
}

/* RFC 5042 R6.2.2-2 */
static void test_no_byte_changes_after_revocation(void **state)
{
	int waited = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 400; seed++)
		waited += race(seed);
	assert_in_range(waited, 100, 300);
}

/* --- many generations ----------------------------------------------------- */

/* how a capability ends */
enum end { REVOKED, RANGE_REVOKED, REGISTERED_AGAIN, ENDS };

static void end_capability(struct guarded *g, enum end end)
{
	struct side *s = &g->p.side[1];
	uint64_t ticket;

	if (end == REVOKED) {
		assert_int_equal(revoke(g, 0, 0, &ticket), 0);
	} else if (end == RANGE_REVOKED) {
		assert_int_equal(revoke(g, 0, 2 * BLOCK, &ticket), 0);
	} else {
		assert_int_equal(srdma_relay_mr_dereg(s->relay, s->leg, g->key),
				 0);
		g->key = add_region(&g->p,
				    (struct place){ .access = ALL_PROOF });
	}
}

/*
 * 10,000 times: delegate, access, revoke, and access again. The second access
 * uses the current rkey of the buffer, so that only the keys can refuse it.
 */
/* RFC 5042 A6.3.3 */
static void test_ended_capability_is_never_accepted(void **state)
{
	static struct srdma_capability cap;
	unsigned accepted[2] = { 0 };
	struct srdma_packet packet;
	struct guarded g;
	int stands;

	(void)state;
	open_guarded(&g);
	for (unsigned i = 0; i < 10000; i++) {
		const struct srdma_cap_params params = {
			.key = g.key,
			.offset = i % 2 * BLOCK,
			.length = BLOCK,
			.rights = SRDMA_MEMKEY_WRITE,
		};

		take(&g.p, g.p.side[1].leg, &params, &cap);
		for (int after = 0; after < 2; after++) {
			packet = (struct srdma_packet){
				.opcode = SRDMA_OP_WRITE_ONLY,
				.request_id = srdma_qp_responder(qp_of(&g.p, 1))
						      ->accepted.id,
				.va = cap.tree.start + cap.scope.lo,
				.rkey = g.key,
				.dma_len = BLOCK,
				.payload_len = BLOCK,
			};
			prove_with(&packet, &cap, SRDMA_MEMKEY_WRITE);
			memset(g.p.side[1].memory, 0, 2 * BLOCK);
			send_packet(&g.p, &packet);
			/*
			 * the packets bypass the client's queue, so query the
			 * server
			 */
			stands = pair_state(&g.p, 1, 0, NULL) == SRDMA_QP_RTS;
			accepted[after] +=
				stands || changed(&g.p, 0, 2 * BLOCK);
			if (!after)
				end_capability(&g, i % ENDS);
		}
		connect_again(&g);
	}
	assert_int_equal(accepted[0], 10000);
	assert_int_equal(accepted[1], 0);
	pair_close(&g.p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_revoked_ranges_of_region_are_limited),
		cmocka_unit_test(test_revoked_range_is_refused),
		cmocka_unit_test(
			test_write_into_revoked_range_places_bytes_before),
		cmocka_unit_test(test_revocation_waits_for_begun_dma),
		cmocka_unit_test(test_later_dma_does_not_delay_revocation),
		cmocka_unit_test(test_local_dma_does_not_delay_revocation),
		cmocka_unit_test(test_revocation_refuses_accepted_writes),
		cmocka_unit_test(test_revocation_refuses_accepted_reads),
		cmocka_unit_test(
			test_dead_host_or_deregistration_completes_revocation),
		cmocka_unit_test(test_no_byte_changes_after_revocation),
		cmocka_unit_test(test_ended_capability_is_never_accepted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
