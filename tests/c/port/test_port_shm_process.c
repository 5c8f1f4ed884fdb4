/*
 * Memory of other processes that blocks who copies it (docs/local-interface.md
 * 4.4): a neighbour's traffic goes on, and the leg of the process ends.
 */
#include "port/shm/port_shm_process.h"

#include "base/time.h"
#include "port/shm/port_shm.h"
#include "support/shm_leg.h"
#include "support/shm_pair.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	LOCAL_WRITE = 1,
	PAGES = 3,
	LENGTH = PAGES * 4096,
	MIDDLE = 4096,
	LIMIT_MS = SRDMA_SHM_COPY_LIMIT_MS + SRDMA_SHM_COPY_LOOK_MS,
};

/*
 * A process whose pages are absent. A fault in them waits for a handler in user
 * space, which does not exist; those of `present` were filled before.
 */
struct hostile {
	pid_t pid;
	uint8_t *memory; /* at the same address in both processes */
	struct srdma_conn *leg;
	struct srdma_region *region;
};

static int watch(uint8_t *memory)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)memory, LENGTH },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);

	return fd < 0 || ioctl(fd, UFFDIO_API, &api) ||
	       ioctl(fd, UFFDIO_REGISTER, &range);
}

static void be_hostile(uint8_t *memory, unsigned present, int ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* of a test that fails */
	for (unsigned i = 0; i < PAGES; i++)
		if (present >> i & 1)
			memory[i * 4096] = 1;
	if (watch(memory) || write(ready, "r", 1) != 1)
		_exit(1);
	pause();
	_exit(0);
}

static void hostile_start(struct hostile *h, unsigned present)
{
	int ready[2];
	char byte;

	*h = (struct hostile){ 0 };
	h->memory = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(h->memory != MAP_FAILED);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	h->pid = fork();
	if (!h->pid) {
		close(ready[0]);
		be_hostile(h->memory, present, ready[1]);
	}
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1) {
		waitpid(h->pid, NULL, 0);
		print_message("no userfaultfd, or no process_vm_readv, here\n");
		skip();
	}
	close(ready[0]);
}

static void hostile_end(struct hostile *h)
{
	kill(h->pid, SIGKILL);
	waitpid(h->pid, NULL, 0);
	munmap(h->memory, LENGTH);
}

static struct srdma_conn *open_leg(struct shm_leg *f, pid_t pid)
{
	struct srdma_conn *leg = shm_leg_open(f, shm_leg_params(f->host), pid);

	assert_ptr_equal(shm_expect(f->port, SRDMA_EV_UP).conn, leg);
	return leg;
}

static int open_region(struct srdma_conn *leg, const void *memory,
		       size_t length, struct srdma_region **region)
{
	const struct srdma_region_params p = {
		.addr = (uintptr_t)memory,
		.length = length,
		.access = LOCAL_WRITE,
		.fd = -1,
	};

	return leg->port->ops->region_open(leg, &p, region);
}

/* Memory of this process, on the leg of the fixture, is reached as before. */
static void neighbour_goes_on(struct shm_leg *f)
{
	static uint8_t memory[8192];
	struct srdma_region *region;
	struct srdma_buf *buf = f->port->ops->buf_get(f->port);
	struct srdma_dma dma = { .addr = (uintptr_t)memory + 100,
				 .len = 4,
				 .buf = buf,
				 .cookie = 99 };

	assert_int_equal(open_region(f->leg, memory, sizeof(memory), &region),
			 0);
	assert_int_equal(shm_region_ready(f->port, region), 0);
	dma.region = region;
	memcpy(buf->data, "text", 4);
	memset(memory, 0, sizeof(memory));
	assert_int_equal(shm_dma(f->port->ops->write, &dma), 1);
	assert_memory_equal(memory + 100, "text", 4);
	f->port->ops->region_close(region);
	f->port->ops->buf_put(buf);
}

/* Looks every second, from 1 s on. Returns after ms. */
static void pass(struct shm_leg *f, uint64_t ms)
{
	for (uint64_t now = 1000; now <= 1000 + ms;
	     now += SRDMA_SHM_COPY_LOOK_MS)
		assert_true(f->port->ops->keepalive(f->port, now * SRDMA_MS) ==
			    (now + SRDMA_SHM_COPY_LOOK_MS) * SRDMA_MS);
}

static void expect_down(struct shm_leg *f, const struct srdma_conn *leg)
{
	const struct srdma_event ev = shm_expect(f->port, SRDMA_EV_DOWN);

	assert_ptr_equal(ev.conn, leg);
	assert_int_equal(ev.status, -ETIMEDOUT);
}

static void test_probe_that_blocks(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_region *again;
	struct srdma_conn *second;
	struct hostile h;

	hostile_start(&h, 0);
	h.leg = open_leg(f, h.pid);
	assert_int_equal(open_region(h.leg, h.memory, LENGTH, &h.region), 0);
	neighbour_goes_on(f);
	pass(f, SRDMA_SHM_COPY_LIMIT_MS - SRDMA_SHM_COPY_LOOK_MS);
	assert_int_equal(f->port->ops->region_ready(h.region), -EINPROGRESS);
	shm_expect_nothing(f->port);
	pass(f, LIMIT_MS);
	expect_down(f, h.leg);
	assert_int_equal(f->port->ops->region_ready(h.region), -ETIMEDOUT);
	f->port->ops->region_close(h.region);
	f->port->ops->close(h.leg);
	/* The process gets no second thread. */
	second = open_leg(f, h.pid);
	assert_int_equal(open_region(second, h.memory, LENGTH, &again), -EBUSY);
	assert_non_null(strstr(f->port->why, "did not answer for 4 s"));
	f->port->ops->close(second);
	neighbour_goes_on(f);
	hostile_end(&h);
}

/* The worker's memory is not touched when a late copy ends. */
static void test_dma_that_blocks(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_buf *buf[2];
	struct srdma_dma dma;
	struct hostile h;

	hostile_start(&h, 5);
	h.leg = open_leg(f, h.pid);
	assert_int_equal(open_region(h.leg, h.memory, LENGTH, &h.region), 0);
	assert_int_equal(shm_region_ready(f->port, h.region), 0);
	for (uint64_t i = 0; i < 2; i++) {
		buf[i] = f->port->ops->buf_get(f->port);
		memset(buf[i]->data, 7, 64);
		dma = (struct srdma_dma){ .region = h.region,
					  .addr = (uintptr_t)h.memory + MIDDLE,
					  .len = 64,
					  .buf = buf[i],
					  .cookie = i };
		assert_int_equal(i ? f->port->ops->write(&dma)
				   : f->port->ops->read(&dma),
				 0);
	}
	neighbour_goes_on(f);
	pass(f, LIMIT_MS);
	for (uint64_t i = 0; i < 2; i++) {
		const struct srdma_event ev =
			shm_expect(f->port, SRDMA_EV_DMA_DONE);

		assert_true(ev.cookie == i && ev.conn == h.leg);
		assert_int_equal(ev.status, -ETIMEDOUT);
	}
	assert_int_equal(f->port->ops->write(&dma), -ETIMEDOUT);
	expect_down(f, h.leg);
	hostile_end(&h); /* ends the copy */
	for (int i = 0; i < 100; i++)
		sched_yield();
	for (int i = 0; i < 64; i++)
		assert_int_equal(buf[0]->data[i], 7);
	f->port->ops->region_close(h.region);
	f->port->ops->close(h.leg);
	/* Only the copier of the neighbour is left. */
	while (((struct srdma_shm_host *)f->port)->process_count > 1) {
		f->port->ops->keepalive(f->port, SRDMA_SECOND);
		sched_yield();
	}
	for (int i = 0; i < 2; i++)
		f->port->ops->buf_put(buf[i]);
}

/* --- order ---------------------------------------------------------------- */

/* Behind a copy, DMA in mapped memory and records wait. */
static void test_order_of_a_leg(void **state)
{
	static uint8_t memory[8192];
	struct shm_leg *f = *state;
	struct srdma_region_params p = { .length = 4096,
					 .access = LOCAL_WRITE };
	const uint8_t record[SRDMA_RECORD_LEN] = { [28] = 1 };
	struct srdma_region *copied, *mapped;
	struct srdma_dma dma = { .len = 1,
				 .buf = f->port->ops->buf_get(f->port) };
	uint8_t *ring = srdma_shm_leg_of(f->leg)->records;
	void *at;

	skip_without_process_vm();
	assert_int_equal(srdma_leg_shm_region(4096, &p.fd, &at), 0);
	p.addr = (uintptr_t)at;
	assert_int_equal(f->port->ops->region_open(f->leg, &p, &mapped), 0);
	assert_int_equal(f->port->ops->region_ready(mapped), 0);
	assert_int_equal(open_region(f->leg, memory, sizeof(memory), &copied),
			 0);
	assert_int_equal(shm_region_ready(f->port, copied), 0);
	dma.buf->data[0] = 9;
	dma.region = copied;
	dma.addr = (uintptr_t)memory;
	dma.cookie = 1;
	assert_int_equal(f->port->ops->write(&dma), 0);
	dma.region = mapped;
	dma.addr = (uintptr_t)at;
	dma.cookie = 2;
	assert_int_equal(f->port->ops->write(&dma), 0);
	assert_int_equal(f->port->ops->complete(f->leg, 0, record), 0);
	assert_int_equal(*(uint8_t *)at, 0);
	assert_int_equal(ring[28], 0);
	for (uint64_t i = 1; i < 3; i++) {
		struct srdma_event ev = { 0 };

		assert_int_equal(*(uint8_t *)at, 0);
		while (ev.kind != SRDMA_EV_DMA_DONE)
			f->port->ops->poll(f->port, &ev, 1);
		assert_true(ev.cookie == i && !ev.status);
		assert_int_equal(memory[0], 9);
	}
	assert_int_equal(*(uint8_t *)at, 9);
	while (!ring[28])
		f->port->ops->poll(f->port, &(struct srdma_event){ 0 }, 1);
	assert_int_equal(f->port->ops->write(&dma), 1); /* nothing waits */
	f->port->ops->region_close(mapped);
	f->port->ops->region_close(copied);
	srdma_leg_shm_region_free(at, 4096);
	close(p.fd);
}

/* Reads one byte at addr until all copies are under way. */
static void fill_copies(struct shm_leg *f, struct srdma_dma *dma)
{
	int r = 0, n = 0;

	for (; !r; n += !r)
		r = f->port->ops->read(dma);
	assert_int_equal(r, -EAGAIN);
	assert_int_equal(n, SRDMA_COPIER_SLOTS);
}

/* Copies of its memory that block are all that can be under way. */
static void hostile_fill(struct shm_leg *f, struct hostile *h,
			 struct srdma_dma *dma)
{
	hostile_start(h, 5);
	h->leg = open_leg(f, h->pid);
	assert_int_equal(open_region(h->leg, h->memory, LENGTH, &h->region), 0);
	assert_int_equal(shm_region_ready(f->port, h->region), 0);
	dma->region = h->region;
	dma->addr = (uintptr_t)h->memory + MIDDLE;
	dma->buf = f->port->ops->buf_get(f->port);
	fill_copies(f, dma);
}

static void take_copies(struct shm_leg *f, int n)
{
	while (n) {
		struct srdma_event ev = { 0 };

		f->port->ops->poll(f->port, &ev, 1);
		n -= ev.kind == SRDMA_EV_DMA_DONE;
	}
}

/* A program that registers memory while it sends does not see an error. */
static void test_probe_waits_for_a_copy(void **state)
{
	static uint8_t memory[8192];
	struct shm_leg *f = *state;
	struct srdma_region *first, *closed[3], *last;
	struct srdma_dma dma = { .len = 1,
				 .addr = (uintptr_t)memory,
				 .buf = f->port->ops->buf_get(f->port) };

	skip_without_process_vm();
	assert_int_equal(open_region(f->leg, memory, 8192, &dma.region), 0);
	assert_int_equal(shm_region_ready(f->port, dma.region), 0);
	fill_copies(f, &dma);
	assert_int_equal(open_region(f->leg, memory, 100, &closed[0]), 0);
	assert_int_equal(open_region(f->leg, memory, 100, &first), 0);
	assert_int_equal(open_region(f->leg, memory, 100, &closed[1]), 0);
	assert_int_equal(open_region(f->leg, memory, 100, &closed[2]), 0);
	for (int i = 0; i < 3; i++) /* the oldest, one between, the newest */
		f->port->ops->region_close(closed[i]);
	assert_int_equal(open_region(f->leg, memory, 100, &last), 0);
	assert_int_equal(f->port->ops->region_ready(first), -EINPROGRESS);
	/* The copies that are free first are those of the probes. */
	take_copies(f, 2);
	assert_int_equal(f->port->ops->read(&dma), -EAGAIN);
	take_copies(f, SRDMA_COPIER_SLOTS - 2);
	assert_int_equal(shm_region_ready(f->port, first), 0);
	assert_int_equal(shm_region_ready(f->port, last), 0);
	f->port->ops->region_close(first);
	f->port->ops->region_close(last);
	f->port->ops->region_close(dma.region);
	f->port->ops->buf_put(dma.buf);
}

/* The end of the process's legs ends the region whose probe waits. Until then it
 * has no result, which the client would be told in place of the cause. */
static void test_probe_waits_behind_copies_that_block(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_region *waits, *late;
	struct srdma_dma dma = { .len = 1 };
	struct hostile h;

	hostile_fill(f, &h, &dma);
	assert_int_equal(open_region(h.leg, h.memory, LENGTH, &waits), 0);
	pass(f, LIMIT_MS);
	assert_int_equal(f->port->ops->region_ready(waits), -EINPROGRESS);
	assert_int_equal(open_region(h.leg, h.memory, LENGTH, &late),
			 -ETIMEDOUT);
	assert_non_null(strstr(f->port->why, "did not answer for 4 s"));
	take_copies(f, SRDMA_COPIER_SLOTS);
	expect_down(f, h.leg);
	hostile_end(&h);
	f->port->ops->region_close(waits);
	f->port->ops->region_close(h.region);
	f->port->ops->close(h.leg);
	f->port->ops->buf_put(dma.buf);
}

static void test_copies_are_limited(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_dma dma = { .len = 1 };
	struct hostile h;

	hostile_fill(f, &h, &dma);
	neighbour_goes_on(f);
	hostile_end(&h);
	take_copies(f, SRDMA_COPIER_SLOTS);
	f->port->ops->region_close(h.region);
	f->port->ops->close(h.leg);
}

/* The worker is late to take copies that were made: the process did answer. */
static void test_copies_that_are_not_taken_end_nothing(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_dma dma = { .len = 1 };
	struct hostile h;

	hostile_start(&h, 5);
	h.leg = open_leg(f, h.pid);
	assert_int_equal(open_region(h.leg, h.memory, LENGTH, &h.region), 0);
	assert_int_equal(shm_region_ready(f->port, h.region), 0);
	dma.region = h.region;
	dma.addr = (uintptr_t)h.memory;
	dma.buf = f->port->ops->buf_get(f->port);
	assert_int_equal(f->port->ops->read(&dma), 0);
	while (!f->port->ops->arm(f->port)) {
		f->port->ops->disarm(f->port);
		sched_yield();
	}
	f->port->ops->disarm(f->port);
	pass(f, LIMIT_MS);
	assert_int_equal(shm_expect(f->port, SRDMA_EV_DMA_DONE).status, 0);
	f->port->ops->buf_put(dma.buf);
	hostile_end(&h);
	f->port->ops->region_close(h.region);
	f->port->ops->close(h.leg);
}

/* A process that does nothing. */
struct idle {
	pid_t pid;
	struct srdma_conn *leg;
	struct srdma_region *region; /* of memory that it has; NULL: none */
};

static void idle_start(struct shm_leg *f, struct idle *i)
{
	*i = (struct idle){ .pid = fork() };
	assert_true(i->pid >= 0);
	if (!i->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	i->leg = shm_leg_open(f, shm_leg_params(f->host), i->pid);
	assert_ptr_equal(shm_expect(f->port, SRDMA_EV_UP).conn, i->leg);
}

static int idle_register(struct idle *i)
{
	static uint8_t memory[64];

	return open_region(i->leg, memory, sizeof(memory), &i->region);
}

static void idle_end(struct shm_leg *f, const struct idle *i)
{
	if (i->region)
		f->port->ops->region_close(i->region);
	f->port->ops->close(i->leg);
	kill(i->pid, SIGKILL);
	waitpid(i->pid, NULL, 0);
}

static void test_processes_are_limited(void **state)
{
	/* The process of the fixture has not joined. */
	static struct idle first[SRDMA_SHM_PROCESSES], late;
	struct shm_leg *f = *state;

	skip_without_process_vm();
	for (int i = 0; i < SRDMA_SHM_PROCESSES; i++) {
		idle_start(f, &first[i]);
		assert_int_equal(idle_register(&first[i]), 0);
	}
	idle_start(f, &late);
	assert_int_equal(idle_register(&late), -EDQUOT);
	assert_non_null(strstr(f->port->why, "256 processes already"));
	/* A place that is given back is there for the next process. */
	idle_end(f, &first[0]);
	assert_int_equal(idle_register(&late), 0);
	for (int i = 1; i < SRDMA_SHM_PROCESSES; i++)
		idle_end(f, &first[i]);
	idle_end(f, &late);
}

/* A sleeping worker is woken by a copy. */
static void test_arm_sees_a_copy(void **state)
{
	static uint8_t memory[64];
	struct shm_leg *f = *state;
	struct srdma_region *region;
	struct srdma_event ev;

	skip_without_process_vm();
	assert_int_equal(open_region(f->leg, memory, sizeof(memory), &region),
			 0);
	while (!f->port->ops->arm(f->port) &&
	       !shm_readable(f->port->ops->fd(f->port)))
		sched_yield();
	f->port->ops->disarm(f->port);
	f->port->ops->poll(f->port, &ev, 1);
	assert_int_equal(f->port->ops->region_ready(region), 0);
	f->port->ops->region_close(region);
}

/* Another process has the PID of one that ended: this one. */
static void test_reused_pid_is_not_accessed(void **state)
{
	static uint8_t memory[8] = { 1 };
	struct shm_leg *f = *state;
	const pid_t pid = fork();
	struct srdma_copier_params params = {
		.pid = pid,
		.wake = srdma_doorbell_eventfd(),
		.bell_fd = f->answer.fds[1],
		.spawn = thread_start,
	};
	const struct srdma_copy *made;
	struct srdma_copier *c;
	struct srdma_copy *copy;

	if (!pid)
		_exit(0);
	params.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	assert_int_equal(srdma_copier_create(&c, &params), 0);
	waitpid(pid, NULL, 0);
	c->pid = getpid();
	copy = srdma_copier_reserve(c);
	copy->kind = SRDMA_COPY_READ;
	copy->addr = (uintptr_t)memory;
	copy->len = 1;
	srdma_copier_put(c);
	while (!(made = srdma_copier_made(c)))
		sched_yield();
	assert_int_equal(made->status, -ESRCH);
	assert_int_equal(made->data[0], 0);
	srdma_copier_take(c);
	srdma_copier_destroy(c);
	close(params.wake);
	close(params.pidfd);
}

/*
 * A leg whose process has ended gets no memory of the process that has the PID
 * now: this one, which has joined the worker too.
 */
static void test_reused_pid_is_not_joined(void **state)
{
	static uint8_t memory[64];
	struct shm_leg *f = *state;
	struct srdma_leg_params params = shm_leg_params(f->host);
	struct srdma_region *mine, *region;
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;
	pid_t pid;

	skip_without_process_vm();
	pid = fork();
	if (!pid)
		_exit(0);
	params.pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	waitpid(pid, NULL, 0);
	assert_int_equal(open_region(f->leg, memory, sizeof(memory), &mine), 0);
	assert_int_equal(shm_region_ready(f->port, mine), 0);
	assert_int_equal(
		f->port->ops->leg_open(f->port, &params, &leg, &answer), 0);
	assert_ptr_equal(shm_expect(f->port, SRDMA_EV_UP).conn, leg);
	assert_int_equal(open_region(leg, memory, sizeof(memory), &region),
			 -ESRCH);
	assert_non_null(strstr(f->port->why, "has ended"));
	f->port->ops->close(leg);
	f->port->ops->region_close(mine);
	close(params.pidfd);
}

static void test_leg_without_a_descriptor_for_its_process(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_leg_params params = shm_leg_params(f->host);
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;

	params.pidfd = -1;
	assert_int_equal(
		f->port->ops->leg_open(f->port, &params, &leg, &answer),
		-EBADF);
	assert_non_null(strstr(f->port->why, "file descriptors"));
}

enum { MORTAL = 64 };		/* bytes of the region of such a process */
static pid_t ends_while_copied; /* 0: none */

static void end_if_due(pid_t pid)
{
	if (pid != ends_while_copied)
		return;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* Replaces the C library's function: the process ends before it returns. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local,
			 unsigned long locals, const struct iovec *remote,
			 unsigned long remotes, unsigned long flags)
{
	const ssize_t n = syscall(SYS_process_vm_readv, pid, local, locals,
				  remote, remotes, flags);

	end_if_due(pid);
	return n;
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local,
			  unsigned long locals, const struct iovec *remote,
			  unsigned long remotes, unsigned long flags)
{
	const ssize_t n = syscall(SYS_process_vm_writev, pid, local, locals,
				  remote, remotes, flags);

	end_if_due(pid);
	return n;
}

/* Opens a leg of a new process, and a region of its memory. */
static pid_t open_mortal(struct shm_leg *f, struct srdma_conn **leg,
			 struct srdma_region **region, uint8_t *memory)
{
	const pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	*leg = open_leg(f, pid);
	assert_int_equal(open_region(*leg, memory, MORTAL, region), 0);
	if (shm_region_ready(f->port, *region)) {
		print_message("this kernel refuses process_vm_readv\n");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		skip();
	}
	return pid;
}

/* A write that was made before the process ended was made. */
static void test_write_before_the_end_of_a_process(void **state)
{
	static uint8_t memory[MORTAL];
	struct shm_leg *f = *state;
	struct srdma_dma dma = { .addr = (uintptr_t)memory,
				 .len = 6,
				 .buf = f->port->ops->buf_get(f->port) };
	struct srdma_conn *leg;

	ends_while_copied = open_mortal(f, &leg, &dma.region, memory);
	assert_int_equal(shm_dma(f->port->ops->write, &dma), 1);
	assert_int_equal(shm_dma(f->port->ops->write, &dma), -ESRCH);
	ends_while_copied = 0;
	f->port->ops->buf_put(dma.buf);
	f->port->ops->region_close(dma.region);
	f->port->ops->close(leg);
}

/* The bytes may be of another process, which got the PID meanwhile. */
static void test_bytes_of_a_process_that_ended_are_dropped(void **state)
{
	static uint8_t memory[MORTAL] = "secret";
	struct shm_leg *f = *state;
	struct srdma_conn *leg;
	struct srdma_dma dma = { .addr = (uintptr_t)memory,
				 .len = 6,
				 .buf = f->port->ops->buf_get(f->port) };

	ends_while_copied = open_mortal(f, &leg, &dma.region, memory);
	memset(dma.buf->data, 0, 6);
	assert_int_equal(shm_dma(f->port->ops->read, &dma), -ESRCH);
	ends_while_copied = 0;
	assert_memory_equal(dma.buf->data, "\0\0\0\0\0\0", 6);
	f->port->ops->buf_put(dma.buf);
	f->port->ops->region_close(dma.region);
	f->port->ops->close(leg);
}

/* --- refusals --------------------------------------------------------------- */

static int no_thread(void *(*run)(void *), void *arg)
{
	(void)run;
	(void)arg;
	return -EAGAIN;
}

static void refuse(int (*spawn)(void *(*run)(void *), void *arg), int err,
		   const char *why)
{
	static uint8_t memory[64];
	struct shm_leg f = { 0 };
	struct srdma_region *region;
	struct srdma_conn *leg;

	assert_int_equal(srdma_port_shm_create_host(&f.port, spawn), 0);
	assert_int_equal(srdma_leg_shm_create(&f.host, SHM_RING), 0);
	leg = open_leg(&f, getpid());
	assert_int_equal(open_region(leg, memory, sizeof(memory), &region),
			 err);
	assert_non_null(strstr(f.port->why, why));
	assert_non_null(strstr(f.port->why, "pd.alloc()"));
	srdma_leg_shm_destroy(f.host);
	f.port->ops->destroy(f.port);
}

static void test_worker_for_memfds_only(void **state)
{
	(void)state;
	refuse(NULL, -EPERM, "memfds only");
}

static void test_worker_without_threads(void **state)
{
	(void)state;
	refuse(no_thread, -EAGAIN, "thread");
}

/* A fault handler of another process does not see the worker's mapping. */
static void test_mapped_memory_does_not_block(void **state)
{
	struct shm_leg *f = *state;
	struct srdma_region_params p = { .length = LENGTH,
					 .access = LOCAL_WRITE };
	struct srdma_region *region;
	struct srdma_dma dma = { .len = 64,
				 .buf = f->port->ops->buf_get(f->port) };
	void *at;

	assert_int_equal(srdma_leg_shm_region(LENGTH, &p.fd, &at), 0);
	if (watch(at)) {
		print_message("no userfaultfd here\n");
		skip();
	}
	p.addr = (uintptr_t)at;
	assert_int_equal(f->port->ops->region_open(f->leg, &p, &region), 0);
	dma.region = region;
	dma.addr = p.addr;
	assert_int_equal(f->port->ops->read(&dma), 1);
	dma.addr += MIDDLE;
	assert_int_equal(f->port->ops->write(&dma), 1);
	f->port->ops->region_close(region);
	srdma_leg_shm_region_free(at, LENGTH);
	close(p.fd);
}

#define WITH_LEG(test)                                                         \
	cmocka_unit_test_setup_teardown(test, shm_leg_setup, shm_leg_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_LEG(test_probe_that_blocks),
		WITH_LEG(test_dma_that_blocks),
		WITH_LEG(test_order_of_a_leg),
		WITH_LEG(test_probe_waits_for_a_copy),
		WITH_LEG(test_probe_waits_behind_copies_that_block),
		WITH_LEG(test_copies_are_limited),
		WITH_LEG(test_copies_that_are_not_taken_end_nothing),
		WITH_LEG(test_processes_are_limited),
		WITH_LEG(test_arm_sees_a_copy),
		WITH_LEG(test_reused_pid_is_not_accessed),
		WITH_LEG(test_reused_pid_is_not_joined),
		WITH_LEG(test_leg_without_a_descriptor_for_its_process),
		WITH_LEG(test_bytes_of_a_process_that_ended_are_dropped),
		WITH_LEG(test_write_before_the_end_of_a_process),
		cmocka_unit_test(test_worker_for_memfds_only),
		cmocka_unit_test(test_worker_without_threads),
		WITH_LEG(test_mapped_memory_does_not_block),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
