/* Both halves of a leg over shared memory: a host and its worker's port. */
#include "leg_shm.h"

#include "bell.h"
#include "port.h"
#include "port_shm.h"
#include "ring.h"
#include "shm.h"
#include "shm_pair.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { RING = 64, NOBODY = 65534, LOCAL_WRITE = 1, REMOTE_READ = 4 };

struct fixture {
	struct srdma_port *port;
	struct srdma_leg_shm *host;
	struct srdma_conn *leg;
	struct srdma_leg_answer answer;
};

static struct srdma_leg_params params_of(const struct srdma_leg_shm *host)
{
	const int *fds = srdma_leg_shm_fds(host);

	return (struct srdma_leg_params){
		.ring = RING,
		.fds = { fds[0], fds[1], fds[2] },
		.pid = getpid(),
	};
}

static int setup(void **state)
{
	static struct fixture f;
	struct srdma_leg_params params;

	memset(&f, 0, sizeof(f));
	assert_int_equal(srdma_port_shm_create_host(&f.port), 0);
	assert_int_equal(srdma_leg_shm_create(&f.host, RING), 0);
	params = params_of(f.host);
	assert_null(srdma_leg_shm_slot(f.host)); /* not attached */
	assert_int_equal(
		f.port->ops->leg_open(f.port, &params, &f.leg, &f.answer), 0);
	assert_string_equal(f.answer.address, "");
	assert_int_equal(srdma_leg_shm_attach(f.host, f.answer.fds), 0);
	assert_int_equal(srdma_leg_shm_attach(f.host, f.answer.fds), -EISCONN);
	assert_ptr_equal(shm_expect(f.port, SRDMA_EV_UP).conn, f.leg);
	*state = &f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	srdma_leg_shm_destroy(f->host);
	f->port->ops->destroy(f->port);
	return 0;
}

static int post(struct fixture *f, uint32_t number, uint32_t len)
{
	uint8_t *slot = srdma_leg_shm_slot(f->host);

	if (!slot)
		return -EAGAIN;
	memset(slot, 0, len);
	memcpy(slot, &number, sizeof(number));
	return srdma_leg_shm_post(f->host, len);
}

static void expect_desc(struct fixture *f, uint32_t number, uint32_t len)
{
	struct srdma_event ev = shm_expect(f->port, SRDMA_EV_RECV);

	assert_ptr_equal(ev.conn, f->leg);
	assert_int_equal(ev.buf->len, len);
	assert_memory_equal(ev.buf->data, &number, sizeof(number));
	f->port->ops->buf_put(ev.buf);
}

/* --- descriptors and records ------------------------------------------ */

static void test_sizes_of_a_leg(void **state)
{
	struct srdma_leg_shm *host;

	(void)state;
	assert_int_equal(srdma_leg_shm_create(&host, 32), -EINVAL);
	assert_int_equal(srdma_leg_shm_create(&host, 100), -EINVAL);
	assert_int_equal(srdma_leg_shm_create(&host, 131072), -EINVAL);
	srdma_leg_shm_destroy(NULL);
	/* 128 and 64 slots of 520 bytes are 9 pages */
	assert_int_equal(srdma_leg_shm_records_at(64), 9 * 4096);
}

static void test_descriptors_arrive(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(post(f, 1, SRDMA_DESC_LEN), 0);
	assert_int_equal(post(f, 2, SRDMA_DESC_SLOT), 0);
	assert_int_equal(post(f, 3, SRDMA_DESC_SLOT + 1), -EMSGSIZE);
	shm_expect_nothing(f->port);
	srdma_leg_shm_flush(f->host);
	expect_desc(f, 1, SRDMA_DESC_LEN);
	expect_desc(f, 2, SRDMA_DESC_SLOT);
	shm_expect_nothing(f->port);
}

static void test_full_descriptor_ring(void **state)
{
	struct fixture *f = *state;
	uint32_t posted = 0;

	while (!post(f, posted, SRDMA_DESC_LEN))
		posted++;
	assert_int_equal(posted, RING);
	srdma_leg_shm_flush(f->host);
	for (uint32_t i = 0; i < 500; i++) {
		expect_desc(f, i, SRDMA_DESC_LEN);
		assert_int_equal(post(f, posted++, SRDMA_DESC_LEN), 0);
		srdma_leg_shm_flush(f->host);
	}
}

static int readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0);
}

static void test_worker_is_woken(void **state)
{
	struct fixture *f = *state;
	int fd = f->port->ops->fd(f->port);

	shm_expect_nothing(f->port);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	assert_int_equal(readable(fd), 0);
	post(f, 1, SRDMA_DESC_LEN);
	srdma_leg_shm_flush(f->host);
	assert_int_equal(readable(fd), 1);
	f->port->ops->disarm(f->port);
	expect_desc(f, 1, SRDMA_DESC_LEN);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	assert_int_equal(readable(fd), 0);
	f->port->ops->disarm(f->port);
}

static void complete(struct fixture *f, uint32_t sequence)
{
	struct srdma_record r = { .id = sequence, .sequence = sequence };
	uint8_t record[SRDMA_RECORD_LEN];

	srdma_record_encode(record, &r);
	assert_int_equal(
		f->port->ops->complete(f->leg, (sequence - 1) % RING, record),
		0);
}

static void test_records_wake_the_host(void **state)
{
	struct fixture *f = *state;
	const uint8_t *ring = srdma_leg_shm_ring(f->host);
	int fd = srdma_leg_shm_fd(f->host);
	struct srdma_record r;

	complete(f, 1);
	f->port->ops->flush(f->port);
	assert_int_equal(readable(fd), 0); /* awake */
	srdma_record_decode(&r, ring);
	assert_int_equal(r.sequence, 1);
	srdma_leg_shm_arm(f->host, 0);
	complete(f, 64);
	assert_int_equal(readable(fd), 0); /* once per burst */
	f->port->ops->flush(f->port);
	assert_int_equal(readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
	assert_int_equal(readable(fd), 0);
	srdma_record_decode(&r, ring + 63 * SRDMA_RECORD_LEN);
	assert_int_equal(r.sequence, 64);
	/* poll and arm ring too, for a relay that does not flush */
	srdma_leg_shm_arm(f->host, 0);
	complete(f, 65);
	assert_int_equal(f->port->ops->arm(f->port), 0);
	f->port->ops->disarm(f->port);
	assert_int_equal(readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
}

static void test_room_wakes_the_host(void **state)
{
	struct fixture *f = *state;
	int fd = srdma_leg_shm_fd(f->host);

	while (!post(f, 0, SRDMA_DESC_LEN))
		;
	srdma_leg_shm_arm(f->host, 0); /* flushes */
	assert_null(srdma_leg_shm_slot(f->host));
	expect_desc(f, 0, SRDMA_DESC_LEN);
	assert_int_equal(readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
	assert_non_null(srdma_leg_shm_slot(f->host));
}

static void test_lying_host_is_ended(void **state)
{
	struct fixture *f = *state;
	struct srdma_shm ring;
	uint32_t tail = RING + 1;

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

static void test_descriptor_too_long_ends_it(void **state)
{
	struct fixture *f = *state;
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

static int memfd(size_t len, unsigned int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void refuse_leg(struct fixture *f, const struct srdma_leg_params *p,
		       int err)
{
	int fds = shm_count_fds();
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;

	f->port->why = NULL;
	assert_int_equal(f->port->ops->leg_open(f->port, p, &leg, &answer),
			 err);
	assert_non_null(f->port->why);
	assert_int_equal(shm_count_fds(), fds);
}

static void test_legs_refused(void **state)
{
	struct fixture *f = *state;
	size_t size = srdma_leg_shm_records_at(RING) + RING * 32;
	struct srdma_leg_params good = params_of(f->host), p;
	int blocking = eventfd(0, EFD_CLOEXEC);

	p = good;
	p.ring = 32;
	refuse_leg(f, &p, -EINVAL);
	p.ring = 96;
	refuse_leg(f, &p, -EINVAL);
	p.ring = 1u << 31;
	refuse_leg(f, &p, -EINVAL);
	p.ring = 128; /* more than the memory holds */
	refuse_leg(f, &p, -ERANGE);
	p = good;
	p.fds[0] = memfd(size, 0);
	refuse_leg(f, &p, -EPERM);
	close(p.fds[0]);
	p.fds[0] = memfd(size - 1, F_SEAL_SHRINK);
	refuse_leg(f, &p, -ERANGE);
	close(p.fds[0]);
	p.fds[0] = -1;
	refuse_leg(f, &p, -EPERM);
	p = good;
	p.fds[1] = blocking;
	refuse_leg(f, &p, -EINVAL);
	p.fds[1] = -1;
	refuse_leg(f, &p, -EINVAL);
	p = good;
	p.fds[2] = p.fds[1];
	refuse_leg(f, &p, -EPERM);
	close(blocking);
}

static void test_many_legs_take_turns(void **state)
{
	struct fixture *f = *state;
	struct srdma_leg_shm *host[8];
	struct srdma_leg_answer answer;
	struct srdma_event ev[32];
	struct srdma_conn *leg[8];
	uint8_t *slot;
	int got[8] = { 0 };

	for (int i = 0; i < 8; i++) {
		struct srdma_leg_params p;

		assert_int_equal(srdma_leg_shm_create(&host[i], RING), 0);
		p = params_of(host[i]);
		assert_int_equal(
			f->port->ops->leg_open(f->port, &p, &leg[i], &answer),
			0);
		assert_int_equal(srdma_leg_shm_attach(host[i], answer.fds), 0);
		shm_expect(f->port, SRDMA_EV_UP);
	}
	/* all of them have always something to say */
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

/* --- regions ---------------------------------------------------------- */

static int open_region(struct fixture *f, const struct srdma_region_params *p,
		       struct srdma_region **region)
{
	f->port->why = NULL;
	return f->port->ops->region_open(f->leg, p, region);
}

static void refuse_region(struct fixture *f,
			  const struct srdma_region_params *p, int err)
{
	struct srdma_region *region;

	assert_int_equal(open_region(f, p, &region), err);
	assert_non_null(f->port->why);
}

/* Write text into the region at addr, then read it back. */
static void move_text(struct fixture *f, struct srdma_region *region,
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
	assert_int_equal(f->port->ops->write(&dma), 1);
	memset(buf->data, 0, buf->cap);
	assert_int_equal(f->port->ops->read(&dma), 1);
	assert_memory_equal(buf->data + 100, text, dma.len);
	assert_int_equal(buf->data[99], 0);
	assert_int_equal(buf->data[100 + dma.len], 0);
	f->port->ops->buf_put(buf);
}

static void test_mapped_region(void **state)
{
	struct fixture *f = *state;
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
		p.length++;
		refuse_region(f, &p, -ERANGE);
	}
	/* A host that takes its pages away makes zeros, not a signal. */
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

static void test_regions_refused(void **state)
{
	struct fixture *f = *state;
	struct srdma_region_params p = { .addr = 4096, .length = 4096 };
	struct srdma_region *region;

	p.fd = memfd(4096, 0);
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
}

/* The process's own memory, by process_vm_*: always permitted on oneself. */
static void test_unmapped_region(void **state)
{
	struct fixture *f = *state;
	static uint8_t memory[10000];
	struct srdma_region *region;
	struct srdma_region_params p = {
		.addr = (uintptr_t)memory + 3,
		.length = sizeof(memory) - 3,
		.access = LOCAL_WRITE,
		.fd = -1,
	};

	assert_int_equal(open_region(f, &p, &region), 0);
	move_text(f, region, p.addr + 5000, "far");
	assert_memory_equal(memory + 5003, "far", 3);
	f->port->ops->region_close(region);
	p.addr = 16; /* nobody has memory there */
	refuse_region(f, &p, -EFAULT);
	p.addr = (uintptr_t)memory;
	p.length = UINT64_C(1) << 46; /* nor where this ends */
	refuse_region(f, &p, -EFAULT);
}

static void test_read_only_memory_fails_dma(void **state)
{
	struct fixture *f = *state;
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

	assert_int_equal(open_region(f, &p, &region), 0);
	dma.region = region;
	assert_int_equal(f->port->ops->read(&dma), 1);
	assert_int_equal(buf->data[0], 1);
	assert_int_equal(f->port->ops->write(&dma), -EFAULT);
	f->port->ops->region_close(region);
}

static void test_dead_process_fails_dma(void **state)
{
	struct fixture *f = *state;
	struct srdma_leg_params params = params_of(f->host);
	static uint8_t memory[64];
	struct srdma_region *region;
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;
	struct srdma_region_params p = { .addr = (uintptr_t)memory,
					 .length = sizeof(memory),
					 .fd = -1 };
	struct srdma_dma dma = { .addr = p.addr, .len = 1 };
	pid_t pid = fork();

	if (!pid) {
		pause();
		_exit(0);
	}
	params.pid = pid;
	assert_int_equal(
		f->port->ops->leg_open(f->port, &params, &leg, &answer), 0);
	if (f->port->ops->region_open(leg, &p, &region)) {
		assert_non_null(strstr(f->port->why, "pd.alloc()"));
		print_message("this kernel refuses process_vm_readv\n");
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		f->port->ops->close(leg);
		return;
	}
	dma.region = region;
	dma.buf = f->port->ops->buf_get(f->port);
	assert_int_equal(f->port->ops->read(&dma), 1);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_int_equal(f->port->ops->read(&dma), -ESRCH);
	assert_int_equal(f->port->ops->write(&dma), -ESRCH);
	f->port->ops->region_close(region);
	assert_int_equal(f->port->ops->region_open(leg, &p, &region), -ESRCH);
	f->port->ops->close(leg);
}

/* A worker of another user may not touch this process: the text says what
 * to do. */
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

	if (setuid(NOBODY) || srdma_port_shm_create_host(&port) ||
	    srdma_leg_shm_create(&host, RING))
		return 1;
	params = params_of(host);
	params.pid = parent;
	if (port->ops->leg_open(port, &params, &leg, &answer))
		return 2;
	if (port->ops->region_open(leg, &p, &region) != -EPERM)
		return 3;
	return strstr(port->why, "pd.alloc()") ? 0 : 4;
}

static void test_kernel_refuses(void **state)
{
	int parent = getpid(), status;
	pid_t pid;

	(void)state;
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

static void test_no_process_no_unmapped_regions(void **state)
{
	struct fixture *f = *state;
	struct srdma_leg_params params = params_of(f->host);
	struct srdma_leg_answer answer;
	struct srdma_region *region;
	struct srdma_region_params p = { .addr = 4096, .length = 1, .fd = -1 };
	struct srdma_conn *leg;

	params.pid = 0;
	assert_int_equal(
		f->port->ops->leg_open(f->port, &params, &leg, &answer), 0);
	assert_int_equal(f->port->ops->region_open(leg, &p, &region), -ESRCH);
	assert_non_null(strstr(f->port->why, "pd.alloc()"));
	f->port->ops->close(leg);
}

static void test_writes_wake_who_waits_for_memory(void **state)
{
	struct fixture *f = *state;
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
	assert_int_equal(readable(fd), 0);
	srdma_leg_shm_arm(f->host, 1);
	move_text(f, region, 4096, "loud");
	f->port->ops->flush(f->port);
	assert_int_equal(readable(fd), 1);
	srdma_leg_shm_disarm(f->host);
	f->port->ops->region_close(region);
	srdma_leg_shm_region_free(at, 4096);
	close(memory);
}

#define LEG(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_of_a_leg),
		LEG(test_descriptors_arrive),
		LEG(test_full_descriptor_ring),
		LEG(test_worker_is_woken),
		LEG(test_records_wake_the_host),
		LEG(test_room_wakes_the_host),
		LEG(test_lying_host_is_ended),
		LEG(test_descriptor_too_long_ends_it),
		LEG(test_legs_refused),
		LEG(test_many_legs_take_turns),
		LEG(test_mapped_region),
		LEG(test_regions_refused),
		LEG(test_unmapped_region),
		LEG(test_read_only_memory_fails_dma),
		LEG(test_dead_process_fails_dma),
		cmocka_unit_test(test_kernel_refuses),
		LEG(test_no_process_no_unmapped_regions),
		LEG(test_writes_wake_who_waits_for_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
