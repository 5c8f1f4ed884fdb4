/*
 * Messages of the control socket, with the file descriptors beside them
 * (docs/local-interface.md 3.2). The calls do not block.
 */
#ifndef OFFLOAD_PACKET_H
#define OFFLOAD_PACKET_H

#include "requests.h"

/*
 * Send a response and the descriptors before the first -1. Returns 0 or -errno;
 * -EAGAIN if the socket is full.
 */
int packet_send(int fd, const uint8_t *data, size_t len,
		const int fds[REQUESTS_ANSWER_FDS]);

/*
 * Returns 1 for a message, 0 if there is none, -ECONNRESET at end of file, or
 * -errno. Takes all descriptors of a message, because the kernel closes files
 * that have none, in this thread. -EMFILE: too many files are open for those of
 * the message, which stays in the socket: end the connection with closer_close().
 * owner: see closer_close().
 */
int packet_receive(int fd, const char *owner, struct message *m);

/* Close the descriptors of a message. */
void packet_close_fds(const char *owner, struct message *m);

#endif
