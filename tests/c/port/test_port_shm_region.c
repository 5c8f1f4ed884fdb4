/* Host memory of the shared-memory port: mapped, or in another process. */
#include "host/leg_shm.h"
#include "port/port.h"
#include "port/shm/port_shm.h"
#include "port/shm/port_shm_host.h"
#include "support/shm_leg.h"
#include "support/shm_pair.h"
#include "thread.h"
#include "wire/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	NOBODY = 65534,
	LOCAL_WRITE = 1,
	REMOTE_READ = 4,
	REMOTE_ATOMIC = 8,
	ROUNDS = 100000,
};

/* Opens a region, and waits until its memory was probed. */
static int open_at(struct srdma_port *port, struct srdma_conn *leg,
		   const struct srdma_region_params *p,
		   struct srdma_region **region)
{
	int r;

	port->why = NULL;
	r = port->ops->region_open(leg, p, region);
	if (r)
		return r;
	r = shm_region_ready(port, *region);
	if (r)
		port->ops->region_close(*region);
	return r;
}

static int open_region(struct shm_leg *f, const struct srdma_region_params *p,
		       struct srdma_region **region)
{
	return open_at(f->port, f->leg, p, region);
}

static void refuse_region(struct shm_leg *f,
			  const struct srdma_region_params *p, int err)
{
	struct srdma_region *region;

	assert_int_equal(open_region(f, p, &region), err);
	assert_non_null(f->port->why);
}

/* Writes text into the region at addr and reads it back. */
static void move_text(struct shm_leg *f, struct srdma_region *region,
		      uint64_t addr, const char *text)
{
	struct srdma_buf *buf = f->port->ops->buf_get(f->port);
	struct srdma_dma dma = {
		.region = region,
		.addr = addr,
		.len = (uint32_t)strlen(text),
		.buf = buf,
		.buf_at = 100,
	};

	memcpy(buf->data + 100, text, dma.len);
	assert_int_equal(shm_dma(f->port->ops->write, &dma), 1);
	memset(buf->data, 0, buf->cap);
	assert_int_equal(shm_dma(f->port->ops->read, &dma), 1);
	assert_memory_equal(buf->data + 100, text, dma.len);
	assert_int_equal(buf->data[99], 0);
	assert_int_equal(buf->data[100 + dma.len], 0);
	f->port->ops->buf_put(buf);
}

static void test_mapped_region(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_region *region;
	uint8_t *memory;
	void *at;
	int fd;

	assert_int_equal(srdma_leg_shm_region(0, &fd, &at), -EINVAL);
	assert_int_equal(srdma_leg_shm_region(10000, &fd, &at), 0);
	memory = at;
	{
		struct srdma_region_params p = {
			.addr = (uintptr_t)memory + 5000,
			.length = 7288, /* to the end of the third page */
			.access = LOCAL_WRITE | REMOTE_READ,
			.fd = fd,
			.fd_offset = 5000,
		};

		assert_int_equal(open_region(f, &p, &region), 0);
		assert_int_equal(region->base, p.addr);
		assert_int_equal(region->length, p.length);
		move_text(f, region, p.addr + 1, "text");
		assert_memory_equal(memory + 5001, "text", 4);
		move_text(f, region, p.addr + p.length - 4, "last");
		for (uint64_t off = 0; off < 8;
		     off++) { /* one of them is aligned */
			move_text(f, region, p.addr + off, "8 bytes!");
			assert_memory_equal(memory + 5000 + off, "8 bytes!", 8);
		}
		p.length++;
		refuse_region(f, &p, -ERANGE);
	}
	/* A host that discards its pages causes zeros, not a signal. */
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(fallocate(fd,
				   FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				   0, 12288),
			 0);
	move_text(f, region, (uintptr_t)memory + 6000, "again");
	f->port->ops->region_close(region);
	srdma_leg_shm_region_free(memory, 10000);
	close(fd);
}

/* RFC 5042 R7.3-1, R2.2.2-1 */
static void test_illegal_regions_are_refused(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_region_params p = { .addr = 4096, .length = 4096 };
	struct srdma_region *region;

	p.fd = shm_memfd(4096, 0);
	refuse_region(f, &p, -EPERM);
	assert_non_null(strstr(f->port->why, "pd.alloc()"));
	assert_int_equal(fcntl(p.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	p.fd_offset = 1;
	refuse_region(f, &p, -ERANGE);
	p.fd_offset = UINT64_MAX - 100;
	refuse_region(f, &p, -ERANGE);
	p.fd_offset = 0;
	p.length = 0;
	refuse_region(f, &p, -EINVAL);
	p.length = 4096;
	p.addr = UINT64_MAX - 100;
	refuse_region(f, &p, -EINVAL);
	p.addr = 4096;
	assert_int_equal(fcntl(p.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	p.access = LOCAL_WRITE;
	refuse_region(f, &p, -EPERM);
	p.access = REMOTE_READ;
	assert_int_equal(open_region(f, &p, &region), 0);
	f->port->ops->region_close(region);
	close(p.fd);
	p.fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	refuse_region(f, &p, -EPERM);
	close(p.fd);
	/* A fault in huge pages raises SIGBUS if none is free. */
	p.fd = memfd_create("test", MFD_HUGETLB | MFD_ALLOW_SEALING);
	if (p.fd >= 0) {
		assert_int_equal(ftruncate(p.fd, 1 << 30), 0);
		assert_int_equal(fcntl(p.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
		refuse_region(f, &p, -EPERM);
		close(p.fd);
	}
	/* A file of a mounted tmpfs has another size limit, and no seals. */
	p.fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (p.fd >= 0) {
		assert_int_equal(ftruncate(p.fd, 4096), 0);
		assert_int_equal(fcntl(p.fd, F_ADD_SEALS, F_SEAL_SHRINK), -1);
		refuse_region(f, &p, -EPERM);
		close(p.fd);
	}
}

/* Memory of the own process by process_vm_*, which is always permitted. */
static void test_unmapped_region(void **state)
{
	struct shm_leg *f = *state;
	static uint8_t memory[10000];
	struct srdma_region *region;
	struct srdma_region_params p = {
		.addr = (uintptr_t)memory + 3,
		.length = sizeof(memory) - 3,
		.access = LOCAL_WRITE,
		.fd = -1,
	};

	skip_without_process_vm();
	assert_int_equal(open_region(f, &p, &region), 0);
	move_text(f, region, p.addr + 5000, "far");
	assert_memory_equal(memory + 5003, "far", 3);
	f->port->ops->region_close(region);
	p.addr = 16; /* never mapped */
	refuse_region(f, &p, -EFAULT);
	p.addr = (uintptr_t)memory;
	p.length = UINT64_C(1) << 46; /* ends in unmapped memory */
	refuse_region(f, &p, -EFAULT);
}

/* --- atomics -------------------------------------------------------------- */

/* Executes an atomic and returns the original value. */
static uint64_t change(struct shm_leg *f, struct srdma_region *region,
		       uint64_t addr, struct srdma_atomic how)
{
	struct srdma_buf *buf = f->port->ops->buf_get(f->port);
	struct srdma_dma dma = { .region = region,
				 .addr = addr,
				 .len = SRDMA_ATOMIC_LEN,
				 .buf = buf,
				 .buf_at = 24 };
	uint64_t original;

	assert_int_equal(shm_atomic(&dma, &how), 1);
	memcpy(&original, buf->data + 24, sizeof(original));
	f->port->ops->buf_put(buf);
	return original;
}

static void check_values(struct shm_leg *f, struct srdma_region *region,
			 uint64_t *number)
{
	const uint64_t at = (uintptr_t)number;
	const struct srdma_atomic add = { SRDMA_ATOMIC_FETCH_ADD, 7, 0 };

	number[-1] = number[1] = UINT64_MAX;
	*number = UINT64_MAX;
	assert_true(change(f, region, at, add) == UINT64_MAX);
	assert_int_equal(*number, 6);
	assert_int_equal(change(f, region, at,
				(struct srdma_atomic){
					SRDMA_ATOMIC_COMPARE_SWAP, 99, 6 }),
			 6);
	assert_int_equal(*number, 99);
	assert_int_equal(change(f, region, at,
				(struct srdma_atomic){
					SRDMA_ATOMIC_COMPARE_SWAP, 1, 6 }),
			 99);
	assert_int_equal(*number, 99);
	assert_true(number[-1] == UINT64_MAX && number[1] == UINT64_MAX);
}

static void *count(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		__atomic_fetch_add((uint64_t *)arg, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Mapped: atomic with respect to threads of the host as well. */
static void test_atomics_mapped(void **state)
{
	const struct srdma_atomic add = { SRDMA_ATOMIC_FETCH_ADD, 1, 0 };
	struct shm_leg *f = *state;
	struct srdma_region_params p = { .length = 4000,
					 .access = LOCAL_WRITE | REMOTE_ATOMIC,
					 .fd_offset = 96 };
	struct srdma_region *region;
	pthread_t thread;
	uint64_t *number;
	void *at;

	assert_int_equal(srdma_leg_shm_region(4096, &p.fd, &at), 0);
	number = (uint64_t *)at + 50;
	p.addr = (uintptr_t)at + 96;
	assert_int_equal(open_region(f, &p, &region), 0);
	check_values(f, region, number);
	*number = 0;
	assert_int_equal(pthread_create(&thread, NULL, count, number), 0);
	for (int i = 0; i < ROUNDS; i++)
		change(f, region, (uintptr_t)number, add);
	pthread_join(thread, NULL);
	assert_int_equal(*number, 2 * ROUNDS);
	f->port->ops->region_close(region);
	for (int off = 1; off < 8; off++) {
		p.addr = (uintptr_t)at + 96 + (uint64_t)off;
		p.access = LOCAL_WRITE | REMOTE_ATOMIC;
		refuse_region(f, &p, -EINVAL);
		assert_non_null(strstr(f->port->why, "modulo 8"));
		p.access = LOCAL_WRITE; /* only atomics need alignment */
		assert_int_equal(open_region(f, &p, &region), 0);
		f->port->ops->region_close(region);
	}
	p.addr = (uintptr_t)at + 96; /* aligned, but not in the memfd */
	p.access = LOCAL_WRITE | REMOTE_ATOMIC;
	p.fd_offset = 97;
	p.length = 8;
	refuse_region(f, &p, -EINVAL);
	srdma_leg_shm_region_free(at, 4096);
	close(p.fd);
}

/* Unmapped: atomic only with respect to the worker's own accesses. */
static void test_atomics_unmapped(void **state)
{
	static const uint64_t constant = 5;
	static uint64_t memory[9];
	const struct srdma_atomic add = { SRDMA_ATOMIC_FETCH_ADD, 1, 0 };
	const struct srdma_atomic same = { SRDMA_ATOMIC_COMPARE_SWAP, 1, 4 };
	struct shm_leg *f = *state;
	struct srdma_region_params p = { .addr = (uintptr_t)memory + 3,
					 .length = sizeof(memory) - 3,
					 .access = LOCAL_WRITE | REMOTE_ATOMIC,
					 .fd = -1 };
	struct srdma_region *region;
	struct srdma_dma dma = { .addr = (uintptr_t)&constant,
				 .len = SRDMA_ATOMIC_LEN,
				 .buf = f->port->ops->buf_get(f->port) };

	skip_without_process_vm();
	assert_int_equal(open_region(f, &p, &region), 0);
	check_values(f, region, &memory[4]);
	f->port->ops->region_close(region);
	p.addr = dma.addr;
	p.length = sizeof(constant);
	assert_int_equal(open_region(f, &p, &region), 0);
	dma.region = region;
	assert_int_equal(shm_atomic(&dma, &same), 1);
	assert_int_equal(shm_atomic(&dma, &add), -EFAULT);
	f->port->ops->region_close(region);
}

/* RFC 5042 R7.3-1 */
static void test_read_only_memory_fails_dma(void **state)
{
	struct shm_leg *f = *state;
	static const uint8_t constant[8192] = { 1 };
	struct srdma_region *region;
	struct srdma_region_params p = {
		.addr = (uintptr_t)constant,
		.length = sizeof(constant),
		.access = LOCAL_WRITE,
		.fd = -1,
	};
	struct srdma_buf *buf = f->port->ops->buf_get(f->port);
	struct srdma_dma dma = { .addr = p.addr, .len = 1, .buf = buf };

	skip_without_process_vm();
	assert_int_equal(open_region(f, &p, &region), 0);
	dma.region = region;
	assert_int_equal(shm_dma(f->port->ops->read, &dma), 1);
	assert_int_equal(buf->data[0], 1);
	assert_int_equal(shm_dma(f->port->ops->write, &dma), -EFAULT);
	f->port->ops->region_close(region);
}

static void test_dead_process_fails_dma(void **state)
{
	struct shm_leg *f = *state;
	static uint8_t memory[64];
	struct srdma_region *region;
	struct srdma_conn *leg;
	struct srdma_region_params p = { .addr = (uintptr_t)memory,
					 .length = sizeof(memory),
					 .fd = -1 };
	struct srdma_dma dma = { .addr = p.addr, .len = 1 };
	const struct srdma_atomic add = { SRDMA_ATOMIC_FETCH_ADD, 1, 0 };
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	leg = shm_leg_open(f, shm_leg_params(f->host), pid);
	if (open_at(f->port, leg, &p, &region)) {
		assert_non_null(strstr(f->port->why, "pd.alloc()"));
		print_message("this kernel refuses process_vm_readv\n");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		f->port->ops->close(leg);
		return;
	}
	dma.region = region;
	dma.buf = f->port->ops->buf_get(f->port);
	assert_int_equal(shm_dma(f->port->ops->read, &dma), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(shm_dma(f->port->ops->read, &dma), -ESRCH);
	assert_int_equal(shm_dma(f->port->ops->write, &dma), -ESRCH);
	dma.len = SRDMA_ATOMIC_LEN;
	assert_int_equal(shm_atomic(&dma, &add), -ESRCH);
	f->port->ops->region_close(region);
	assert_int_equal(open_at(f->port, leg, &p, &region), -ESRCH);
	f->port->ops->close(leg);
}

/*
 * A worker of another user may not access this process; the error names the
 * remedy.
 */
static int nobodys_worker(int parent)
{
	static uint8_t memory[64];
	struct srdma_leg_shm *host;
	struct srdma_leg_answer answer;
	struct srdma_leg_params params;
	struct srdma_region *region;
	struct srdma_region_params p = { .addr = (uintptr_t)memory,
					 .length = sizeof(memory),
					 .fd = -1 };
	struct srdma_port *port;
	struct srdma_conn *leg;

	if (setuid(NOBODY) || srdma_port_shm_create_host(&port, thread_start) ||
	    srdma_leg_shm_create(&host, SHM_RING))
		return 1;
	params = shm_leg_params(host);
	params.pid = parent;
	if (port->ops->leg_open(port, &params, &leg, &answer))
		return 2;
	if (open_at(port, leg, &p, &region) != -EPERM)
		return 3;
	return strstr(port->why, "pd.alloc()") ? 0 : 4;
}

/* RFC 5042 R7.3-1, A6.5a, A7.3 */
static void test_process_of_other_user_is_refused(void **state)
{
	int parent = getpid(), status;
	pid_t pid;

	(void)state;
	skip_without_process_vm();
	if (geteuid()) {
		print_message("needs root to become another user\n");
		skip();
	}
	pid = fork();
	if (!pid)
		_exit(nobodys_worker(parent));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* RFC 5042 A7.3 */
static void test_unmapped_region_needs_process(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_leg_params params = shm_leg_params(f->host);
	struct srdma_leg_answer answer;
	struct srdma_region *region;
	struct srdma_region_params p = { .addr = 4096, .length = 1, .fd = -1 };
	struct srdma_conn *leg;

	params.pid = 0;
	assert_int_equal(
		f->port->ops->leg_open(f->port, &params, &leg, &answer), 0);
	assert_int_equal(open_at(f->port, leg, &p, &region), -ESRCH);
	assert_non_null(strstr(f->port->why, "pd.alloc()"));
	f->port->ops->close(leg);
}

static void test_write_wakes_host_armed_for_memory(void **state)
{
	struct shm_leg *f = *state;
	int fd = srdma_leg_shm_fd(f->host), memory;
	struct srdma_region *region;
	struct srdma_region_params p = { .addr = 4096,
					 .length = 4096,
					 .access = LOCAL_WRITE };
	void *at;

	assert_int_equal(srdma_leg_shm_region(4096, &memory, &at), 0);
	p.fd = memory;
	assert_int_equal(open_region(f, &p, &region), 0);
	srdma_leg_shm_arm(f->host, 0);
	move_text(f, region, 4096, "quiet");
	f->port->ops->flush(f->port);
	assert_int_equal(shm_readable(fd), 0);
	srdma_leg_shm_arm(f->host, 1);
	move_text(f, region, 4096, "loud");
	f->port->ops->flush(f->port);
	assert_int_equal(shm_readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
	f->port->ops->region_close(region);
	srdma_leg_shm_region_free(at, 4096);
	close(memory);
}

#define LEG(f)                                                                 \
	cmocka_unit_test_setup_teardown(f, shm_leg_setup, shm_leg_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LEG(test_mapped_region),
		LEG(test_illegal_regions_are_refused),
		LEG(test_unmapped_region),
		LEG(test_atomics_mapped),
		LEG(test_atomics_unmapped),
		LEG(test_read_only_memory_fails_dma),
		LEG(test_dead_process_fails_dma),
		cmocka_unit_test(test_process_of_other_user_is_refused),
		LEG(test_unmapped_region_needs_process),
		LEG(test_write_wakes_host_armed_for_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
