/* Open descriptors of the test. */
#ifndef SRDMA_TESTS_DESCRIPTORS_H
#define SRDMA_TESTS_DESCRIPTORS_H

/* The number includes those of the other threads, and the count itself. */
int count_descriptors(void);

/* Fails the test unless there are n soon: other threads close theirs a little
 * later. */
void until_descriptors(int n);

#endif
