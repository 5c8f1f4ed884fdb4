/* Helpers of the functions of libibverbs, whose errors are errno values. */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include <errno.h>
#include <pthread.h>
#include <stddef.h>

/* The errno for a -errno of libsrdma. */
static inline int verbs_error(int rc)
{
	return -rc;
}

/* The result of a function that returns errno. It sets errno too if it failed, as the
 * system calls of other libraries do: programs print it. */
static inline int verbs_result(int err)
{
	if (err)
		errno = err;
	return err;
}

/* NULL, and errno. */
void *verbs_null(int err);

/* A lock of a program's critical section: a thread that locks it again, or
 * unlocks what it did not lock, gets an error instead of harm. */
void verbs_check_lock_init(pthread_mutex_t *lock);

#endif
