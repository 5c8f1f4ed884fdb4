/*
 * Broadcast to the worker processes of a worker: one of two words, through one
 * eventfd per process. Not used on the data path.
 */
#ifndef OFFLOAD_WORDS_H
#define OFFLOAD_WORDS_H

#include <stdint.h>

enum { WORDS_THREADS = 64 }; /* maximum of worker processes */

enum word {
	WORD_REPORT = 1, /* print statistics */
	WORD_STOP = 2,	 /* all end */
};

struct words {
	unsigned threads;
	int fd[WORDS_THREADS];
};

/* Returns 0, or -errno; nothing needs to be closed then. */
int words_open(struct words *w, unsigned threads);
void words_close(struct words *w);

/*
 * The descriptor of a worker process, readable when words_take() returns a
 * word.
 */
int words_fd(const struct words *w, unsigned thread);

/*
 * Broadcast a word to all worker processes, including the caller. Any process
 * may call it at any time.
 */
void words_tell(const struct words *w, enum word word);
/* The words received by a worker process since the last call, or'ed. */
unsigned words_take(const struct words *w, unsigned thread);

#endif
