#include "rdmacm/event_fd.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

int cm_event_fd_open(void)
{
	return eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
}

void cm_event_fd_add(int fd)
{
	const uint64_t one = 1;

	/* The counter of an eventfd does not overflow. */
	(void)!write(fd, &one, sizeof(one));
}

void cm_event_fd_take_back(int fd)
{
	uint64_t n;
	const struct iovec to = { &n, sizeof(n) };

	(void)!preadv2(fd, &to, 1, -1, RWF_NOWAIT);
}
