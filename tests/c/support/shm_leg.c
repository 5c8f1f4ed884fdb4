#include "support/shm_leg.h"

#include "port/shm/port_shm.h"
#include "support/shm_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "peer.h"
#include "thread.h"

static int pidfd_of(int pid)
{
	const int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	assert_true(fd >= 0);
	return fd;
}

void skip_without_process_vm(void)
{
	if (process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) < 0 &&
	    errno == ENOSYS) {
		print_message("no process_vm_readv here\n");
		skip();
	}
}

/* As a worker gets that of a host. valgrind 3.19 has no pidfd_open(). */
static int own_pidfd(void)
{
	int pair[2], fd;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
	fd = peer_pidfd(pair[0]);
	assert_true(fd >= 0);
	close(pair[0]);
	close(pair[1]);
	return fd;
}

struct srdma_leg_params shm_leg_params(const struct srdma_leg_shm *host)
{
	static int self = -1;
	const int *fds = srdma_leg_shm_fds(host);

	if (self < 0)
		self = own_pidfd();
	return (struct srdma_leg_params){
		.ring = SHM_RING,
		.fds = { fds[0], fds[1], fds[2] },
		.pid = getpid(),
		.pidfd = self,
	};
}

struct srdma_conn *shm_leg_open(struct shm_leg *f,
				struct srdma_leg_params params, int pid)
{
	struct srdma_leg_answer answer;
	struct srdma_conn *leg;

	params.pid = pid;
	params.pidfd = pidfd_of(pid);
	assert_int_equal(
		f->port->ops->leg_open(f->port, &params, &leg, &answer), 0);
	close(params.pidfd); /* the port has a duplicate */
	return leg;
}

int shm_leg_setup(void **state)
{
	static struct shm_leg f;
	struct srdma_leg_params params;

	memset(&f, 0, sizeof(f));
	assert_int_equal(srdma_port_shm_create_host(&f.port, thread_start), 0);
	assert_int_equal(srdma_leg_shm_create(&f.host, SHM_RING), 0);
	params = shm_leg_params(f.host);
	assert_null(srdma_leg_shm_slot(f.host)); /* NULL before attach */
	assert_int_equal(
		f.port->ops->leg_open(f.port, &params, &f.leg, &f.answer), 0);
	assert_string_equal(f.answer.address, "");
	assert_int_equal(srdma_leg_shm_attach(f.host, f.answer.fds), 0);
	assert_int_equal(srdma_leg_shm_attach(f.host, f.answer.fds), -EISCONN);
	assert_ptr_equal(shm_expect(f.port, SRDMA_EV_UP).conn, f.leg);
	*state = &f;
	return 0;
}

int shm_leg_teardown(void **state)
{
	struct shm_leg *f = *state;

	srdma_leg_shm_destroy(f->host);
	f->port->ops->destroy(f->port);
	return 0;
}

int shm_memfd(size_t len, unsigned int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	if (seals)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

int shm_region_ready(struct srdma_port *port, struct srdma_region *region)
{
	struct srdma_event ev;
	int r;

	while ((r = port->ops->region_ready(region)) == -EINPROGRESS)
		port->ops->poll(port, &ev, 1);
	return r;
}

static int finish(const struct srdma_dma *dma, int r)
{
	struct srdma_port *port = dma->region->leg->port;
	struct srdma_event ev = { 0 };

	if (r)
		return r;
	while (ev.kind != SRDMA_EV_DMA_DONE)
		port->ops->poll(port, &ev, 1);
	assert_true(ev.cookie == dma->cookie);
	return ev.status ? ev.status : 1;
}

int shm_dma(int (*start)(const struct srdma_dma *dma),
	    const struct srdma_dma *dma)
{
	return finish(dma, start(dma));
}

int shm_atomic(const struct srdma_dma *dma, const struct srdma_atomic *how)
{
	return finish(dma, dma->region->leg->port->ops->atomic(dma, how));
}

int shm_readable(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, 0);
}
