#include "broadcast.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * An eventfd sums the values written: each word counts in its own half of the
 * 64 bits.
 */
#define HALF (UINT64_C(1) << 32)

int broadcast_open(struct broadcast *w, unsigned workers)
{
	w->workers = 0;
	while (w->workers < workers) {
		int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

		if (fd < 0) {
			int err = -errno;

			broadcast_close(w);
			return err;
		}
		w->fd[w->workers++] = fd;
	}
	return 0;
}

void broadcast_close(struct broadcast *w)
{
	while (w->workers)
		close(w->fd[--w->workers]);
}

int broadcast_fd(const struct broadcast *w, unsigned index)
{
	return w->fd[index];
}

void broadcast_tell(const struct broadcast *w, enum broadcast_message word)
{
	for (unsigned i = 0; i < w->workers; i++)
		eventfd_write(w->fd[i], word == BROADCAST_STOP ? HALF : 1);
}

unsigned broadcast_take(const struct broadcast *w, unsigned index)
{
	eventfd_t told;

	if (eventfd_read(w->fd[index], &told) < 0)
		return 0;
	return (told >= HALF ? BROADCAST_STOP : 0) |
	       (told % HALF ? BROADCAST_REPORT : 0);
}
