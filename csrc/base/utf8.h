/* UTF-8 (RFC 3629), strictly: what others made is text, or it is refused. */
#ifndef SRDMA_UTF8_H
#define SRDMA_UTF8_H

#include <stddef.h>

/* 1 if the bytes are UTF-8 without a zero byte. */
int srdma_utf8_check(const void *text, size_t len);

#endif
