/* Both halves of a leg over shared memory: a host and its worker's port. */
#include "host/leg_shm.h"

#include "port/shm/doorbell.h"
#include "port/shm/port_shm.h"
#include "port/shm/ring.h"
#include "port/shm/shm.h"
#include "support/descriptors.h"
#include "support/shm_leg.h"
#include "support/shm_pair.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int post(struct shm_leg *f, uint32_t number, uint32_t len)
{
	uint8_t *slot = srdma_leg_shm_slot(f->host);

	if (!slot)
		return -EAGAIN;
	memset(slot, 0, len);
	memcpy(slot, &number, sizeof(number));
	return srdma_leg_shm_post(f->host, len);
}

static void expect_desc(struct shm_leg *f, uint32_t number, uint32_t len)
{
	struct srdma_event ev = shm_expect(f->port, SRDMA_EV_RECV);

	assert_ptr_equal(ev.conn, f->leg);
	assert_int_equal(ev.buf->len, len);
	assert_memory_equal(ev.buf->data, &number, sizeof(number));
	f->port->ops->buf_put(ev.buf);
}

/* --- descriptors and records ---------------------------------------------- */

static void test_sizes_of_a_leg(void **state)
{
	struct srdma_leg_shm *host;

	(void)state;
	assert_int_equal(srdma_leg_shm_create(&host, 32), -EINVAL);
	assert_int_equal(srdma_leg_shm_create(&host, 100), -EINVAL);
	assert_int_equal(srdma_leg_shm_create(&host, 131072), -EINVAL);
	srdma_leg_shm_destroy(NULL);
	/* 128 and 64 slots of 520 bytes are 9 pages */
	assert_int_equal(srdma_leg_layout_records_at(64), 9 * 4096);
}

static void test_descriptors_arrive(void **state)
{
	struct shm_leg *f = *state;

	assert_int_equal(post(f, 1, SRDMA_DESC_LEN), 0);
	assert_int_equal(post(f, 2, SRDMA_DESC_SLOT), 0);
	assert_int_equal(post(f, 3, SRDMA_DESC_SLOT + 1), -EMSGSIZE);
	shm_expect_nothing(f->port);
	srdma_leg_shm_flush(f->host);
	expect_desc(f, 1, SRDMA_DESC_LEN);
	expect_desc(f, 2, SRDMA_DESC_SLOT);
	shm_expect_nothing(f->port);
}

static void test_descriptor_ring_wraps_when_full(void **state)
{
	struct shm_leg *f = *state;
	uint32_t posted = 0, got = 0;

	while (!post(f, posted, SRDMA_DESC_LEN))
		posted++;
	assert_int_equal(posted, SHM_RING);
	while (got < 500) {
		srdma_leg_shm_flush(f->host);
		for (int i = 0; i < SHM_RING / 4; i++)
			expect_desc(f, got++, SRDMA_DESC_LEN);
		while (!post(f, posted, SRDMA_DESC_LEN))
			posted++;
		assert_int_equal(posted - got, SHM_RING);
	}
}

static void test_descriptor_wakes_worker(void **state)
{
	struct shm_leg *f = *state;
	int fd = f->port->ops->fd(f->port);

	shm_expect_nothing(f->port);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	assert_int_equal(shm_readable(fd), 0);
	post(f, 1, SRDMA_DESC_LEN);
	srdma_leg_shm_flush(f->host);
	assert_int_equal(shm_readable(fd), 1);
	f->port->ops->disarm(f->port);
	expect_desc(f, 1, SRDMA_DESC_LEN);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	assert_int_equal(shm_readable(fd), 0);
	f->port->ops->disarm(f->port);
}

static void complete(struct shm_leg *f, uint32_t sequence)
{
	struct srdma_record r = { .id = sequence, .sequence = sequence };
	uint8_t record[SRDMA_RECORD_LEN];

	srdma_record_encode(record, &r);
	assert_int_equal(f->port->ops->complete(
				 f->leg, (sequence - 1) % SHM_RING, record),
			 0);
}

static void test_every_byte_of_record_arrives(void **state)
{
	struct shm_leg *f = *state;
	const uint8_t *ring = srdma_leg_shm_ring(f->host);
	uint8_t record[SRDMA_RECORD_LEN];

	for (uint8_t i = 0; i < SRDMA_RECORD_LEN; i++)
		record[i] = i + 1;
	assert_int_equal(f->port->ops->complete(f->leg, 1, record), 0);
	assert_memory_equal(ring + SRDMA_RECORD_LEN, record, sizeof(record));
}

static void test_record_wakes_host(void **state)
{
	struct shm_leg *f = *state;
	const uint8_t *ring = srdma_leg_shm_ring(f->host);
	int fd = srdma_leg_shm_fd(f->host);
	struct srdma_record r;

	complete(f, 1);
	f->port->ops->flush(f->port);
	assert_int_equal(shm_readable(fd), 0); /* the host is awake */
	srdma_record_decode(&r, ring);
	assert_int_equal(r.sequence, 1);
	srdma_leg_shm_arm(f->host, 0);
	complete(f, 64);
	assert_int_equal(shm_readable(fd), 0); /* not before the flush */
	f->port->ops->flush(f->port);
	assert_int_equal(shm_readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
	assert_int_equal(shm_readable(fd), 0);
	srdma_record_decode(&r, ring + 63 * SRDMA_RECORD_LEN);
	assert_int_equal(r.sequence, 64);
	/*
	 * The port's poll and arm ring the doorbell too, for a relay that does
	 * not flush.
	 */
	srdma_leg_shm_arm(f->host, 0);
	complete(f, 65);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	f->port->ops->disarm(f->port);
	assert_int_equal(shm_readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
}

static void test_room_wakes_host(void **state)
{
	struct shm_leg *f = *state;
	int fd = srdma_leg_shm_fd(f->host);

	while (!post(f, 0, SRDMA_DESC_LEN))
		;
	srdma_leg_shm_arm(f->host, 0); /* flushes */
	assert_null(srdma_leg_shm_slot(f->host));
	for (int i = 0; i < SHM_RING / 4; i++) {
		assert_int_equal(shm_readable(fd), 0);
		expect_desc(f, 0, SRDMA_DESC_LEN);
	}
	assert_int_equal(shm_readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
	assert_non_null(srdma_leg_shm_slot(f->host));
}

static void test_host_with_bad_tail_is_ended(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_shm ring;
	uint32_t tail = SHM_RING + 1;

	assert_int_equal(
		srdma_shm_map(&ring, srdma_leg_shm_fds(f->host)[0], 0, 4096, 1),
		0);
	memcpy(ring.at + SRDMA_RING_TAIL, &tail, sizeof(tail));
	assert_int_equal(f->port->ops->arm(f->port), 1);
	assert_int_equal(shm_expect(f->port, SRDMA_EV_DOWN).status, -EPROTO);
	shm_expect_nothing(f->port);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	f->port->ops->disarm(f->port);
	f->port->ops->close(f->leg);
	assert_int_equal(f->port->ops->buf_free(f->port), SRDMA_SHM_BUFS);
	srdma_shm_unmap(&ring);
}

static void test_too_long_descriptor_ends_leg(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_shm ring;
	uint32_t len = SRDMA_DESC_SLOT + 1;

	post(f, 1, SRDMA_DESC_LEN);
	assert_int_equal(
		srdma_shm_map(&ring, srdma_leg_shm_fds(f->host)[0], 0, 4096, 1),
		0);
	memcpy(ring.at + SRDMA_RING_SLOTS, &len, sizeof(len));
	srdma_leg_shm_flush(f->host);
	assert_int_equal(shm_expect(f->port, SRDMA_EV_DOWN).status, -EPROTO);
	srdma_shm_unmap(&ring);
}

/*
 * A program fills its socket and clears O_NONBLOCK, and does not read: the port
 * goes on with other legs.
 */
/* RFC 5042 R6.4.6-1, R07-2 */
static void test_hostile_host_does_not_block_others(void **state)
{
	struct shm_leg *f = *state;
	const int end = srdma_leg_shm_fds(f->host)[1];
	const uint64_t most = UINT64_MAX - 1; /* fills an eventfd too */
	struct srdma_leg_answer answer;
	struct srdma_leg_params p;
	struct srdma_leg_shm *other;
	struct srdma_conn *leg;
	struct srdma_event ev;
	uint8_t *slot;

	assert_int_equal(srdma_leg_shm_create(&other, SHM_RING), 0);
	p = shm_leg_params(other);
	assert_int_equal(f->port->ops->leg_open(f->port, &p, &leg, &answer), 0);
	assert_int_equal(srdma_leg_shm_attach(other, answer.fds), 0);
	shm_expect(f->port, SRDMA_EV_UP);
	while (write(end, &most, sizeof(most)) > 0)
		;
	assert_int_equal(fcntl(end, F_SETFL, 0), 0);
	alarm(10);
	for (uint32_t i = 1; i < 1000; i++) {
		srdma_leg_shm_arm(f->host, 1);
		srdma_leg_shm_arm(other, 0);
		complete(f, i);
		f->port->ops->flush(f->port);
		slot = srdma_leg_shm_slot(other);
		memset(slot, 0, SRDMA_DESC_LEN);
		srdma_leg_shm_post(other, SRDMA_DESC_LEN);
		srdma_leg_shm_flush(other);
		ev = shm_expect(f->port, SRDMA_EV_RECV);
		assert_ptr_equal(ev.conn, leg);
		f->port->ops->buf_put(ev.buf);
	}
	alarm(0);
	srdma_leg_shm_destroy(other);
}

static void refuse_leg(struct shm_leg *f, const struct srdma_leg_params *p,
		       int err)
{
	int fds = count_descriptors();
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;

	f->port->why = NULL;
	assert_int_equal(f->port->ops->leg_open(f->port, p, &leg, &answer),
			 err);
	assert_non_null(f->port->why);
	assert_int_equal(count_descriptors(), fds);
}

static void test_illegal_legs_are_refused(void **state)
{
	struct shm_leg *f = *state;
	size_t size = srdma_leg_layout_records_at(SHM_RING) + SHM_RING * 32;
	struct srdma_leg_params good = shm_leg_params(f->host), p;
	int eventfd = srdma_doorbell_eventfd();

	p = good;
	p.ring = 32;
	refuse_leg(f, &p, -EINVAL);
	p.ring = 96;
	refuse_leg(f, &p, -EINVAL);
	p.ring = 1u << 31;
	refuse_leg(f, &p, -EINVAL);
	p.ring = 128; /* exceeds the memory */
	refuse_leg(f, &p, -ERANGE);
	p = good;
	p.fds[0] = shm_memfd(size, 0);
	refuse_leg(f, &p, -EPERM);
	close(p.fds[0]);
	p.fds[0] = shm_memfd(size - 1, F_SEAL_SHRINK);
	refuse_leg(f, &p, -ERANGE);
	close(p.fds[0]);
	p.fds[0] = -1;
	refuse_leg(f, &p, -EPERM);
	p = good;
	p.fds[1] = eventfd;
	refuse_leg(f, &p, -EINVAL);
	p.fds[1] = -1;
	refuse_leg(f, &p, -EINVAL);
	p = good;
	p.fds[2] = p.fds[1];
	refuse_leg(f, &p, -EPERM);
	close(eventfd);
}

/* RFC 5042 A7.1a */
static void test_many_legs_are_served_fairly(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_leg_shm *host[8];
	struct srdma_leg_answer answer;
	struct srdma_event ev[32];
	struct srdma_conn *leg[8];
	uint8_t *slot;
	int got[8] = { 0 };

	for (int i = 0; i < 8; i++) {
		struct srdma_leg_params p;

		assert_int_equal(srdma_leg_shm_create(&host[i], SHM_RING), 0);
		p = shm_leg_params(host[i]);
		assert_int_equal(
			f->port->ops->leg_open(f->port, &p, &leg[i], &answer),
			0);
		assert_int_equal(srdma_leg_shm_attach(host[i], answer.fds), 0);
		shm_expect(f->port, SRDMA_EV_UP);
	}
	/* The rings of all legs are refilled in every turn. */
	for (int turn = 0; turn < 100; turn++) {
		int n;

		for (int i = 0; i < 8; i++) {
			while ((slot = srdma_leg_shm_slot(host[i])))
				srdma_leg_shm_post(host[i], SRDMA_DESC_LEN);
			srdma_leg_shm_flush(host[i]);
		}
		n = shm_poll(f->port, ev, 32);
		for (int i = 0; i < n; i++) {
			for (int k = 0; k < 8; k++)
				got[k] += ev[i].conn == leg[k];
			f->port->ops->buf_put(ev[i].buf);
		}
	}
	for (int i = 0; i < 8; i++) {
		assert_in_range(got[i], 350, 450);
		srdma_leg_shm_destroy(host[i]);
		f->port->ops->close(leg[i]);
	}
}

#define LEG(f)                                                                 \
	cmocka_unit_test_setup_teardown(f, shm_leg_setup, shm_leg_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_of_a_leg),
		LEG(test_descriptors_arrive),
		LEG(test_descriptor_ring_wraps_when_full),
		LEG(test_descriptor_wakes_worker),
		LEG(test_every_byte_of_record_arrives),
		LEG(test_record_wakes_host),
		LEG(test_room_wakes_host),
		LEG(test_host_with_bad_tail_is_ended),
		LEG(test_too_long_descriptor_ends_leg),
		LEG(test_hostile_host_does_not_block_others),
		LEG(test_illegal_legs_are_refused),
		LEG(test_many_legs_are_served_fairly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
