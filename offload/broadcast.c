#include "broadcast.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * An eventfd sums the values written: each word counts in its own half of the
 * 64 bits.
 */
#define HALF (UINT64_C(1) << 32)

int broadcast_open(struct broadcast *w, unsigned threads)
{
	w->threads = 0;
	while (w->threads < threads) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

		if (fd < 0) {
			int err = -errno;

			broadcast_close(w);
			return err;
		}
		w->fd[w->threads++] = fd;
	}
	return 0;
}

void broadcast_close(struct broadcast *w)
{
	while (w->threads)
		close(w->fd[--w->threads]);
}

int broadcast_fd(const struct broadcast *w, unsigned thread)
{
	return w->fd[thread];
}

void broadcast_tell(const struct broadcast *w, enum broadcast_message word)
{
	for (unsigned i = 0; i < w->threads; i++)
		eventfd_write(w->fd[i], word == BROADCAST_STOP ? HALF : 1);
}

unsigned broadcast_take(const struct broadcast *w, unsigned thread)
{
	eventfd_t told;

	if (eventfd_read(w->fd[thread], &told) < 0)
		return 0;
	return (told >= HALF ? BROADCAST_STOP : 0) |
	       (told % HALF ? BROADCAST_REPORT : 0);
}
