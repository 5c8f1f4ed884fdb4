/*
 * Memory proofs of packets that wait in the reorder buffer (docs/protocol.md
 * 5.2). A proof is checked when its packet is executed, so that revocation and
 * expiry in between take effect.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/proving.h"

enum { CLOCK = 1000, EXPIRY = 2000, ALL = SRDMA_ACCESS_ALL };

/* Events while the packets are kept. */
enum event { NOTHING, REVOKE_ALL, REVOKE, REVOKE_OTHER, DEREGISTER, EXPIRE };

static const struct srdma_revoke_params ranges[] = {
	[REVOKE] = { .offset = BLOCK, .length = BLOCK },
	[REVOKE_OTHER] = { .offset = 8 * BLOCK, .length = BLOCK },
};

static void happen(struct pair *p, uint32_t key, enum event event)
{
	struct side *s = &p->side[1];
	struct srdma_revoke_params range = { 0 };
	uint64_t ticket;

	if (event == DEREGISTER)
		assert_int_equal(srdma_relay_mr_dereg(s->relay, s->leg, key),
				 0);
	if (event == EXPIRE)
		srdma_relay_clock(s->relay, EXPIRY);
	if (event == REVOKE || event == REVOKE_OTHER)
		range = ranges[event];
	range.key = key;
	if (event >= REVOKE_ALL && event <= REVOKE_OTHER)
		assert_int_equal(srdma_relay_mr_revoke(s->relay, s->leg, &range,
						       &ticket),
				 0);
}

/* Sends a proven WRITE of, or READ_REQUEST for, block id. */
static void send_block(struct pair *p, const struct srdma_capability *cap,
		       int read, uint64_t id, int forged)
{
	struct srdma_packet packet = {
		.opcode = read ? SRDMA_OP_READ_REQUEST : SRDMA_OP_WRITE_ONLY,
		.request_id = id,
		.va = (uintptr_t)p->side[1].memory + id * BLOCK,
		.rkey = cap->rkey,
		.dma_len = BLOCK,
		.payload_len = read ? 0 : BLOCK,
	};

	prove_with(&packet, cap, read ? SRDMA_MEMKEY_READ : SRDMA_MEMKEY_WRITE);
	if (forged)
		packet.access_key = NULL; /* all zeros */
	send_packet(p, &packet);
}

static void try(int read, enum event event, int forged, uint32_t reason)
{
	const struct srdma_stats *stats;
	struct srdma_capability cap;
	struct srdma_cap_params params = {
		.length = REGION,
		.rights = SRDMA_MEMKEY_READ | SRDMA_MEMKEY_WRITE,
		.bearer.expiry = EXPIRY,
	};
	struct srdma_packet first = { .opcode = SRDMA_OP_WRITE_ONLY };
	uint32_t why;
	struct pair p;

	pair_defaults(&p);
	p.mode = SRDMA_MODE_MEM;
	pair_open(&p);
	pair_connect(&p, 0);
	stats = srdma_relay_stats(p.side[1].relay);
	srdma_relay_clock(p.side[1].relay, CLOCK);
	params.key = add_region(
		&p, (struct place){ .access = ALL | SRDMA_ACCESS_PROOF });
	take(&p, p.side[1].leg, &params, &cap);
	for (uint64_t id = 3; id > 0; id--)
		send_block(&p, &cap, read, id, forged);
	assert_int_equal(stats->kept, 3);
	assert_int_equal(stats->proofs_verified, 0);
	happen(&p, params.key, event);
	send_packet(&p, &first);
	assert_int_equal(pair_state(&p, 1, 0, &why),
			 reason ? SRDMA_QP_ERR : SRDMA_QP_RTS);
	assert_int_equal(why, reason);
	assert_int_equal(stats->proofs_verified, reason ? 0 : 3);
	assert_int_equal(changed(&p, 0, REGION),
			 read || reason ? 0 : 3 * BLOCK);
	assert_int_equal(stats->dma_read_bytes,
			 read && !reason ? 3 * BLOCK : 0);
	srdma_capability_wipe(&cap);
	pair_close(&p);
}

/* RFC 5042 R6.2.1-2 */
static void test_kept_packets_are_checked_when_executed(void **state)
{
	static const struct {
		enum event event;
		int forged;
		uint32_t reason;
	} rows[] = {
		{ NOTHING, 0, SRDMA_REASON_NONE },
		{ NOTHING, 1, SRDMA_REASON_PROOF_WRONG },
		{ REVOKE_ALL, 0, SRDMA_REASON_PROOF_WRONG },
		{ REVOKE, 0, SRDMA_REASON_PROOF_WRONG },
		{ REVOKE_OTHER, 0, SRDMA_REASON_NONE },
		{ DEREGISTER, 0, SRDMA_REASON_BAD_RKEY },
		{ EXPIRE, 0, SRDMA_REASON_PROOF_EXPIRED },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++)
		try(i % 2, rows[i / 2].event, rows[i / 2].forged,
		    rows[i / 2].reason);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kept_packets_are_checked_when_executed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
