/* Strict UTF-8 check (RFC 3629) for text that comes from other processes or
 * hosts. */
#ifndef SRDMA_UTF8_H
#define SRDMA_UTF8_H

#include <stddef.h>

/* 1 if text is valid UTF-8 without a zero byte, else 0. Overlong forms and
 * surrogates are invalid. */
int srdma_utf8_check(const void *text, size_t len);

#endif
