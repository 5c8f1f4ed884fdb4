#include "port/shm/ring.h"

#include "port/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { SLOTS = 4, SIZE = 24 };

/*
 * Both ends of a ring, and its shared words as a hostile peer could write them.
 */
struct fixture {
	_Alignas(64) uint8_t bytes[SRDMA_RING_SLOTS + SLOTS * (8 + SIZE)];
	struct srdma_ring tx, rx;
};

static int setup(void **state)
{
	static struct fixture f;

	memset(&f, 0, sizeof(f));
	assert_int_equal(srdma_ring_bytes(SLOTS, SIZE), sizeof(f.bytes));
	srdma_ring_init(&f.tx, f.bytes, SLOTS, SIZE);
	srdma_ring_init(&f.rx, f.bytes, SLOTS, SIZE);
	*state = &f;
	return 0;
}

static void lie(struct fixture *f, uint32_t at, uint32_t value)
{
	memcpy(f->bytes + at, &value, sizeof(value));
}

static int put(struct fixture *f, uint8_t value)
{
	uint8_t *slot = srdma_ring_reserve(&f->tx);

	if (!slot)
		return 0;
	memset(slot, value, SIZE);
	assert_int_equal(srdma_ring_commit(&f->tx, SIZE), 0);
	return 1;
}

static int get(struct fixture *f)
{
	uint8_t out[SIZE];
	int r = srdma_ring_take(&f->rx, out, sizeof(out));

	if (r <= 0)
		return r;
	assert_int_equal(r, SIZE);
	assert_int_equal(out[0], out[SIZE - 1]);
	return out[0];
}

/* The prefetch returns the next shown elements in order, and no others. */
static void test_prefetch_returns_next_elements(void **state)
{
	struct fixture *f = *state;

	for (uint8_t lap = 0; lap < 10; lap++) {
		assert_null(srdma_ring_ahead(&f->rx, 0));
		for (uint8_t i = 1; i <= 3; i++)
			put(f, lap * 3 + i);
		assert_null(srdma_ring_ahead(&f->rx, 0));
		srdma_ring_show(&f->tx);
		for (uint8_t i = 1; i <= 3; i++)
			assert_int_equal(*srdma_ring_ahead(&f->rx, i - 1),
					 lap * 3 + i);
		assert_null(srdma_ring_ahead(&f->rx, 3));
		for (uint8_t i = 1; i <= 3; i++)
			assert_int_equal(get(f), lap * 3 + i);
		srdma_ring_give(&f->rx);
	}
	lie(f, SRDMA_RING_TAIL, f->rx.mine + SLOTS + 1);
	assert_null(srdma_ring_ahead(&f->rx, 0));
}

static void test_order_and_bursts(void **state)
{
	struct fixture *f = *state;
	uint8_t next_in = 1, next_out = 1;

	for (int lap = 0; lap < 100; lap++) {
		for (int i = 0; i < 1 + lap % SLOTS; i++)
			assert_int_equal(put(f, (uint8_t)(next_in++ | 1)), 1);
		assert_int_equal(get(f), 0);
		assert_int_equal(srdma_ring_has_data(&f->rx), 0);
		assert_int_equal(srdma_ring_show(&f->tx), 1);
		assert_int_equal(srdma_ring_show(&f->tx), 0);
		assert_int_equal(srdma_ring_has_data(&f->rx), 1);
		for (int i = 0; i < 1 + lap % SLOTS; i++)
			assert_int_equal(get(f), (uint8_t)(next_out++ | 1));
		assert_int_equal(get(f), 0);
		srdma_ring_give(&f->rx);
	}
}

static void test_counters_wrap(void **state)
{
	struct fixture *f = *state;

	f->tx.mine = f->tx.shown = f->tx.theirs = UINT32_MAX - 1;
	f->rx.mine = f->rx.shown = f->rx.theirs = UINT32_MAX - 1;
	lie(f, SRDMA_RING_HEAD, UINT32_MAX - 1);
	lie(f, SRDMA_RING_TAIL, UINT32_MAX - 1);
	for (uint8_t i = 1; i <= SLOTS; i++)
		assert_int_equal(put(f, i), 1);
	assert_int_equal(put(f, 9), 0);
	srdma_ring_show(&f->tx);
	for (uint8_t i = 1; i <= SLOTS; i++)
		assert_int_equal(get(f), i);
	assert_int_equal(f->rx.mine, SLOTS - 2);
}

static void test_room_is_reported_once_after_full(void **state)
{
	struct fixture *f = *state;

	for (uint8_t i = 1; i <= SLOTS; i++)
		assert_int_equal(put(f, i), 1);
	assert_int_equal(srdma_ring_has_room(&f->tx), 0);
	assert_null(srdma_ring_reserve(&f->tx));
	assert_int_equal(srdma_ring_has_room(&f->tx), 0);
	srdma_ring_show(&f->tx);
	assert_int_equal(get(f), 1);
	assert_int_equal(srdma_ring_has_room(&f->tx), 0);
	/*
	 * The ring was full, so that its producer may be asleep: give reports
	 * that it must be woken, once.
	 */
	assert_int_equal(srdma_ring_give(&f->rx), 1);
	assert_int_equal(srdma_ring_give(&f->rx), 0);
	assert_int_equal(srdma_ring_has_room(&f->tx), 1);
	assert_int_equal(srdma_ring_has_room(&f->tx), 0); /* reported once */
	assert_non_null(srdma_ring_reserve(&f->tx));
	assert_int_equal(get(f), 2);
	assert_int_equal(srdma_ring_give(&f->rx), 0);
}

static void test_illegal_lengths_are_refused(void **state)
{
	struct fixture *f = *state;

	assert_non_null(srdma_ring_reserve(&f->tx));
	assert_int_equal(srdma_ring_commit(&f->tx, 0), -EMSGSIZE);
	assert_int_equal(srdma_ring_commit(&f->tx, SIZE + 1), -EMSGSIZE);
	assert_int_equal(srdma_ring_show(&f->tx), 0);
}

static void test_hostile_length_breaks_ring(void **state)
{
	static const uint32_t lengths[] = { 0, SIZE + 1, 0x80000000,
					    UINT32_MAX };
	uint8_t out[2 * SIZE];

	for (size_t i = 0; i < 4; i++) {
		struct fixture *f;

		setup(state);
		f = *state;
		lie(f, SRDMA_RING_SLOTS, lengths[i]);
		lie(f, SRDMA_RING_TAIL, 1);
		/* also with a buffer that is larger than a slot */
		assert_int_equal(srdma_ring_take(&f->rx, out, sizeof(out)),
				 -EPROTO);
		assert_int_equal(get(f), -EPROTO); /* permanently */
		assert_int_equal(srdma_ring_has_data(&f->rx), 1);
	}
}

static void test_element_longer_than_buffer_is_refused(void **state)
{
	struct fixture *f = *state;
	uint8_t out[SIZE - 1];

	put(f, 1);
	srdma_ring_show(&f->tx);
	assert_int_equal(srdma_ring_take(&f->rx, out, sizeof(out)), -EPROTO);
}

static void test_hostile_tail_breaks_ring(void **state)
{
	static const uint32_t tails[] = { SLOTS + 1, 0x80000000, UINT32_MAX };

	for (size_t i = 0; i < 3; i++) {
		struct fixture *f;

		setup(state);
		f = *state;
		lie(f, SRDMA_RING_TAIL, tails[i]);
		assert_int_equal(get(f), -EPROTO);
	}
}

static void test_hostile_head_breaks_ring(void **state)
{
	struct fixture *f = *state;

	for (uint8_t i = 1; i <= SLOTS; i++)
		put(f, i);
	lie(f, SRDMA_RING_HEAD, SLOTS + 1); /* consumed more than was put */
	assert_null(srdma_ring_reserve(&f->tx));
	assert_true(f->tx.broken);
	lie(f, SRDMA_RING_HEAD, SLOTS);
	assert_null(srdma_ring_reserve(&f->tx));
	/* so that the caller notices the error */
	assert_int_equal(srdma_ring_has_room(&f->tx), 1);
}

static void test_frozen_ring_ends_at_frozen_tail(void **state)
{
	struct fixture *f = *state;

	put(f, 1);
	put(f, 2);
	srdma_ring_show(&f->tx);
	srdma_ring_freeze(&f->rx);
	put(f, 3);
	srdma_ring_show(&f->tx);
	assert_int_equal(get(f), 1);
	assert_int_equal(get(f), 2);
	assert_int_equal(get(f), 0);
	assert_int_equal(srdma_ring_has_data(&f->rx), 0);
}

/* --- memory --------------------------------------------------------------- */

static int memfd(size_t len, unsigned int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void test_own_memory_is_accepted(void **state)
{
	struct srdma_shm mine, theirs;
	int fd = srdma_shm_create(&mine, "test", 10000);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(srdma_shm_map(&theirs, fd, 5000, 5000, 1), 0);
	theirs.at[0] = 7;
	assert_int_equal(mine.at[5000], 7);
	srdma_shm_unmap(&theirs);
	srdma_shm_unmap(&theirs);
	assert_int_equal(srdma_shm_map(&theirs, fd, 5001, 5000, 1), -ERANGE);
	assert_int_equal(srdma_shm_map(&theirs, fd, 0, 0, 1), -ERANGE);
	assert_int_equal(srdma_shm_map(&theirs, fd, UINT64_MAX - 10, 100, 1),
			 -ERANGE);
	srdma_shm_unmap(&mine);
	close(fd);
}

static void test_unsealed_memory_is_refused(void **state)
{
	struct srdma_shm shm;
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), fd;
	int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	(void)state;
	fd = memfd(8192, 0);
	assert_int_equal(srdma_shm_map(&shm, fd, 0, 4096, 1), -EPERM);
	close(fd);
	fd = memfd(8192, F_SEAL_GROW);
	assert_int_equal(srdma_shm_map(&shm, fd, 0, 4096, 1), -EPERM);
	close(fd);
	fd = memfd(4095, F_SEAL_SHRINK);
	assert_int_equal(srdma_shm_map(&shm, fd, 0, 4096, 1), -ERANGE);
	close(fd);
	fd = memfd(4096, F_SEAL_SHRINK | F_SEAL_WRITE);
	assert_int_equal(srdma_shm_map(&shm, fd, 0, 4096, 1), -EPERM);
	assert_int_equal(srdma_shm_map(&shm, fd, 0, 4096, 0), 0);
	srdma_shm_unmap(&shm);
	close(fd);
	assert_int_equal(srdma_shm_map(&shm, null, 0, 1, 0), -EPERM);
	assert_int_equal(srdma_shm_map(&shm, file, 0, 1, 0), -EPERM);
	assert_int_equal(srdma_shm_map(&shm, -1, 0, 1, 0), -EPERM);
	close(null);
	close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_prefetch_returns_next_elements,
				       setup),
		cmocka_unit_test_setup(test_order_and_bursts, setup),
		cmocka_unit_test_setup(test_counters_wrap, setup),
		cmocka_unit_test_setup(test_room_is_reported_once_after_full,
				       setup),
		cmocka_unit_test_setup(test_illegal_lengths_are_refused, setup),
		cmocka_unit_test(test_hostile_length_breaks_ring),
		cmocka_unit_test_setup(
			test_element_longer_than_buffer_is_refused, setup),
		cmocka_unit_test(test_hostile_tail_breaks_ring),
		cmocka_unit_test_setup(test_hostile_head_breaks_ring, setup),
		cmocka_unit_test_setup(test_frozen_ring_ends_at_frozen_tail,
				       setup),
		cmocka_unit_test(test_own_memory_is_accepted),
		cmocka_unit_test(test_unsealed_memory_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
