/*
 * What the threads of a worker tell each other: one word to all, by an
 * eventfd for each. Nothing of it lies on the path of packets.
 */
#ifndef OFFLOAD_WORDS_H
#define OFFLOAD_WORDS_H

#include <stdint.h>

enum { WORDS_THREADS = 64 }; /* of a worker, at most */

enum word {
	WORD_REPORT = 1, /* print your statistics */
	WORD_STOP = 2,	 /* all end */
};

struct words {
	unsigned threads;
	int fd[WORDS_THREADS];
};

/* 0, or -errno: then there is nothing to close. */
int words_open(struct words *w, unsigned threads);
void words_close(struct words *w);

/* Readable when words_take() has something. */
int words_fd(const struct words *w, unsigned thread);

/* Tell all threads, the own one too. Any thread may, at any time. */
void words_tell(const struct words *w, enum word word);
/* The words that the thread was told since the last call, or'ed. */
unsigned words_take(const struct words *w, unsigned thread);

#endif
