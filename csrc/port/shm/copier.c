#include "port/shm/copier.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bytes.h"

/* --- the thread ---------------------------------------------------------- */

int srdma_copier_process_ended(int pidfd)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, 0) != 0;
}

int srdma_copier_has_ended(const struct srdma_copier *c)
{
	return srdma_copier_process_ended(c->pidfd);
}

/*
 * After the process ended and was reaped, pid may name another one. If it lives
 * after the call, pid named it during the call. This is checked again where bytes
 * leave the process only: a write is made, and cannot be undone.
 */
static int move(const struct srdma_copier *c, uint64_t addr, void *mine,
		size_t len, bool to_process)
{
	struct iovec local = { .iov_base = mine, .iov_len = len };
	struct iovec remote = { .iov_base = (void *)(uintptr_t)addr,
				.iov_len = len };
	ssize_t n;

	if (srdma_copier_has_ended(c))
		return -ESRCH;
	n = to_process ? process_vm_writev(c->pid, &local, 1, &remote, 1, 0)
		       : process_vm_readv(c->pid, &local, 1, &remote, 1, 0);
	if (n < 0)
		return -errno;
	if (!to_process && srdma_copier_has_ended(c))
		return -ESRCH;
	return (size_t)n == len ? 0 : -EFAULT;
}

static int probe(const struct srdma_copier *c, const struct srdma_copy *copy)
{
	uint8_t byte;
	int r = move(c, copy->addr, &byte, 1, false);

	return r ? r : move(c, copy->addr + copy->len - 1, &byte, 1, false);
}

/* A read followed by a write: one step only for other copies of the copier. */
static int change(const struct srdma_copier *c, struct srdma_copy *copy)
{
	uint64_t original, value;
	int r = move(c, copy->addr, &original, sizeof(original), false);

	if (r)
		return r;
	memcpy(copy->data, &original, sizeof(original));
	value = srdma_atomic_apply(&copy->how, original);
	if (value == original)
		return 0;
	return move(c, copy->addr, &value, sizeof(value), true);
}

static int make(const struct srdma_copier *c, struct srdma_copy *copy)
{
	switch (copy->kind) {
	case SRDMA_COPY_NONE:
		return 0;
	case SRDMA_COPY_PROBE:
		return probe(c, copy);
	case SRDMA_COPY_READ:
	case SRDMA_COPY_WRITE:
		return move(c, copy->addr, copy->data, copy->len,
			    copy->kind == SRDMA_COPY_WRITE);
	case SRDMA_COPY_ATOMIC:
		return change(c, copy);
	}
	return -EINVAL;
}

static void release(struct srdma_copier *c)
{
	if (atomic_fetch_sub(&c->ends, 1) > 1)
		return;
	srdma_ringer_close(&c->ringer);
	close(c->pidfd);
	sem_destroy(&c->work);
	srdma_wipe(c->slot, sizeof(c->slot)); /* data of the process */
	free(c);
}

static void *run(void *arg)
{
	struct srdma_copier *c = arg;

	for (;;) {
		uint32_t n = atomic_load(&c->done);
		struct srdma_copy *copy = &c->slot[n % SRDMA_COPIER_SLOTS];

		while (sem_wait(&c->work))
			; /* EINTR */
		if (atomic_load(&c->stop))
			break;
		copy->status = make(c, copy);
		atomic_store(&c->done, n + 1);
		atomic_thread_fence(memory_order_seq_cst);
		srdma_ringer_ring(&c->ringer, SRDMA_DOORBELL_NEWS);
	}
	release(c);
	return NULL;
}

/* --- the other thread ----------------------------------------------------- */

int srdma_copier_create(struct srdma_copier **out,
			const struct srdma_copier_params *p)
{
	struct srdma_copier *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->pid = p->pid;
	c->ends = 2;
	c->pidfd = fcntl(p->pidfd, F_DUPFD_CLOEXEC, 0);
	if (c->pidfd < 0) {
		r = -errno;
		goto free_copier;
	}
	r = srdma_ringer_open(&c->ringer, SRDMA_WAKE_EVENTFD, p->wake,
			      p->bell_fd);
	if (r)
		goto close_pidfd;
	sem_init(&c->work, 0, 0);
	r = p->spawn(run, c);
	if (!r) {
		*out = c;
		return 0;
	}
	sem_destroy(&c->work);
	srdma_ringer_close(&c->ringer);
close_pidfd:
	close(c->pidfd);
free_copier:
	free(c);
	return r;
}

void srdma_copier_stop(struct srdma_copier *c)
{
	atomic_store(&c->stop, 1);
	sem_post(&c->work);
}

int srdma_copier_is_idle(const struct srdma_copier *c)
{
	return atomic_load(&c->done) == c->put;
}

int srdma_copier_is_running(struct srdma_copier *c)
{
	return atomic_load(&c->ends) > 1;
}

void srdma_copier_destroy(struct srdma_copier *c)
{
	srdma_copier_stop(c);
	release(c);
}

struct srdma_copy *srdma_copier_reserve(struct srdma_copier *c)
{
	if (c->put - c->taken == SRDMA_COPIER_SLOTS)
		return NULL;
	return &c->slot[c->put % SRDMA_COPIER_SLOTS];
}

void srdma_copier_put(struct srdma_copier *c)
{
	c->put++;
	sem_post(&c->work); /* publishes the copy */
}

const struct srdma_copy *srdma_copier_made(const struct srdma_copier *c)
{
	if (c->taken == atomic_load(&c->done))
		return NULL;
	return &c->slot[c->taken % SRDMA_COPIER_SLOTS];
}

void srdma_copier_take(struct srdma_copier *c)
{
	c->taken++;
}

uint32_t srdma_copier_progress(const struct srdma_copier *c)
{
	return atomic_load(&c->done);
}
