/* Files that a program passes through a Unix socket to make others block. */
#ifndef PASSING_H
#define PASSING_H

#include <stddef.h>

/* A TCP socket with unsent bytes, whose last close blocks for 20 s, unless
 * *peer, which the caller owns, is closed. */
int lingering(int *peer);

/* Sends len zero bytes with the file, by sendmsg() with these flags, and closes
 * it. */
void pass_file(int sock, int fd, size_t len, int flags);

#endif
