/*
 * Fault injection: one call of a library or of the system fails, as it may at
 * any time. The programs of this folder are linked with --wrap for each
 * function of the tables in faults.c, so that calls of the product, but not
 * those inside a library, reach the table.
 */
#ifndef FAULTS_H
#define FAULTS_H

/* The n-th call of this thread from now on will fail, in the first runs of faults_each()
 * of a function that does not wait, then of one that does. n 0: none. */
void faults_arm(unsigned long n);
/* Ends that. Returns the name of the function that failed; NULL: there were
 * fewer than n calls. */
const char *faults_disarm(void);

/*
 * Calls run(ctx, n) for n = 1, 2, ... until no call fails in a few of them, first for
 * functions that do not wait, and then for those that do. run() arms with n once or more
 * often, disarms, and then asserts. If the environment has
 * SRDMA_FAULTS, each failure is printed. Returns the number of runs with a
 * failure.
 */
unsigned long faults_each(void (*run)(void *ctx, unsigned long n), void *ctx);

/* A function that failed in a process of the test, which faults_each() started; "":
 * none did. */
void faults_saw(const char *name);

/* Asserts that each of these functions failed at least once in this program. A
 * NULL ends the list. */
void faults_all(const char *const *names);

#endif
