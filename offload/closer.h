/*
 * Closes files that other processes passed. close() can block without a limit: on a
 * TCP socket with SO_LINGER, on a FUSE file whose server hangs, and on a Unix
 * socket with such a file in its queue. Files of these kinds are closed by
 * threads, which do nothing else.
 */
#ifndef OFFLOAD_CLOSER_H
#define OFFLOAD_CLOSER_H

enum {
	CLOSER_OWNER_MAX =
		64, /* bytes of the name of an owner, with its zero */
	CLOSER_FILES =
		256, /* of an owner that wait: no more should be received */
};

/*
 * Close fd now if this cannot block, else soon. owner: name of the account whose
 * program passed the file, or "". Two threads close files of an owner; while they
 * hang, its further files stay open, and so do all while 64 threads hang.
 */
void closer_close(const char *owner, int fd);
/* 1: CLOSER_FILES files of the owner wait for a thread. */
int closer_is_crowded(const char *owner);

#endif
