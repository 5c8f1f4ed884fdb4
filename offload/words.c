#include "words.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * An eventfd sums the values written: each word counts in its own half of the
 * 64 bits.
 */
#define HALF (UINT64_C(1) << 32)

int words_open(struct words *w, unsigned threads)
{
	w->threads = 0;
	while (w->threads < threads) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

		if (fd < 0) {
			int err = -errno;

			words_close(w);
			return err;
		}
		w->fd[w->threads++] = fd;
	}
	return 0;
}

void words_close(struct words *w)
{
	while (w->threads)
		close(w->fd[--w->threads]);
}

int words_fd(const struct words *w, unsigned thread)
{
	return w->fd[thread];
}

void words_tell(const struct words *w, enum word word)
{
	for (unsigned i = 0; i < w->threads; i++)
		eventfd_write(w->fd[i], word == WORD_STOP ? HALF : 1);
}

unsigned words_take(const struct words *w, unsigned thread)
{
	eventfd_t told;

	if (eventfd_read(w->fd[thread], &told) < 0)
		return 0;
	return (told >= HALF ? WORD_STOP : 0) | (told % HALF ? WORD_REPORT : 0);
}
