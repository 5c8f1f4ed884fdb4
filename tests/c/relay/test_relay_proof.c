/*
 * Memory proofs at the responder (protocol.md 6.1): refusals and their reasons.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/failing.h"

#include "support/proving.h"

enum {
	CLOCK = 1000,
	DEPTH = 4, /* of the leaf nodes of a region */
	ALL_PROOF = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
};

#define SAYS(relay, text) assert_non_null(strstr(srdma_relay_why(relay), text))

static void open_pair(struct pair *p, uint8_t mode)
{
	pair_defaults(p);
	p->mode = mode;
	pair_open(p);
	pair_connect(p, 0);
	srdma_relay_clock(p->side[1].relay, CLOCK);
}

static struct srdma_packet write_packet(const struct pair *p, uint32_t key,
					uint64_t at, uint32_t len)
{
	return (struct srdma_packet){
		.opcode = SRDMA_OP_WRITE_ONLY,
		.va = (uintptr_t)p->side[1].memory + at,
		.rkey = key,
		.dma_len = len,
		.payload_len = len,
	};
}

static struct srdma_packet read_packet(const struct pair *p, uint32_t key,
				       uint64_t at, uint32_t len)
{
	return (struct srdma_packet){
		.opcode = SRDMA_OP_READ_REQUEST,
		.va = (uintptr_t)p->side[1].memory + at,
		.rkey = key,
		.dma_len = len,
	};
}

/* Bytes that READs took from the server's memory. */
static uint64_t answered(const struct pair *p)
{
	return srdma_relay_stats(p->side[1].relay)->dma_read_bytes;
}

/* --- table "At the target" of protocol.md 6.1 ----------------------------- */

enum shown {
	NOTHING,
	GOOD,
	GARBAGE,  /* zeros instead of a proof */
	HIGHER,	  /* a depth other than that of the key */
	TOO_DEEP, /* a depth below the leaf nodes */
	OTHER_NODE,
	OTHER_RIGHT,
	WRONG_EXPIRY,
};

/*
 * Adds a proof for the node that holds the packet's first byte, altered as
 * `shown` says.
 */
static void show(struct pair *p, struct srdma_packet *packet, enum shown shown)
{
	static struct srdma_capability cap;
	const uint64_t at = packet->va - (uintptr_t)p->side[1].memory;
	struct srdma_cap_params params = {
		.key = packet->rkey,
		.offset = at / BLOCK * BLOCK,
		.length = BLOCK,
		.rights = packet->opcode == SRDMA_OP_READ_REQUEST
				  ? SRDMA_MEMKEY_READ
				  : SRDMA_MEMKEY_WRITE,
	};

	if (shown == OTHER_NODE)
		params.offset ^= BLOCK;
	if (shown == OTHER_RIGHT)
		params.rights ^= SRDMA_MEMKEY_READ | SRDMA_MEMKEY_WRITE;
	packet->flags |= SRDMA_STH_PROOF;
	packet->depth = DEPTH;
	if (shown == GARBAGE)
		return;
	take(p, p->side[1].leg, &params, &cap);
	assert_int_equal(cap.nodes, 1);
	assert_int_equal(cap.node[0].depth, DEPTH);
	packet->access_key = cap.key[0];
	packet->depth -= shown == HIGHER;
	packet->depth += shown == TOO_DEEP;
	packet->expiry = shown == WRONG_EXPIRY ? CLOCK + 1 : 0;
}

static uint32_t attempt(uint32_t access, int read, uint64_t at, uint32_t len,
			enum shown shown)
{
	struct srdma_packet packet;
	struct pair p;
	uint32_t key, why;

	open_pair(&p, SRDMA_MODE_MEM);
	key = add_region(&p, (struct place){ .access = access });
	packet = read ? read_packet(&p, key, at, len)
		      : write_packet(&p, key, at, len);
	if (shown != NOTHING)
		show(&p, &packet, shown);
	send_packet(&p, &packet);
	why = verdict(&p);
	assert_int_equal(changed(&p, 0, REGION), why || read ? 0 : len);
	assert_int_equal(answered(&p), read && !why ? len : 0);
	assert_int_equal(srdma_relay_stats(p.side[1].relay)->proofs_verified,
			 !why && len && access & SRDMA_ACCESS_PROOF ? 1 : 0);
	pair_close(&p);
	return why;
}

/* review A7 */
static void test_proof_refusal_table(void **state)
{
	enum {
		REQUIRED = SRDMA_REASON_PROOF_REQUIRED,
		UNSUPPORTED = SRDMA_REASON_PROOF_UNSUPPORTED,
		WRONG = SRDMA_REASON_PROOF_WRONG,
		RANGE = SRDMA_REASON_PROOF_RANGE,
		BOUNDS = SRDMA_REASON_OUT_OF_BOUNDS,
		RIGHT = SRDMA_REASON_NO_RIGHT,
		READS = SRDMA_ACCESS_REMOTE_READ | SRDMA_ACCESS_PROOF,
		WRITES = SRDMA_ACCESS_REMOTE_WRITE | SRDMA_ACCESS_LOCAL_WRITE |
			 SRDMA_ACCESS_PROOF,
	};
	static const struct {
		uint32_t access, at, len;
		enum shown shown;
		uint32_t reason[2]; /* for a WRITE; for a READ */
	} rows[] = {
		{ ALL_PROOF, 0, BLOCK, GOOD, { 0, 0 } },
		{ ALL_PROOF, 3 * BLOCK + 5, 1, GOOD, { 0, 0 } },
		{ ALL_PROOF, REGION - 1, 1, GOOD, { 0, 0 } },
		{ ALL_PROOF, 0, BLOCK, NOTHING, { REQUIRED, REQUIRED } },
		{ ALL_PROOF, 0, BLOCK, GARBAGE, { WRONG, WRONG } },
		{ ALL_PROOF, 0, BLOCK, HIGHER, { WRONG, WRONG } },
		{ ALL_PROOF, 0, BLOCK, TOO_DEEP, { RANGE, RANGE } },
		{ ALL_PROOF, 0, BLOCK, OTHER_NODE, { WRONG, WRONG } },
		{ ALL_PROOF, 0, BLOCK, OTHER_RIGHT, { WRONG, WRONG } },
		{ ALL_PROOF, 0, BLOCK, WRONG_EXPIRY, { WRONG, WRONG } },
		{ ALL_PROOF, 0, BLOCK + 1, GOOD, { RANGE, RANGE } },
		{ ALL_PROOF, 9, BLOCK, GOOD, { RANGE, RANGE } },
		/* A proof to a region without PROOF is refused, not ignored. */
		{ SRDMA_ACCESS_ALL, 0, BLOCK, NOTHING, { 0, 0 } },
		{ SRDMA_ACCESS_ALL,
		  0,
		  BLOCK,
		  GARBAGE,
		  { UNSUPPORTED, UNSUPPORTED } },
		/* Bounds and rights are checked first. */
		{ ALL_PROOF, REGION - 1, 2, GOOD, { BOUNDS, BOUNDS } },
		{ ALL_PROOF, REGION - 1, 2, NOTHING, { BOUNDS, BOUNDS } },
		{ ALL_PROOF, REGION - 1, 2, GARBAGE, { BOUNDS, BOUNDS } },
		{ READS, 0, BLOCK, NOTHING, { RIGHT, REQUIRED } },
		{ READS, 0, BLOCK, GARBAGE, { RIGHT, WRONG } },
		{ WRITES, 0, BLOCK, NOTHING, { REQUIRED, RIGHT } },
		{ WRITES, 0, BLOCK, GARBAGE, { WRONG, RIGHT } },
		/*
		 * An access of 0 bytes needs no proof, and its proof is not
		 * checked.
		 */
		{ ALL_PROOF, 0, 0, NOTHING, { 0, 0 } },
		{ ALL_PROOF, 0, 0, GARBAGE, { 0, 0 } },
		{ SRDMA_ACCESS_ALL, 0, 0, GARBAGE, { 0, 0 } },
	};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++)
		assert_int_equal(attempt(rows[i / 2].access, i % 2,
					 rows[i / 2].at, rows[i / 2].len,
					 rows[i / 2].shown),
				 rows[i / 2].reason[i % 2]);
}

/*
 * In a key mode without MEM every proof is refused, and so is every access that
 * needs one.
 */
static void test_modes_without_mem_refuse_proofs(void **state)
{
	static const struct {
		uint8_t mode;
		uint32_t access;
		int proof;
		uint32_t reason;
	} rows[] = {
		{ SRDMA_MODE_BASIC, ALL_PROOF, 0, SRDMA_REASON_PROOF_REQUIRED },
		{ SRDMA_MODE_BASIC, ALL_PROOF, 1,
		  SRDMA_REASON_PROOF_UNSUPPORTED },
		{ SRDMA_MODE_BASIC, SRDMA_ACCESS_ALL, 1,
		  SRDMA_REASON_PROOF_UNSUPPORTED },
		{ SRDMA_MODE_PD, ALL_PROOF, 0, SRDMA_REASON_PROOF_REQUIRED },
		{ SRDMA_MODE_PD, ALL_PROOF, 1, SRDMA_REASON_PROOF_UNSUPPORTED },
		{ SRDMA_MODE_PD, SRDMA_ACCESS_ALL, 1,
		  SRDMA_REASON_PROOF_UNSUPPORTED },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_packet packet;
		struct pair p;
		uint32_t key;

		open_pair(&p, rows[i].mode);
		key = add_region(&p,
				 (struct place){ .access = rows[i].access });
		packet = write_packet(&p, key, 0, BLOCK);
		packet.flags = rows[i].proof ? SRDMA_STH_PROOF : 0;
		packet.depth = rows[i].proof ? DEPTH : 0;
		send_packet(&p, &packet);
		assert_int_equal(verdict(&p), rows[i].reason);
		assert_int_equal(changed(&p, 0, REGION), 0);
		pair_close(&p);
	}
}

/* --- right x operation x holder x expiry x QP x PD ------------------------ */

enum { PEER, ANYBODY, ANOTHER, HOLDERS };
enum { NEVER, LATER, PAST, EXPIRIES };
enum { OWN, OPEN, OTHER, SCOPES };

struct trial {
	unsigned rights, op, holder, said, expiry, scope, pd;
};

static const uint32_t expiries[EXPIRIES] = { 0, CLOCK + 1, CLOCK };
/* Operations: opcode, right that it needs, bytes written and read. */
static const struct {
	uint8_t opcode, right;
	uint32_t written, read;
} wants[] = {
	{ SRDMA_OP_WRITE_ONLY, SRDMA_MEMKEY_WRITE, BLOCK, 0 },
	{ SRDMA_OP_READ_REQUEST, SRDMA_MEMKEY_READ, 0, BLOCK },
	{ SRDMA_OP_WRITE_ONLY_IMM, SRDMA_MEMKEY_WRITE, BLOCK, 0 },
	{ SRDMA_OP_FETCH_ADD, SRDMA_MEMKEY_ATOMIC, SRDMA_ATOMIC_LEN, 0 },
};
static const uint8_t granted[] = { 1, 2, 3, 4, 7 };

static uint32_t expected(const struct trial *t)
{
	const unsigned right = wants[t->op].right;
	const int h = t->holder != ANYBODY;

	if (t->pd == OTHER)
		return SRDMA_REASON_WRONG_PD;
	if (t->scope == OTHER)
		return SRDMA_REASON_QP_SCOPE;
	if (t->expiry == PAST)
		return SRDMA_REASON_PROOF_EXPIRED;
	if (!(t->rights & right) || t->holder == ANOTHER ||
	    (unsigned)h != t->said)
		return SRDMA_REASON_PROOF_WRONG;
	return SRDMA_REASON_NONE;
}

/*
 * Uses the key of the needed right or, without it, of the lowest granted right.
 */
static void use(struct pair *p, struct srdma_leg *leg, const struct trial *t,
		struct srdma_packet *packet)
{
	static struct srdma_capability cap;
	struct srdma_cap_params params = { .key = packet->rkey,
					   .length = BLOCK,
					   .rights = (uint8_t)t->rights };
	uint8_t right = wants[t->op].right;

	if (t->holder != ANYBODY)
		pair_holder(t->holder == ANOTHER, params.bearer.holder);
	params.bearer.expiry = expiries[t->expiry];
	take(p, leg, &params, &cap);
	if (!(t->rights & right))
		right = (uint8_t)(t->rights & -t->rights);
	prove_with(packet, &cap, right);
	packet->flags &= (uint8_t)~SRDMA_STH_HOLDER;
	packet->flags |= t->said ? SRDMA_STH_HOLDER : 0;
}

static void try(struct pair *p, const struct trial *t)
{
	struct srdma_leg_params lp = { .ring = 64, .fds = { -1, -1, -1 } };
	struct srdma_leg_answer answer;
	struct place place = { .leg = p->side[1].leg, .access = ALL_PROOF };
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV,
				   .qpn = p->side[1].qp[0].qpn,
				   .id = 1 };
	struct srdma_packet packet;
	uint64_t before = answered(p);
	uint32_t key, why;

	if (t->pd == OTHER)
		assert_int_equal(srdma_relay_leg_open(p->side[1].relay, &lp,
						      &place.leg, &answer),
				 0);
	if (t->scope != OPEN)
		place.scope_qpn = p->side[1].qp[0].qpn ^ (t->scope == OTHER);
	key = add_region(p, place);
	packet = write_packet(p, key, 0, BLOCK);
	packet.opcode = wants[t->op].opcode;
	memset(&packet.swap_add, 0x5a, sizeof(packet.swap_add));
	if (!(srdma_wire_traits(packet.opcode) & SRDMA_T_PAYLOAD))
		packet.payload_len = 0;
	packet.request_id = srdma_qp_responder(qp_of(p, 1))->accepted.id;
	use(p, place.leg, t, &packet);
	pair_post(p, 1, recv, NULL);
	memset(p->side[1].memory, 0, BLOCK);
	send_packet(p, &packet);
	why = verdict(p);
	assert_int_equal(why, expected(t));
	assert_int_equal(changed(p, 0, BLOCK), why ? 0 : wants[t->op].written);
	assert_int_equal(answered(p) - before, why ? 0 : wants[t->op].read);
}

static void test_right_operation_holder_expiry_scope_pd(void **state)
{
	unsigned accepted = 0, trials = 0;

	(void)state;
	for (unsigned i = 0; i < 5 * 4 * HOLDERS * 2 * EXPIRIES * SCOPES * 2;
	     i++) {
		unsigned n = i;
		struct trial t;
		struct pair p;

		t.rights = granted[n % 5];
		t.op = (n /= 5) % 4;
		t.holder = (n /= 4) % HOLDERS;
		t.said = (n /= HOLDERS) % 2;
		t.expiry = (n /= 2) % EXPIRIES;
		t.scope = (n /= EXPIRIES) % SCOPES;
		t.pd = n / SCOPES ? OTHER : OWN;
		open_pair(&p, SRDMA_MODE_MEM);
		try(&p, &t);
		pair_close(&p);
		accepted += !expected(&t);
		trials++;
	}
	assert_int_equal(trials, 2160);
	/*
	 * 88 combinations are permitted: 11 pairs of right and operation, 2
	 * holders, 2 expiries, 2 scopes, 1 PD.
	 */
	assert_int_equal(accepted, 88);
}

/* --- multi-packet messages ------------------------------------------------ */

/* Packet i of a WRITE of three blocks, starting at block 1. */
static struct srdma_packet part_of_write(const struct pair *p, uint32_t key,
					 unsigned i)
{
	static const uint8_t ops[] = { SRDMA_OP_WRITE_FIRST,
				       SRDMA_OP_WRITE_MIDDLE,
				       SRDMA_OP_WRITE_LAST };
	struct srdma_packet packet = write_packet(p, key, BLOCK, 3 * BLOCK);

	packet.opcode = ops[i];
	packet.offset = i * BLOCK;
	packet.payload_len = BLOCK;
	return packet;
}

/*
 * Every packet needs a proof of its own bytes: the proof of packet `bad` is
 * wrong.
 */
static void test_each_packet_of_write_needs_proof(void **state)
{
	static struct srdma_capability cap;

	(void)state;
	for (unsigned bad = 0; bad < 4; bad++) {
		struct srdma_cap_params params = { .length = REGION,
						   .rights =
							   SRDMA_MEMKEY_WRITE };
		struct srdma_packet packet;
		struct pair p;
		uint32_t key;

		open_pair(&p, SRDMA_MODE_MEM);
		key = add_region(&p, (struct place){ .access = ALL_PROOF });
		params.key = key;
		take(&p, p.side[1].leg, &params, &cap);
		/* the root: one key for the whole region */
		assert_int_equal(cap.nodes, 1);
		for (unsigned i = 0; i < 3 && i <= bad; i++) {
			packet = part_of_write(&p, key, i);
			prove_with(&packet, &cap, SRDMA_MEMKEY_WRITE);
			if (i == bad)
				packet.depth = 1; /* the key has depth 0 */
			send_packet(&p, &packet);
		}
		assert_int_equal(verdict(&p),
				 bad < 3 ? SRDMA_REASON_PROOF_WRONG : 0);
		/* earlier packets are placed, packet `bad` is not */
		assert_int_equal(changed(&p, 0, REGION),
				 (bad < 3 ? bad : 3) * BLOCK);
		assert_int_equal(changed(&p, BLOCK, 3 * BLOCK),
				 changed(&p, 0, REGION));
		if (bad < 3) {
			const struct srdma_qp *qp = qp_of(&p, 1);

			assert_int_equal(srdma_qp_core(qp)->last.nak_at.id, 0);
			assert_int_equal(srdma_qp_core(qp)->last.nak_at.offset,
					 bad * BLOCK);
		}
		pair_close(&p);
	}
}

/* A proof is valid for one packet only, not for others of its message. */
static void test_proof_of_other_packet_is_refused(void **state)
{
	static struct srdma_capability cap;
	struct srdma_cap_params params = { .length = REGION,
					   .rights = SRDMA_MEMKEY_WRITE };
	struct srdma_packet first, packet;
	struct pair p;
	uint32_t key;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	key = add_region(&p, (struct place){ .access = ALL_PROOF });
	params.key = key;
	take(&p, p.side[1].leg, &params, &cap);
	first = part_of_write(&p, key, 0);
	prove_with(&first, &cap, SRDMA_MEMKEY_WRITE);
	send_packet(&p, &first);
	packet = part_of_write(&p, key, 1);
	prove_with(&packet, &cap, SRDMA_MEMKEY_WRITE);
	packet.access_key = NULL;
	memcpy(packet.proof, first.proof, sizeof(packet.proof));
	send_packet(&p, &packet);
	assert_int_equal(verdict(&p), SRDMA_REASON_PROOF_WRONG);
	assert_int_equal(changed(&p, 0, REGION), BLOCK);
	pair_close(&p);
}

/*
 * Replays a proof, with a payload of the attacker's choice, on a new QP that
 * has the QPN, packet number and request id of a former one. The attacker is a
 * peer that chooses its own numbers and never had the key of the proof.
 * lives_between: by how much the generation increases from the former QP to the
 * new one. Returns 1 if the proof is accepted.
 */
static int replay(uint8_t lives_between)
{
	static struct srdma_capability cap;
	struct srdma_cap_params params = { .length = BLOCK,
					   .rights = SRDMA_MEMKEY_WRITE };
	struct srdma_packet seen, again;
	struct pair p;
	uint64_t seeds[2];
	uint32_t why;

	pair_defaults(&p);
	p.mode = SRDMA_MODE_MEM;
	pair_open(&p);
	params.key = add_region(&p, (struct place){ .access = ALL_PROOF });
	take(&p, p.side[1].leg, &params, &cap);
	for (int i = 0; i < 2; i++)
		seeds[i] = p.side[i].seed;
	pair_connect(&p, 0);
	seen = write_packet(&p, params.key, 0, BLOCK);
	again = seen;
	prove_with(&seen, &cap, SRDMA_MEMKEY_WRITE);
	send_packet(&p, &seen);
	assert_int_equal(changed(&p, 0, BLOCK), BLOCK);
	pair_destroy_qp(&p, 0);
	for (int i = 0; i < 2; i++)
		p.side[i].seed = seeds[i];
	p.life += lives_between;
	pair_connect(&p, 0);
	memset(p.side[1].memory, 0, BLOCK);
	again.flags = seen.flags;
	again.depth = seen.depth;
	memcpy(again.proof, seen.proof, sizeof(again.proof));
	send_packet(&p, &again);
	assert_int_equal(again.qpn, seen.qpn);
	assert_int_equal(again.pn, seen.pn);
	assert_int_equal(again.request_id, seen.request_id);
	why = verdict(&p);
	assert_int_equal(changed(&p, 0, BLOCK), why ? 0 : BLOCK);
	pair_close(&p);
	if (why)
		assert_int_equal(why, SRDMA_REASON_PROOF_WRONG);
	return !why;
}

static void test_proof_of_other_generation_is_refused(void **state)
{
	(void)state;
	assert_true(replay(0)); /* same generation: accepted */
	assert_false(replay(1));
}

/*
 * The whole message is checked against the region at its FIRST packet, even if
 * that packet has a valid proof.
 */
static void test_message_beyond_region_is_refused_at_first(void **state)
{
	struct srdma_packet packet;
	struct pair p;
	uint32_t key;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	key = add_region(&p, (struct place){ .access = ALL_PROOF });
	packet = part_of_write(&p, key, 0);
	packet.dma_len = REGION;
	show(&p, &packet, GOOD);
	send_packet(&p, &packet);
	assert_int_equal(verdict(&p), SRDMA_REASON_OUT_OF_BOUNDS);
	assert_int_equal(changed(&p, 0, REGION), 0);
	pair_close(&p);
}

static void test_each_chunk_of_read_needs_proof(void **state)
{
	static struct srdma_capability cap;

	(void)state;
	for (unsigned bad = 0; bad < 4; bad++) {
		struct srdma_cap_params params = { .length = REGION,
						   .rights =
							   SRDMA_MEMKEY_READ };
		struct srdma_packet packet;
		struct pair p;
		uint32_t key;

		open_pair(&p, SRDMA_MODE_MEM);
		key = add_region(&p, (struct place){ .access = ALL_PROOF });
		params.key = key;
		take(&p, p.side[1].leg, &params, &cap);
		for (unsigned i = 0; i < 3 && i <= bad; i++) {
			packet = read_packet(&p, key, BLOCK, BLOCK);
			packet.offset = i * BLOCK;
			prove_with(&packet, &cap, SRDMA_MEMKEY_READ);
			if (i == bad)
				packet.flags &= (uint8_t)~SRDMA_STH_PROOF;
			send_packet(&p, &packet);
		}
		assert_int_equal(verdict(&p),
				 bad < 3 ? SRDMA_REASON_PROOF_REQUIRED : 0);
		assert_int_equal(answered(&p), (bad < 3 ? bad : 3) * BLOCK);
		pair_close(&p);
	}
}

/* A READ that is repeated after a revocation is not answered. */
static void test_repeated_read_is_proved_again(void **state)
{
	struct srdma_cap_params params = { .length = REGION,
					   .rights = SRDMA_MEMKEY_READ };
	static struct srdma_capability cap;
	struct srdma_packet packet;
	uint64_t ticket;
	struct pair p;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	params.key = add_region(&p, (struct place){ .access = ALL_PROOF });
	take(&p, p.side[1].leg, &params, &cap);
	packet = read_packet(&p, params.key, BLOCK, BLOCK);
	prove_with(&packet, &cap, SRDMA_MEMKEY_READ);
	send_packet(&p, &packet);
	assert_int_equal(answered(&p), BLOCK);
	send_packet(&p, &packet);
	assert_int_equal(answered(&p), 2 * BLOCK);
	assert_int_equal(srdma_relay_mr_revoke(p.side[1].relay, p.side[1].leg,
					       &(struct srdma_revoke_params){
						       .key = params.key },
					       &ticket),
			 0);
	send_packet(&p, &packet);
	assert_int_equal(answered(&p), 2 * BLOCK);
	assert_int_equal(verdict(&p), SRDMA_REASON_NONE);
	pair_close(&p);
}

/* --- time of the access check --------------------------------------------- */

/*
 * A duplicate is acknowledged whatever its proof, and an early packet is kept
 * unchecked.
 */
static void test_proof_is_checked_at_execution_only(void **state)
{
	const struct srdma_stats *stats;
	struct srdma_packet packet;
	struct pair p;
	uint32_t key;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	stats = srdma_relay_stats(p.side[1].relay);
	key = add_region(&p, (struct place){ .access = ALL_PROOF });
	packet = write_packet(&p, key, 0, BLOCK);
	show(&p, &packet, GOOD);
	send_packet(&p, &packet);
	assert_int_equal(stats->proofs_verified, 1);
	memset(p.side[1].memory, 0, BLOCK);
	for (int good = 0; good < 2; good++) {
		uint64_t acks = stats->acks_sent;

		packet = write_packet(&p, key, 0, BLOCK);
		show(&p, &packet, good ? GOOD : GARBAGE);
		send_packet(&p, &packet);
		assert_int_equal(stats->acks_sent, acks + 1);
	}
	assert_int_equal(stats->duplicates, 2);
	packet = write_packet(&p, key, 0, BLOCK);
	packet.request_id = 2;
	show(&p, &packet, GARBAGE);
	send_packet(&p, &packet);
	assert_int_equal(stats->kept, 1);
	assert_int_equal(verdict(&p), SRDMA_REASON_NONE);
	assert_int_equal(stats->proofs_verified, 1);
	assert_int_equal(changed(&p, 0, REGION), 0);
	pair_close(&p);
}

/* A WRITE with immediate whose proof is wrong consumes no RECV. */
static void test_refused_write_imm_consumes_no_recv(void **state)
{
	struct srdma_desc recv = { .opcode = SRDMA_DESC_RECV, .id = 9 };
	struct srdma_packet packet;
	struct srdma_record r;
	struct pair p;
	uint32_t key;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	key = add_region(&p, (struct place){ .access = ALL_PROOF });
	recv.qpn = p.side[1].qp[0].qpn;
	pair_post(&p, 1, recv, NULL);
	packet = write_packet(&p, key, 0, BLOCK);
	packet.opcode = SRDMA_OP_WRITE_ONLY_IMM;
	show(&p, &packet, GARBAGE);
	send_packet(&p, &packet);
	assert_int_equal(verdict(&p), SRDMA_REASON_PROOF_WRONG);
	assert_int_equal(pair_record(&p, 1, &r), 1);
	assert_int_equal(r.id, 9);
	assert_int_equal(r.vendor_err, SRDMA_REASON_FLUSHED);
	pair_close(&p);
}

/*
 * Expiry is checked to the second. Before the relay knows the time, every
 * capability with an expiry has expired.
 */
/* RFC 5042 R6.3.3-1 */
static void test_expiry(void **state)
{
	static const struct {
		uint32_t clock, expiry, reason;
	} rows[] = {
		/* time unknown */
		{ 0, UINT32_MAX, SRDMA_REASON_PROOF_EXPIRED },
		{ 0, 1, SRDMA_REASON_PROOF_EXPIRED },
		{ 0, 0, SRDMA_REASON_NONE },
		{ 4999, 5000, SRDMA_REASON_NONE },
		{ 5000, 5000, SRDMA_REASON_PROOF_EXPIRED },
		{ 5001, 5000, SRDMA_REASON_PROOF_EXPIRED },
		{ UINT32_MAX - 1, UINT32_MAX, SRDMA_REASON_NONE },
		{ UINT32_MAX, UINT32_MAX, SRDMA_REASON_PROOF_EXPIRED },
	};
	static struct srdma_capability cap;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct srdma_cap_params params = {
			.length = BLOCK,
			.rights = SRDMA_MEMKEY_WRITE,
			.bearer.expiry = rows[i].expiry,
		};
		struct srdma_packet packet;
		struct pair p;

		pair_defaults(&p);
		p.mode = SRDMA_MODE_MEM;
		pair_open(&p);
		pair_connect(&p, 0);
		if (rows[i].clock)
			srdma_relay_clock(p.side[1].relay, rows[i].clock);
		params.key =
			add_region(&p, (struct place){ .access = ALL_PROOF });
		take(&p, p.side[1].leg, &params, &cap);
		packet = write_packet(&p, params.key, 0, BLOCK);
		prove_with(&packet, &cap, SRDMA_MEMKEY_WRITE);
		send_packet(&p, &packet);
		assert_int_equal(verdict(&p), rows[i].reason);
		pair_close(&p);
	}
}

/*
 * If the crypto provider fails, the access is refused with a reason that does
 * not blame the peer.
 */
static void test_provider_failure_refuses_access(void **state)
{
	struct srdma_cap_params params = { .length = BLOCK,
					   .rights = SRDMA_MEMKEY_WRITE };
	struct srdma_mr_params mp = {
		.region = { .length = REGION, .access = ALL_PROOF, .fd = -1 },
		.log2_block = 8,
		.depth = 48,
	};
	struct srdma_cmac good, *cmac;
	struct srdma_packet packet;
	struct srdma_capability cap;
	struct srdma_relay *r;
	struct pair p;
	uint32_t key;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	r = p.side[1].relay;
	params.key = add_region(&p, (struct place){ .access = ALL_PROOF });
	packet = write_packet(&p, params.key, 0, BLOCK);
	show(&p, &packet, GOOD); /* puts the key of the node in the cache */
	cmac = &r->cmac;
	good = *cmac;
	*cmac = failing_cmac();
	mp.region.addr = (uintptr_t)p.side[1].memory;
	assert_int_equal(srdma_relay_mr_reg(r, p.side[1].leg, &mp, &key), -EIO);
	SAYS(r, "no memory keys");
	/* A capability that cannot be sealed is wiped. */
	params.bearer.expiry = CLOCK + 1;
	assert_int_equal(
		srdma_relay_mr_capability(r, p.side[1].leg, &params, &cap),
		-EIO);
	assert_int_equal(cap.nodes, 0);
	assert_int_equal(cap.rkey, 0);
	send_packet(&p, &packet);
	*cmac = good;
	assert_int_equal(verdict(&p), SRDMA_REASON_TARGET_DMA);
	assert_int_equal(changed(&p, 0, REGION), 0);
	pair_close(&p);
}

/* The proofs of the requester are those that the responder expects. */
static void test_requester_proofs_satisfy_responder(void **state)
{
	static const uint8_t ops[] = { SRDMA_DESC_WRITE, SRDMA_DESC_READ };
	struct srdma_cap_params params = { .length = REGION,
					   .rights = SRDMA_MEMKEY_READ |
						     SRDMA_MEMKEY_WRITE };
	const struct srdma_stats *made, *verified;
	struct srdma_desc d = { .id = 1 };
	struct pair p;
	uint64_t seed = 1;

	(void)state;
	open_pair(&p, SRDMA_MODE_PD | SRDMA_MODE_MEM);
	made = srdma_relay_stats(p.side[0].relay);
	verified = srdma_relay_stats(p.side[1].relay);
	params.key = add_region(&p, (struct place){ .access = ALL_PROOF });
	for (int i = 0; i < 300; i++) {
		const uint64_t lo = seed % BLOCKS;
		const uint64_t n = 1 + seed / BLOCKS % (BLOCKS - lo);
		const uint64_t at = lo * BLOCK + seed / 512 % BLOCK;

		params.offset = lo * BLOCK;
		params.length = n * BLOCK;
		pair_holder(0, params.bearer.holder);
		params.bearer.expiry = i % 3 ? CLOCK + 1 : 0;
		if (i % 2)
			memset(params.bearer.holder, 0, 16);
		d.capability = pair_install(&p, 0, params);
		d.opcode = ops[i % 4 / 2];
		d.rkey = params.key;
		d.length = (uint32_t)((lo + n) * BLOCK - at);
		d.local_addr = (uintptr_t)p.side[0].memory;
		d.remote_addr = (uintptr_t)p.side[1].memory + at;
		p.side[0].memory[0]++;
		pair_post(&p, 0, d, NULL);
		pair_settle(&p);
		pair_expect(&p, 0, 1, SRDMA_REASON_NONE);
		assert_memory_equal(p.side[0].memory, p.side[1].memory + at,
				    d.length);
		assert_int_equal(srdma_relay_uninstall(p.side[0].relay,
						       p.side[0].leg,
						       d.capability),
				 0);
		seed = seed * UINT64_C(6364136223846793005) + 99;
		seed ^= seed >> 29;
	}
	assert_int_equal(made->proofs_made, verified->proofs_verified);
	assert_in_range(made->proofs_made, 400, 3000);
	pair_close(&p);
}

/* --- control -------------------------------------------------------------- */

static void test_registration(void **state)
{
	enum { WRITES = SRDMA_ACCESS_LOCAL_WRITE | SRDMA_ACCESS_REMOTE_WRITE };
	static const struct {
		uint32_t access;
		uint8_t log2_block, depth;
		int err;
		const char *says;
	} rows[] = {
		{ ALL_PROOF, 6, 1, 0, NULL },
		{ ALL_PROOF, 30, 48, 0, NULL },
		{ SRDMA_ACCESS_REMOTE_READ | SRDMA_ACCESS_PROOF, 12, 48, 0,
		  NULL },
		{ WRITES | SRDMA_ACCESS_PROOF, 12, 48, 0, NULL },
		{ SRDMA_ACCESS_ALL, 0, 0, 0, NULL },
		{ ALL_PROOF, 5, 48, -EINVAL, "2^6..2^30" },
		{ ALL_PROOF, 31, 48, -EINVAL, "2^6..2^30" },
		{ ALL_PROOF, 12, 0, -EINVAL, "1..48" },
		{ ALL_PROOF, 12, 49, -EINVAL, "1..48" },
		{ SRDMA_ACCESS_ALL, 12, 0, -EINVAL, "both be 0" },
		{ SRDMA_ACCESS_ALL, 0, 1, -EINVAL, "both be 0" },
		{ SRDMA_ACCESS_PROOF, 12, 48, -EINVAL, "REMOTE_READ," },
		{ SRDMA_ACCESS_PROOF | 1, 12, 48, -EINVAL, "REMOTE_READ," },
		{ SRDMA_ACCESS_REMOTE_WRITE | SRDMA_ACCESS_PROOF, 12, 48,
		  -EINVAL, "LOCAL_WRITE" },
		{ SRDMA_ACCESS_REMOTE_ATOMIC | 1 | SRDMA_ACCESS_PROOF, 12, 48,
		  0, NULL },
		{ SRDMA_ACCESS_REMOTE_ATOMIC | SRDMA_ACCESS_PROOF, 12, 48,
		  -EINVAL, "LOCAL_WRITE" },
		{ ALL_PROOF | 16, 12, 48, -ENOTSUP, "PROOF 0x100" },
	};
	struct srdma_mr_params mp = { .region = { .length = 4096, .fd = -1 } };
	struct srdma_leg *leg;
	struct pair p;
	uint32_t key;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	leg = p.side[1].leg;
	mp.region.addr = (uintptr_t)p.side[1].memory;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		uint32_t before = leg->mrs;

		mp.region.access = rows[i].access;
		mp.log2_block = rows[i].log2_block;
		mp.depth = rows[i].depth;
		assert_int_equal(
			srdma_relay_mr_reg(p.side[1].relay, leg, &mp, &key),
			rows[i].err);
		if (rows[i].err)
			SAYS(p.side[1].relay, rows[i].says);
		assert_int_equal(leg->mrs, before + !rows[i].err);
	}
	/*
	 * A region too large for a tree is refused, although no host has so
	 * much memory.
	 */
	mp.region.access = ALL_PROOF;
	mp.log2_block = 12;
	mp.depth = 48;
	mp.region.addr = 4096;
	mp.region.length = (UINT64_C(1) << 63) + 1;
	assert_int_equal(srdma_relay_mr_reg(p.side[1].relay, leg, &mp, &key),
			 -EINVAL);
	SAYS(p.side[1].relay, "at most 2^63");
	pair_close(&p);
}

static void test_capabilities(void **state)
{
	static const struct {
		uint64_t offset, length;
		uint8_t rights;
		int err;
		const char *says;
	} rows[] = {
		{ 0, REGION, 7, 0, NULL },
		{ BLOCK, BLOCK, 4, 0, NULL },
		/* inside the revoked range */
		{ 8 * BLOCK, 2 * BLOCK, 2, 0, NULL },
		{ 0, REGION, 0, -EACCES, "READ 1" },
		{ 0, REGION, 8, -EACCES, "ATOMIC 4" },
		{ 0, REGION, 15, -EACCES, "0x7" },
		{ 0, 0, 1, -ERANGE, "at least one" },
		{ 0, REGION + 1, 1, -ERANGE, "of a region of 4096" },
		{ REGION, BLOCK, 1, -ERANGE, "inside" },
		{ BLOCK, UINT64_MAX, 1, -ERANGE, "inside" },
		{ 1, BLOCK, 1, -EINVAL, "multiple of 256 bytes" },
		{ 0, BLOCK + 1, 1, -EINVAL, "multiple of 256 bytes" },
		{ 8 * BLOCK, 1, 1, -EINVAL, "ending at one or at byte 2560" },
		{ 7 * BLOCK, 2 * BLOCK, 1, -ERANGE, "range 2048 to 2560" },
	};
	struct srdma_revoke_params rv = { .offset = 8 * BLOCK,
					  .length = 2 * BLOCK };
	struct srdma_cap_params params;
	struct srdma_capability cap;
	struct srdma_relay *r;
	struct pair p;
	uint64_t ticket;
	uint32_t key, plain, writes;

	(void)state;
	open_pair(&p, SRDMA_MODE_MEM);
	r = p.side[1].relay;
	key = add_region(&p, (struct place){ .access = ALL_PROOF });
	plain = add_region(&p, (struct place){ .access = SRDMA_ACCESS_ALL });
	writes = add_region(
		&p, (struct place){ .access = ALL_PROOF &
					      ~(SRDMA_ACCESS_REMOTE_READ |
						SRDMA_ACCESS_REMOTE_ATOMIC) });
	rv.key = key;
#define CAP(err, ...)                                                          \
	do {                                                                   \
		params = (struct srdma_cap_params){ __VA_ARGS__ };             \
		memset(&cap, 0xaa, sizeof(cap));                               \
		assert_int_equal(srdma_relay_mr_capability(r, p.side[1].leg,   \
							   &params, &cap),     \
				 err);                                         \
		for (size_t n = 0; err && n < sizeof(cap); n++)                \
			assert_int_equal(((uint8_t *)&cap)[n], 0);             \
	} while (0)
	CAP(0, key, 0, REGION, 3, { .expiry = 0 });
	assert_int_equal(cap.final, 0);
	CAP(0, key, 0, REGION, 3, { .expiry = 1 });
	assert_int_equal(cap.final, 1);
	CAP(0, key, 0, REGION, 3, { .holder = "somebody" });
	assert_int_equal(cap.final, 1);
	CAP(-ENOENT, key ^ 1, 0, REGION, 1, { .expiry = 0 });
	SAYS(r, "no region");
	CAP(-ENOENT, p.side[0].key, 0, REGION, 1, { .expiry = 0 });
	CAP(-EPERM, plain, 0, REGION, 1, { .expiry = 0 });
	SAYS(r, "registered with PROOF");
	CAP(0, writes, 0, REGION, SRDMA_MEMKEY_WRITE, { .expiry = 0 });
	CAP(-EACCES, writes, 0, REGION, SRDMA_MEMKEY_READ, { .expiry = 0 });
	SAYS(r, "can grant 0x2");
	CAP(-EACCES, writes, 0, REGION, SRDMA_MEMKEY_ATOMIC, { .expiry = 0 });
	CAP(-EACCES, writes, 0, REGION, 3, { .expiry = 0 });
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (i == 2)
			assert_int_equal(srdma_relay_mr_revoke(r, p.side[1].leg,
							       &rv, &ticket),
					 0);
		CAP(rows[i].err, key, rows[i].offset, rows[i].length,
		    rows[i].rights, { .expiry = 0 });
		if (rows[i].err)
			SAYS(r, rows[i].says);
	}
	assert_int_equal(srdma_relay_mr_dereg(r, p.side[1].leg, key), 0);
	CAP(-ENOENT, key, 0, REGION, 1, { .expiry = 0 });
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_proof_refusal_table),
		cmocka_unit_test(test_modes_without_mem_refuse_proofs),
		cmocka_unit_test(test_right_operation_holder_expiry_scope_pd),
		cmocka_unit_test(test_each_packet_of_write_needs_proof),
		cmocka_unit_test(test_proof_of_other_packet_is_refused),
		cmocka_unit_test(test_proof_of_other_generation_is_refused),
		cmocka_unit_test(
			test_message_beyond_region_is_refused_at_first),
		cmocka_unit_test(test_each_chunk_of_read_needs_proof),
		cmocka_unit_test(test_repeated_read_is_proved_again),
		cmocka_unit_test(test_proof_is_checked_at_execution_only),
		cmocka_unit_test(test_refused_write_imm_consumes_no_recv),
		cmocka_unit_test(test_expiry),
		cmocka_unit_test(test_provider_failure_refuses_access),
		cmocka_unit_test(test_requester_proofs_satisfy_responder),
		cmocka_unit_test(test_registration),
		cmocka_unit_test(test_capabilities),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
