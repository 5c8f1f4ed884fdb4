#include "faults/transfer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SENT = 1, RECEIVED, WRITTEN, READ, ADDED, REQUESTS };
enum { ROOM = 8192, LENGTH = 5000, ALL = (1 << REQUESTS) - 2, ROUNDS = 400 };

static void post(struct pair *p, int side, uint64_t id, uint8_t opcode)
{
	struct srdma_desc d = { .opcode = opcode, .id = id, .length = LENGTH };
	const uint64_t at = id * ROOM;

	d.local_addr = (uintptr_t)p->side[side].memory + at;
	d.remote_addr = (uintptr_t)p->side[!side].memory + at;
	if (opcode == SRDMA_DESC_FETCH_ADD) {
		d.length = 8;
		d.swap_add = 5;
	}
	pair_post(p, side, d, NULL);
}

void transfer_post(struct transfer *t, struct pair *p)
{
	memset(t, 0, sizeof(*t));
	memset(p->side[0].memory, 0xaa, TRANSFER_MEMORY);
	memset(p->side[1].memory, 0xbb, TRANSFER_MEMORY);
	post(p, 1, RECEIVED, SRDMA_DESC_RECV);
	post(p, 0, SENT, SRDMA_DESC_SEND);
	post(p, 0, WRITTEN, SRDMA_DESC_WRITE);
	post(p, 0, READ, SRDMA_DESC_READ);
	post(p, 0, ADDED, SRDMA_DESC_FETCH_ADD);
}

/* Every record is a QP event, or names one of the requests that were not completed
 * before. */
static void take(struct transfer *t, struct pair *p, int side)
{
	struct srdma_record r;

	while (pair_record(p, side, &r)) {
		if (r.opcode == SRDMA_WC_QP_EVENT)
			continue;
		assert_in_range(r.id, SENT, ADDED);
		assert_int_equal(t->done >> r.id & 1, 0);
		t->done |= 1U << r.id;
		if (r.vendor_err == SRDMA_REASON_NONE)
			t->good |= 1U << r.id;
		else
			assert_true(*srdma_reason(r.vendor_err)->name);
	}
}

static int is_filled(const uint8_t *at, uint8_t with)
{
	for (int i = 0; i < LENGTH; i++)
		if (at[i] != with)
			return 0;
	return 1;
}

static uint64_t number_at(const uint8_t *at)
{
	uint64_t n;

	memcpy(&n, at, sizeof(n));
	return n;
}

/* A request that succeeded moved all its bytes. */
static void check(const struct transfer *t, const struct pair *p)
{
	const uint8_t *own = p->side[0].memory, *far = p->side[1].memory;

	if (t->good >> RECEIVED & 1)
		assert_true(is_filled(far + RECEIVED * ROOM, 0xaa));
	if (t->good >> WRITTEN & 1)
		assert_true(is_filled(far + WRITTEN * ROOM, 0xaa));
	if (t->good >> READ & 1)
		assert_true(is_filled(own + READ * ROOM, 0xbb));
	if (t->good >> ADDED & 1)
		assert_int_equal(number_at(far + ADDED * ROOM),
				 UINT64_C(0xbbbbbbbbbbbbbbbb) + 5);
}

void transfer_finish(struct transfer *t, struct pair *p, int all_good)
{
	for (int i = 0; i < ROUNDS && t->done != ALL; i++) {
		take(t, p, 0);
		take(t, p, 1);
		pair_wait_ms(p, 100);
	}
	assert_int_equal(t->done, ALL);
	if (all_good)
		assert_int_equal(t->good, ALL);
	check(t, p);
}
