/*
 * Copier: copies the memory of one other process by process_vm_readv() and
 * process_vm_writev(), in a thread of its own (docs/local-interface.md 4.4). A
 * copy blocks as long as a fault handler of that process wants, so the worker's
 * thread must not make it. The thread uses private memory only: it may end after
 * everything that its copies were for is gone.
 *
 * One thread puts copies and takes them back, in the same order.
 */
#ifndef SRDMA_COPIER_H
#define SRDMA_COPIER_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/atomic_op.h"
#include "port/shm/doorbell.h"
#include "wire/wire.h"

enum { SRDMA_COPIER_SLOTS = 32 };

enum srdma_copy_kind {
	SRDMA_COPY_NONE,   /* keeps its place in the order */
	SRDMA_COPY_PROBE,  /* reads the first and the last byte of len */
	SRDMA_COPY_READ,   /* from the process into data */
	SRDMA_COPY_WRITE,  /* from data to the process */
	SRDMA_COPY_ATOMIC, /* original value into data, in host byte order */
};

struct srdma_copy {
	enum srdma_copy_kind kind;
	uint64_t addr; /* in the process */
	uint64_t len;  /* at most SRDMA_MAX_PAYLOAD, but for PROBE */
	struct srdma_atomic how;
	int status; /* of a copy that was taken back: 0 or -errno; -ESRCH: the
		       process has ended */
	uint8_t data[SRDMA_MAX_PAYLOAD];
};

/* Private to the copier. */
struct srdma_copier {
	int pid, pidfd;
	struct srdma_ringer ringer;
	sem_t work;
	_Atomic uint32_t done; /* copies that the thread has made */
	uint32_t put, taken;   /* of the other thread */
	_Atomic int stop, ends;
	struct srdma_copy slot[SRDMA_COPIER_SLOTS];
};

struct srdma_copier_params {
	int pid, pidfd;	   /* of the process; the caller keeps pidfd */
	int wake, bell_fd; /* eventfd and doorbell of the caller, rung after
			      each copy */
	/* Runs run(arg) in a thread. Returns 0 or -errno. */
	int (*spawn)(void *(*run)(void *), void *arg);
};

/* Returns 0 or -errno. */
int srdma_copier_create(struct srdma_copier **out,
			const struct srdma_copier_params *p);
/*
 * The thread makes no further copy, and ends after the one that is under way,
 * if any.
 */
void srdma_copier_stop(struct srdma_copier *c);
/* 1: all copies that were put have been made. */
int srdma_copier_is_idle(const struct srdma_copier *c);
/* 1 until the thread has ended. */
int srdma_copier_is_running(struct srdma_copier *c);
/* Stops it, and does not wait: the thread frees the copier if it ends later. */
void srdma_copier_destroy(struct srdma_copier *c);

/* Room for one copy, to be filled and put; NULL: all are under way. */
struct srdma_copy *srdma_copier_reserve(struct srdma_copier *c);
void srdma_copier_put(struct srdma_copier *c);

/*
 * The oldest copy, if it has been made, else NULL. It is valid until the next
 * srdma_copier_reserve() after srdma_copier_take().
 */
const struct srdma_copy *srdma_copier_made(const struct srdma_copier *c);
void srdma_copier_take(struct srdma_copier *c);

/* Number of copies made since the start, modulo 2^32. */
uint32_t srdma_copier_progress(const struct srdma_copier *c);
/* 1: the process has ended. */
int srdma_copier_has_ended(const struct srdma_copier *c);
int srdma_copier_process_ended(int pidfd);

#endif
