/* Helpers of the functions of libibverbs, whose errors are errno values. */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include <pthread.h>
#include <stddef.h>

/* The errno for a -errno of libsrdma. */
static inline int verbs_error(int rc)
{
	return -rc;
}

/* NULL, and errno. */
void *verbs_null(int err);

/* A lock of a program's critical section: a thread that locks it again, or
 * unlocks what it did not lock, gets an error instead of harm. */
void verbs_check_lock_init(pthread_mutex_t *lock);

#endif
