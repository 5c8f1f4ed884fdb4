/*
 * Closes files that other processes passed. close() can block without a limit: on a
 * TCP socket with SO_LINGER, on a FUSE file whose server hangs, and on a Unix
 * socket with such a file in its queue. Files of these kinds are closed by
 * threads, which do nothing else.
 */
#ifndef OFFLOAD_CLOSER_H
#define OFFLOAD_CLOSER_H

/*
 * Close fd now if this cannot block, else soon. While 64 threads hang, further
 * files stay open.
 */
void closer_close(int fd);

#endif
