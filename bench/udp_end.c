#include "udp_end.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "rung.h"

int end_read(struct end *end, const char *text)
{
	char more;

	_Static_assert(SRDMA_NAME_LEN > 63, "room for each field");
	return sscanf(text, "%63[^,],%63[^,],%63[^,]%c", end->netns, end->four,
		      end->six, &more) == 3;
}

static int opened(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		wrong(path, strerror(errno));
	return fd;
}

static void enter(int fd, const char *netns)
{
	if (setns(fd, CLONE_NEWNET))
		wrong(netns, strerror(errno));
	close(fd);
}

/* The namespace to which this thread returns. */
static int left = -1;

void end_enter(const struct end *end)
{
	char path[sizeof("/run/netns/") + SRDMA_NAME_LEN];

	if (!*end->netns)
		return;
	left = opened("/proc/thread-self/ns/net");
	snprintf(path, sizeof(path), "/run/netns/%s", end->netns);
	enter(opened(path), path);
}

void end_leave(const struct end *end)
{
	if (*end->netns)
		enter(left, "the namespace before");
}
