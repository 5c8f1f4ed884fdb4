/* The monotonic clock of a test program, which the test can set forward. A
 * replacement of clock_gettime() of libc. */
#ifndef SRDMA_TESTS_SHIFTED_CLOCK_H
#define SRDMA_TESTS_SHIFTED_CLOCK_H

/* Seconds that CLOCK_MONOTONIC, and CLOCK_MONOTONIC_COARSE, are ahead from now on. Timers
 * are not shifted. */
void shift_clock(int seconds);

#endif
