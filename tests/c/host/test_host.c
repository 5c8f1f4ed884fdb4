/* Host protocol: descriptors, completion ring, credits (local-interface.md
 * 2). */
#include "host/host.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/reason.h"

enum { ENTRIES = 64, QPN = 0xabc123, OTHER = 0x123abc, THIRD = 0x3, DEPTH = 8 };

/* Plays the worker: writes the completion ring and reads descriptors. */
struct nic {
	_Alignas(64) uint8_t ring[ENTRIES * SRDMA_RECORD_LEN];
	uint8_t slot[SRDMA_DESC_SLOT];
	struct srdma_host *host;
	uint32_t written;
};

static int setup(void **state)
{
	struct nic *n = aligned_alloc(64, (sizeof(*n) + 63) / 64 * 64);

	assert_non_null(n);
	memset(n, 0, sizeof(*n));
	assert_int_equal(srdma_host_create(&n->host, n->ring, ENTRIES), 0);
	assert_int_equal(srdma_host_qp_add(n->host, QPN, DEPTH, DEPTH), 0);
	*state = n;
	return 0;
}

static int teardown(void **state)
{
	struct nic *n = *state;

	srdma_host_destroy(n->host);
	free(n);
	return 0;
}

static int post(struct nic *n, uint8_t opcode, uint8_t flags, uint64_t wr_id)
{
	struct srdma_desc wr = {
		.opcode = opcode,
		.flags = flags,
		.qpn = QPN,
		.id = wr_id,
		.length = 100,
		.local_addr = 0x7f0000001000,
		.local_key = 7,
		.rkey = 0xdeadbeef,
		.remote_addr = 0x7f0000002000,
		.imm = 0x01020304,
	};

	return srdma_host_post(n->host, &wr, NULL, n->slot);
}

/* Id of the descriptor in the slot. */
static uint64_t slot_id(const struct nic *n)
{
	struct srdma_desc d;

	assert_int_equal(srdma_desc_decode(&d, n->slot, sizeof(n->slot)), 0);
	return d.id;
}

static uint64_t posted(struct nic *n, uint8_t opcode, uint8_t flags,
		       uint64_t wr_id)
{
	assert_int_equal(post(n, opcode, flags, wr_id), SRDMA_DESC_LEN);
	return slot_id(n);
}

static void write_record(struct nic *n, struct srdma_record rec)
{
	uint32_t at = n->written % ENTRIES;

	rec.sequence = ++n->written;
	srdma_record_encode(n->ring + at * SRDMA_RECORD_LEN, &rec);
}

static void complete(struct nic *n, uint64_t id, uint8_t opcode)
{
	write_record(n, (struct srdma_record){
				.id = id, .qpn = QPN, .opcode = opcode });
}

static int poll_one(struct nic *n, struct srdma_record *rec)
{
	return srdma_host_poll(n->host, rec, 1);
}

static void test_create_refuses(void **state)
{
	_Alignas(64) static uint8_t ring[64 * SRDMA_RECORD_LEN];
	struct srdma_host *h;

	(void)state;
	assert_int_equal(srdma_host_create(&h, NULL, 64), -EINVAL);
	assert_int_equal(srdma_host_create(&h, ring + 1, 32), -EINVAL);
	assert_int_equal(srdma_host_create(&h, ring, 0), -EINVAL);
	assert_int_equal(srdma_host_create(&h, ring, 63), -EINVAL);
	assert_int_equal(srdma_host_create(&h, ring, 131072), -EINVAL);
	assert_null(h);
	srdma_host_destroy(NULL);
}

static void test_qp_add_refuses(void **state)
{
	struct nic *n = *state;

	assert_int_equal(srdma_host_qp_add(n->host, QPN, 1, 1), -EEXIST);
	assert_int_equal(srdma_host_qp_add(n->host, 0, 1, 1), -EINVAL);
	assert_int_equal(srdma_host_qp_add(n->host, 1 << 24, 1, 1), -EINVAL);
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, 0, 1), -EINVAL);
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, 1, 0), -EINVAL);
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, 4097, 1), -EINVAL);
	/* 17 of 64 records are reserved; 47 are left */
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, 24, 23), -ENOSPC);
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, 23, 23), 0);
	assert_int_equal(srdma_host_qp_remove(n->host, OTHER), 0);
	assert_int_equal(srdma_host_qp_remove(n->host, OTHER), -ENOENT);
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, 23, 23), 0);
}

static void test_post_fills_descriptor(void **state)
{
	struct nic *n = *state;
	struct srdma_desc d;

	assert_int_equal(post(n, SRDMA_DESC_WRITE_IMM,
			      SRDMA_DESC_SIGNALED | SRDMA_DESC_FENCE, 42),
			 SRDMA_DESC_LEN);
	assert_int_equal(srdma_desc_decode(&d, n->slot, SRDMA_DESC_LEN), 0);
	assert_int_equal(d.opcode, SRDMA_DESC_WRITE_IMM);
	assert_int_equal(d.flags, SRDMA_DESC_SIGNALED | SRDMA_DESC_FENCE);
	assert_int_equal(d.qpn, QPN);
	assert_int_equal(d.length, 100);
	assert_int_equal(d.local_addr, 0x7f0000001000);
	assert_int_equal(d.local_key, 7);
	assert_int_equal(d.rkey, 0xdeadbeef);
	assert_int_equal(d.remote_addr, 0x7f0000002000);
	assert_int_equal(d.imm, 0x01020304);
	assert_int_equal(d.consumed, 0);
}

static void test_post_inline_data(void **state)
{
	struct nic *n = *state;
	uint8_t payload[SRDMA_MAX_INLINE + 1];
	struct srdma_desc d, wr = { .opcode = SRDMA_DESC_SEND, .qpn = QPN };

	memset(payload, 0x5a, sizeof(payload));
	for (uint32_t len = 0; len <= SRDMA_MAX_INLINE; len += 64) {
		wr.length = len;
		assert_int_equal(
			srdma_host_post(n->host, &wr, payload, n->slot),
			SRDMA_DESC_LEN + len);
		assert_int_equal(
			srdma_desc_decode(&d, n->slot, SRDMA_DESC_LEN + len),
			0);
		assert_int_equal(d.flags, SRDMA_DESC_INLINE);
		assert_memory_equal(n->slot + SRDMA_DESC_LEN, payload, len);
	}
	wr.length = SRDMA_MAX_INLINE + 1;
	assert_int_equal(srdma_host_post(n->host, &wr, payload, n->slot),
			 -EMSGSIZE);
	wr.length = 1;
	wr.opcode = SRDMA_DESC_READ;
	assert_int_equal(srdma_host_post(n->host, &wr, payload, n->slot),
			 -EINVAL);
	wr.opcode = SRDMA_DESC_RECV;
	assert_int_equal(srdma_host_post(n->host, &wr, payload, n->slot),
			 -EINVAL);
}

static void test_post_sgl(void **state)
{
	struct nic *n = *state;
	static const uint8_t sgl[SRDMA_MAX_SGES * SRDMA_SGE_LEN] = { [11] = 5 };
	struct srdma_desc d, wr = {
		.opcode = SRDMA_DESC_RECV, .qpn = QPN, .sges = 28, .length = 5
	};

	assert_int_equal(srdma_host_post(n->host, &wr, sgl, n->slot),
			 SRDMA_DESC_SLOT);
	assert_int_equal(srdma_desc_decode(&d, n->slot, SRDMA_DESC_SLOT), 0);
	assert_int_equal(d.sges, 28);
	assert_int_equal(d.flags, SRDMA_DESC_SIGNALED);
	assert_memory_equal(n->slot + SRDMA_DESC_LEN, sgl, sizeof(sgl));
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
	wr.sges = 29;
	assert_int_equal(srdma_host_post(n->host, &wr, sgl, n->slot), -EINVAL);
	wr.sges = 1;
	wr.opcode = SRDMA_DESC_FETCH_ADD;
	wr.length = 8;
	assert_int_equal(srdma_host_post(n->host, &wr, sgl, n->slot), -EINVAL);
}

static void test_post_refuses(void **state)
{
	struct nic *n = *state;
	static const uint8_t opcodes[] = { 0, 8, 15, SRDMA_DESC_CREDIT, 255 };
	struct srdma_desc wr = { .opcode = SRDMA_DESC_SEND,
				 .qpn = OTHER,
				 .length = 1 };

	for (size_t i = 0; i < sizeof(opcodes); i++)
		assert_int_equal(post(n, opcodes[i], 0, 1), -EINVAL);
	assert_int_equal(post(n, SRDMA_DESC_SEND, SRDMA_DESC_INLINE, 1),
			 -EINVAL);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0x80, 1), -EINVAL);
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
	wr.qpn = QPN;
	wr.length = SRDMA_MAX_MESSAGE + 1;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot),
			 -EMSGSIZE);
	wr.length = SRDMA_MAX_MESSAGE;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot),
			 SRDMA_DESC_LEN);
}

static void test_post_capability(void **state)
{
	struct nic *n = *state;
	static const uint8_t refuse[] = { SRDMA_DESC_SEND, SRDMA_DESC_SEND_IMM,
					  SRDMA_DESC_RECV };
	static const uint8_t take[] = { SRDMA_DESC_WRITE, SRDMA_DESC_WRITE_IMM,
					SRDMA_DESC_READ };
	struct srdma_desc d, wr = { .qpn = QPN, .capability = 0xc0ffee00 };

	for (size_t i = 0; i < sizeof(refuse); i++) {
		wr.opcode = refuse[i];
		assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot),
				 -EINVAL);
	}
	for (size_t i = 0; i < sizeof(take); i++) {
		wr.opcode = take[i];
		assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot),
				 SRDMA_DESC_LEN);
		assert_int_equal(srdma_desc_decode(&d, n->slot, SRDMA_DESC_LEN),
				 0);
		assert_int_equal(d.capability, 0xc0ffee00);
	}
}

/* An atomic has 8 bytes, operands and no payload. */
static void test_post_atomics(void **state)
{
	enum { ALL = SRDMA_DESC_LEN + SRDMA_OPERANDS_LEN };
	struct nic *n = *state;
	struct srdma_desc d, wr = { .opcode = SRDMA_DESC_COMPARE_SWAP,
				    .flags = SRDMA_DESC_SIGNALED,
				    .qpn = QPN,
				    .length = SRDMA_ATOMIC_LEN,
				    .capability = 9,
				    .swap_add = 7,
				    .compare = 5 };
	struct srdma_record rec;

	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), ALL);
	assert_int_equal(srdma_desc_decode(&d, n->slot, ALL), 0);
	assert_int_equal(d.swap_add, 7);
	assert_int_equal(d.compare, 5);
	complete(n, d.id, SRDMA_WC_COMP_SWAP);
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.opcode, SRDMA_WC_COMP_SWAP);
	assert_int_equal(srdma_host_post(n->host, &wr, "12345678", n->slot),
			 -EINVAL);
	wr.opcode = SRDMA_DESC_FETCH_ADD;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
	wr.compare = 0;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), ALL);
	assert_int_equal(srdma_desc_decode(&d, n->slot, ALL), 0);
	complete(n, d.id, SRDMA_WC_FETCH_ADD);
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.opcode, SRDMA_WC_FETCH_ADD);
	wr.length = 7;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
}

/* The worker sees a WRITE; the program sees its own operation. */
static void test_post_atomic_write(void **state)
{
	enum { ALL = SRDMA_DESC_LEN + SRDMA_ATOMIC_LEN };
	struct nic *n = *state;
	struct srdma_desc d, wr = { .opcode = SRDMA_DESC_ATOMIC_WRITE,
				    .flags = SRDMA_DESC_SIGNALED,
				    .qpn = QPN,
				    .id = 3,
				    .length = SRDMA_ATOMIC_LEN,
				    .capability = 9,
				    .remote_addr = 0x7f0000002000 };
	struct srdma_record rec;

	assert_int_equal(srdma_host_post(n->host, &wr, "12345678", n->slot),
			 ALL);
	assert_int_equal(srdma_desc_decode(&d, n->slot, ALL), 0);
	assert_int_equal(d.opcode, SRDMA_DESC_WRITE);
	assert_int_equal(d.length, SRDMA_ATOMIC_LEN);
	complete(n, d.id, SRDMA_WC_RDMA_WRITE);
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.opcode, SRDMA_WC_ATOMIC_WRITE);
	assert_int_equal(rec.id, 3);
	wr.length = 7;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
	wr.length = 9;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
	wr.length = SRDMA_ATOMIC_LEN;
	wr.remote_addr += 4;
	assert_int_equal(srdma_host_post(n->host, &wr, NULL, n->slot), -EINVAL);
}

static void test_depth_per_queue(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t first = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 1);

	for (int i = 1; i < DEPTH; i++)
		assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 1),
				 SRDMA_DESC_LEN);
	assert_int_equal(srdma_host_send_room(n->host, QPN), 0);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 1), -ENOSPC);
	for (int i = 0; i < DEPTH; i++)
		assert_int_equal(post(n, SRDMA_DESC_RECV, 0, 1),
				 SRDMA_DESC_LEN);
	assert_int_equal(post(n, SRDMA_DESC_RECV, 0, 1), -ENOSPC);

	complete(n, first, SRDMA_WC_SEND);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 1), -ENOSPC);
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(srdma_host_send_room(n->host, QPN), 1);
	assert_int_equal(srdma_host_send_room(n->host, OTHER), 0);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 1), SRDMA_DESC_LEN);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 1), -ENOSPC);
}

/* QP OTHER takes the receives of QP QPN. */
static void share(struct nic *n)
{
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, DEPTH, 1), 0);
	assert_int_equal(srdma_host_join(n->host, OTHER, QPN), -ENOENT);
	assert_int_equal(srdma_host_share(n->host, 7), -ENOENT);
	assert_int_equal(srdma_host_share(n->host, QPN), 0);
	assert_int_equal(srdma_host_join(n->host, 7, QPN), -ENOENT);
	assert_int_equal(srdma_host_join(n->host, OTHER, 7), -ENOENT);
	assert_int_equal(srdma_host_join(n->host, OTHER, QPN), 0);
}

static void take_receive(struct nic *n, uint64_t id, uint8_t opcode)
{
	write_record(n, (struct srdma_record){
				.id = id, .qpn = OTHER, .opcode = opcode });
}

/* Fills the shared queue with receives 100, 101, ... */
static void share_receives(struct nic *n, uint64_t id[DEPTH])
{
	share(n);
	for (unsigned i = 0; i < DEPTH; i++)
		id[i] = posted(n, SRDMA_DESC_RECV, 0, 100 + i);
}

static void test_shared_receives_end_in_any_order(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t id[DEPTH];

	share_receives(n, id);
	assert_int_equal(post(n, SRDMA_DESC_RECV, 0, 1), -ENOSPC);
	take_receive(n, id[5], SRDMA_WC_RECV);
	take_receive(n, id[5], SRDMA_WC_RECV); /* again: it is ignored */
	take_receive(n, id[2], SRDMA_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.id, 105);
	assert_int_equal(rec.qpn, OTHER);
	assert_int_equal(rec.opcode, SRDMA_WC_RECV);
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.id, 102);
	assert_int_equal(rec.opcode, SRDMA_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(srdma_host_ignored(n->host), 1);
	assert_int_equal(post(n, SRDMA_DESC_RECV, 0, 1), SRDMA_DESC_LEN);
}

static void test_records_after_the_end_of_a_shared_queue(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t id;

	share(n);
	id = posted(n, SRDMA_DESC_RECV, 0, 1);
	assert_int_equal(srdma_host_qp_remove(n->host, QPN), 0);
	take_receive(n, id, SRDMA_WC_RECV);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(srdma_host_ignored(n->host), 1);
}

/* Over verbs a record may arrive after the answer to DESTROY. */
static void test_late_records_of_a_removed_qp_end_shared_receives(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t id[DEPTH];

	share_receives(n, id);
	assert_int_equal(srdma_host_shared(n->host, QPN), DEPTH);
	assert_int_equal(srdma_host_qp_remove(n->host, OTHER), 0);
	take_receive(n, id[1], SRDMA_WC_RECV);
	take_receive(n, id[1], SRDMA_WC_RECV);		 /* again */
	take_receive(n, id[2] - 1, SRDMA_WC_SEND);	 /* a request */
	take_receive(n, id[2] | 1 << 30, SRDMA_WC_RECV); /* no such number */
	take_receive(n, id[2] ^ UINT64_C(1) << 63,
		     SRDMA_WC_RECV); /* no holder */
	take_receive(n, 0, SRDMA_WC_QP_EVENT);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(srdma_host_ignored(n->host), 6);
	assert_int_equal(srdma_host_shared(n->host, QPN), DEPTH - 1);
	assert_int_equal(srdma_host_shared(n->host, OTHER), 0);
	assert_int_equal(post(n, SRDMA_DESC_RECV, 0, 1), SRDMA_DESC_LEN);
	assert_int_equal(post(n, SRDMA_DESC_RECV, 0, 1), -ENOSPC);
}

/* A record of a QP that takes no receives of this queue ends none of them. */
static void test_record_of_a_qp_that_does_not_share(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t id;

	share(n);
	assert_int_equal(srdma_host_qp_add(n->host, THIRD, 1, 1), 0);
	id = posted(n, SRDMA_DESC_RECV, 0, 1);
	write_record(n, (struct srdma_record){ .id = id,
					       .qpn = THIRD,
					       .opcode = SRDMA_WC_RECV });
	assert_int_equal(srdma_host_share(n->host, THIRD), 0);
	assert_int_equal(srdma_host_qp_remove(n->host, OTHER), 0);
	assert_int_equal(srdma_host_qp_add(n->host, OTHER, DEPTH, 1), 0);
	assert_int_equal(srdma_host_join(n->host, OTHER, THIRD), 0);
	take_receive(n, id, SRDMA_WC_RECV);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(srdma_host_shared(n->host, QPN), 1);
}

static void test_record_retires_unsignaled(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec[4];
	uint64_t last;

	posted(n, SRDMA_DESC_WRITE, 0, 10);
	posted(n, SRDMA_DESC_READ, 0, 11);
	last = posted(n, SRDMA_DESC_SEND_IMM, SRDMA_DESC_SIGNALED, 12);
	complete(n, last, SRDMA_WC_SEND);
	assert_int_equal(srdma_host_poll(n->host, rec, 4), 1);
	assert_int_equal(rec[0].id, 12);
	assert_int_equal(rec[0].opcode, SRDMA_WC_SEND);
	for (int i = 0; i < DEPTH; i++)
		posted(n, SRDMA_DESC_SEND, 0, 1);
}

static void test_failure_of_unsignaled_is_delivered(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t id = posted(n, SRDMA_DESC_WRITE, 0, 10);

	write_record(n, (struct srdma_record){ .id = id,
					       .qpn = QPN,
					       .opcode = SRDMA_WC_RDMA_WRITE,
					       .status = 10,
					       .vendor_err =
						       SRDMA_REASON_BAD_RKEY });
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.id, 10);
	assert_int_equal(rec.status, 10);
	assert_int_equal(rec.vendor_err, SRDMA_REASON_BAD_RKEY);
}

static void test_recv_record(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t id = posted(n, SRDMA_DESC_RECV, 0, 77);

	write_record(
		n, (struct srdma_record){ .id = id,
					  .qpn = QPN,
					  .opcode = SRDMA_WC_RECV_RDMA_WITH_IMM,
					  .flags = SRDMA_RECORD_WITH_IMM,
					  .byte_len = 5,
					  .imm = 9 });
	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.id, 77);
	assert_int_equal(rec.opcode, SRDMA_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(rec.flags, SRDMA_RECORD_WITH_IMM);
	assert_int_equal(rec.byte_len, 5);
	assert_int_equal(rec.imm, 9);
}

/* RFC 5042 R2.2.7-1, A2.2.7 */
static void test_qp_event_once(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec[2], event = {
		.qpn = QPN,
		.opcode = SRDMA_WC_QP_EVENT,
		.vendor_err = SRDMA_REASON_WIRE_LOST,
	};

	write_record(n, event);
	write_record(n, event);
	assert_int_equal(srdma_host_poll(n->host, rec, 2), 1);
	assert_int_equal(rec[0].opcode, SRDMA_WC_QP_EVENT);
	assert_int_equal(rec[0].vendor_err, SRDMA_REASON_WIRE_LOST);
	assert_int_equal(srdma_host_ignored(n->host), 1);
}

static void test_bad_records_are_ignored(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec[8];
	uint64_t a = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 1);
	uint64_t b = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 2);

	complete(n, b, SRDMA_WC_SEND);	   /* out of order */
	complete(n, b + 2, SRDMA_WC_SEND); /* never posted */
	complete(n, UINT64_MAX, SRDMA_WC_SEND);
	complete(n, a + 1, SRDMA_WC_RECV); /* no RECV is posted */
	write_record(n, (struct srdma_record){ .id = a, .qpn = OTHER });
	complete(n, a, SRDMA_WC_RECV); /* the host knows the opcode itself */
	complete(n, a, SRDMA_WC_SEND); /* a second time */
	complete(n, b, SRDMA_WC_SEND);
	assert_int_equal(srdma_host_poll(n->host, rec, 8), 2);
	assert_int_equal(rec[0].id, 1);
	assert_int_equal(rec[0].opcode, SRDMA_WC_SEND);
	assert_int_equal(rec[1].id, 2);
	assert_int_equal(srdma_host_ignored(n->host), 6);
}

static void test_removed_qp_is_ignored(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t a = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 1);

	complete(n, a, SRDMA_WC_SEND);
	assert_int_equal(srdma_host_qp_remove(n->host, QPN), 0);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(srdma_host_ignored(n->host), 1);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 1), -EINVAL);
}

static void test_ring_wraps_many_times(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	struct srdma_desc d;

	for (uint64_t i = 0; i < 20 * ENTRIES + 7; i++) {
		uint64_t id =
			posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, i);

		assert_int_equal(srdma_desc_decode(&d, n->slot, 64), 0);
		assert_int_equal(d.consumed, i);
		assert_int_equal(poll_one(n, &rec), 0);
		complete(n, id, SRDMA_WC_SEND);
		assert_int_equal(poll_one(n, &rec), 1);
		assert_int_equal(rec.id, i);
	}
}

static void test_credit_after_half_a_ring(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	struct srdma_desc d;

	for (int i = 0; i < ENTRIES / 2; i++) {
		assert_int_equal(srdma_host_credit(n->host, n->slot), 0);
		write_record(n, (struct srdma_record){ .qpn = OTHER });
		assert_int_equal(poll_one(n, &rec), 0);
	}
	assert_int_equal(srdma_host_credit(n->host, n->slot), SRDMA_DESC_LEN);
	assert_int_equal(srdma_desc_decode(&d, n->slot, SRDMA_DESC_LEN), 0);
	assert_int_equal(d.opcode, SRDMA_DESC_CREDIT);
	assert_int_equal(d.consumed, ENTRIES / 2);
	assert_int_equal(d.qpn, 0);
	assert_int_equal(srdma_host_credit(n->host, n->slot), 0);
}

static void test_fail_completes_all_requests(void **state)
{
	static const struct {
		uint64_t id;
		uint8_t opcode, status;
		uint32_t reason;
	} want[] = {
		{ 1, SRDMA_WC_RDMA_WRITE, 0, SRDMA_REASON_NONE },
		{ 0, SRDMA_WC_QP_EVENT, 19, SRDMA_REASON_WORKER_GONE },
		{ 2, SRDMA_WC_RDMA_READ, 19, SRDMA_REASON_WORKER_GONE },
		{ 3, SRDMA_WC_SEND, 5, SRDMA_REASON_FLUSHED },
		{ 8, SRDMA_WC_RECV, 19, SRDMA_REASON_WORKER_GONE },
		{ 9, SRDMA_WC_RECV, 5, SRDMA_REASON_FLUSHED },
	};
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t first = posted(n, SRDMA_DESC_WRITE, SRDMA_DESC_SIGNALED, 1);

	posted(n, SRDMA_DESC_READ, SRDMA_DESC_SIGNALED, 2);
	posted(n, SRDMA_DESC_SEND, 0, 3);
	posted(n, SRDMA_DESC_RECV, 0, 8);
	posted(n, SRDMA_DESC_RECV, 0, 9);
	complete(n, first, SRDMA_WC_RDMA_WRITE);
	srdma_host_fail(n->host, SRDMA_REASON_WORKER_GONE);
	/* only the first reason counts */
	srdma_host_fail(n->host, SRDMA_REASON_WIRE_LOST);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		assert_int_equal(poll_one(n, &rec), 1);
		assert_int_equal(rec.id, want[i].id);
		assert_int_equal(rec.qpn, QPN);
		assert_int_equal(rec.opcode, want[i].opcode);
		assert_int_equal(rec.status, want[i].status);
		assert_int_equal(rec.vendor_err, want[i].reason);
	}
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 4), -ENOTCONN);
}

static void expect(struct nic *n, uint64_t id, uint8_t opcode, uint32_t reason)
{
	struct srdma_record rec;

	assert_int_equal(poll_one(n, &rec), 1);
	assert_int_equal(rec.id, id);
	assert_int_equal(rec.opcode, opcode);
	assert_int_equal(rec.vendor_err, reason);
}

static void test_failed_qp_flushes_now_and_later(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t first = posted(n, SRDMA_DESC_WRITE, SRDMA_DESC_SIGNALED, 1);

	posted(n, SRDMA_DESC_READ, 0, 2);
	posted(n, SRDMA_DESC_SEND, 0, 3);
	posted(n, SRDMA_DESC_RECV, 0, 8);
	complete(n, first, SRDMA_WC_RDMA_WRITE);
	assert_int_equal(srdma_host_qp_fail(n->host, QPN + 1, 1), -ENOENT);
	for (int twice = 0; twice < 2; twice++)
		assert_int_equal(srdma_host_qp_fail(n->host, QPN,
						    SRDMA_REASON_WIRE_LOST),
				 0);
	expect(n, 1, SRDMA_WC_RDMA_WRITE, SRDMA_REASON_NONE);
	expect(n, 2, SRDMA_WC_RDMA_READ, SRDMA_REASON_WIRE_LOST);
	expect(n, 3, SRDMA_WC_SEND, SRDMA_REASON_FLUSHED);
	expect(n, 8, SRDMA_WC_RECV, SRDMA_REASON_FLUSHED);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(post(n, SRDMA_DESC_SEND, 0, 4), 0);
	expect(n, 4, SRDMA_WC_SEND, SRDMA_REASON_FLUSHED);
	assert_int_equal(srdma_host_qp_remove(n->host, QPN), 0);
	assert_int_equal(poll_one(n, &rec), 0);
}

/* REINIT: work requests and records of the former QP are gone, and the records of
 * the new one count from its first on. */
static void test_restarted_qp(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec;
	uint64_t old = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 1), id;

	posted(n, SRDMA_DESC_RECV, 0, 2);
	assert_int_equal(srdma_host_posted(n->host), 2);
	complete(n, old, SRDMA_WC_SEND);
	write_record(n, (struct srdma_record){ .qpn = QPN,
					       .opcode = SRDMA_WC_QP_EVENT });
	assert_int_equal(srdma_host_qp_restart(n->host, QPN + 1, 0), -ENOENT);
	assert_int_equal(
		srdma_host_qp_fail(n->host, QPN, SRDMA_REASON_WIRE_LOST), 0);
	assert_int_equal(srdma_host_qp_restart(n->host, QPN, n->written), 0);
	assert_int_equal(poll_one(n, &rec), 0);
	id = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 3);
	assert_int_equal(srdma_host_posted(n->host), 3);
	complete(n, id, SRDMA_WC_SEND);
	write_record(n, (struct srdma_record){
				.qpn = QPN,
				.opcode = SRDMA_WC_QP_EVENT,
				.vendor_err = SRDMA_REASON_PEER_CLOSED });
	expect(n, 3, SRDMA_WC_SEND, SRDMA_REASON_NONE);
	expect(n, 0, SRDMA_WC_QP_EVENT, SRDMA_REASON_PEER_CLOSED);
	assert_int_equal(poll_one(n, &rec), 0);
	assert_int_equal(srdma_host_ignored(n->host), 2);
}

/* The restart is 2^31 records ago when the QP makes its first one, as other QPs made
 * records meanwhile: it is not taken for one of the former QP. */
static void test_restarted_qp_after_many_records(void **state)
{
	struct nic *n = *state;
	uint64_t id;

	assert_int_equal(
		srdma_host_qp_restart(n->host, QPN,
				      n->written - (UINT32_C(1) << 31)),
		0);
	id = posted(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 1);
	complete(n, id, SRDMA_WC_SEND);
	expect(n, 1, SRDMA_WC_SEND, SRDMA_REASON_NONE);
	assert_int_equal(srdma_host_ignored(n->host), 0);
}

/* The receives of a shared queue are not those of one QP. */
static void test_holder_does_not_restart(void **state)
{
	struct nic *n = *state;

	assert_int_equal(srdma_host_share(n->host, QPN), 0);
	assert_int_equal(srdma_host_qp_restart(n->host, QPN, 0), -ENOENT);
}

/* With arbitrary bytes in the ring, polling ends and each WR completes once. */
static void test_random_ring_completes_each_wr_once(void **state)
{
	struct nic *n = *state;
	struct srdma_record rec[ENTRIES];
	uint32_t seed = 1;
	int ended = 0;

	for (int lap = 0; lap < 200; lap++) {
		while (post(n, SRDMA_DESC_SEND, SRDMA_DESC_SIGNALED, 5) > 0)
			ended--;
		for (int i = 0; i < ENTRIES; i++) {
			seed = seed * 1664525 + 1013904223;
			write_record(n, (struct srdma_record){
						.id = seed >> 20,
						.qpn = seed & 1 ? QPN : seed,
						.opcode = (uint8_t)(seed >> 8),
						.status = (uint8_t)seed });
		}
		for (int got = 0; got < ENTRIES; got++)
			ended += srdma_host_poll(n->host, rec, 1) == 1 &&
				 rec[0].id == 5;
	}
	srdma_host_fail(n->host, SRDMA_REASON_WORKER_GONE);
	while (poll_one(n, rec))
		ended += rec[0].id == 5;
	assert_int_equal(ended, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_refuses),
		TEST(test_qp_add_refuses),
		TEST(test_post_fills_descriptor),
		TEST(test_post_inline_data),
		TEST(test_post_sgl),
		TEST(test_post_refuses),
		TEST(test_post_capability),
		TEST(test_post_atomics),
		TEST(test_post_atomic_write),
		TEST(test_depth_per_queue),
		TEST(test_shared_receives_end_in_any_order),
		TEST(test_records_after_the_end_of_a_shared_queue),
		TEST(test_late_records_of_a_removed_qp_end_shared_receives),
		TEST(test_record_of_a_qp_that_does_not_share),
		TEST(test_record_retires_unsignaled),
		TEST(test_failure_of_unsignaled_is_delivered),
		TEST(test_recv_record),
		TEST(test_qp_event_once),
		TEST(test_bad_records_are_ignored),
		TEST(test_restarted_qp),
		TEST(test_restarted_qp_after_many_records),
		TEST(test_holder_does_not_restart),
		TEST(test_removed_qp_is_ignored),
		TEST(test_ring_wraps_many_times),
		TEST(test_credit_after_half_a_ring),
		TEST(test_fail_completes_all_requests),
		TEST(test_failed_qp_flushes_now_and_later),
		TEST(test_random_ring_completes_each_wr_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
