/* The error text of libsrdma in tests. */
#ifndef SRDMA_TESTS_SAYS_H
#define SRDMA_TESTS_SAYS_H

/* Fails the test unless srdma_error_text() contains part. */
void says(const char *part);

#endif
