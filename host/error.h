/* The text of the last failed call of each thread: srdma_error_text(). */
#ifndef SRDMA_HOST_ERROR_H
#define SRDMA_HOST_ERROR_H

/* Sets the text, as by printf(), cut to 511 bytes. Returns rc, a -errno. */
__attribute__((format(printf, 2, 3))) int
srdma_error_set(int rc, const char *format, ...);

#endif
