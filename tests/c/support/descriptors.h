/* Open descriptors of the test. */
#ifndef SRDMA_TESTS_DESCRIPTORS_H
#define SRDMA_TESTS_DESCRIPTORS_H

#include <sys/resource.h>

/* The number includes those of the other threads, and the count itself. */
int count_descriptors(void);

/* Fails the test unless there are n soon: other threads close theirs a little
 * later. */
void until_descriptors(int n);

/* Permits n more open files than now. Returns the limit before, for
 * restore_descriptors(). */
struct rlimit permit_descriptors(unsigned n);
void restore_descriptors(struct rlimit before);

#endif
