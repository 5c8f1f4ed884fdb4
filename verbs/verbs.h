/* Errors of the functions of libibverbs, which are errno values. */
#ifndef VERBS_VERBS_H
#define VERBS_VERBS_H

#include <stddef.h>

/* The errno for a -errno of libsrdma. */
static inline int verbs_error(int rc)
{
	return -rc;
}

/* NULL, and errno. */
void *verbs_null(int err);

#endif
