#include "closer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "thread.h"

enum { THREADS = 64 };

struct file {
	struct file *next;
	int fd;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *first;
static unsigned threads;

static struct file *take(void)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	f = first;
	if (f)
		first = f->next;
	else
		threads--;
	pthread_mutex_unlock(&lock);
	return f;
}

static void *run(void *unused)
{
	struct file *f;

	while ((f = take())) {
		close(f->fd);
		free(f);
	}
	return unused;
}

/* Put the file first, and tell whether a thread is to be started for it. */
static int put(struct file *f)
{
	int start;

	pthread_mutex_lock(&lock);
	f->next = first;
	first = f;
	start = threads < THREADS;
	threads += (unsigned)start;
	pthread_mutex_unlock(&lock);
	return start;
}

/* If no thread can be started, the file waits for the next one. */
static void start(void)
{
	if (!thread_start(run, NULL))
		return;
	pthread_mutex_lock(&lock);
	threads--;
	pthread_mutex_unlock(&lock);
}

/*
 * Memfds, and Unix stream sockets whose queue stays empty, because one of
 * the ends was shut down or closed. A listener, whose FIONREAD fails, has
 * queues of connections.
 */
static int is_quick(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLRDHUP };
	int domain = -1, type = -1, waiting = -1;
	socklen_t len = sizeof(int);

	if (fcntl(fd, F_GET_SEALS) >= 0)
		return 1;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) ||
	    domain != AF_UNIX ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) ||
	    type != SOCK_STREAM)
		return 0;
	return poll(&p, 1, 0) == 1 && p.revents & POLLRDHUP &&
	       !ioctl(fd, FIONREAD, &waiting) && !waiting;
}

void closer_close(int fd)
{
	struct file *f;

	if (is_quick(fd)) {
		close(fd);
		return;
	}
	f = malloc(sizeof(*f));
	if (!f)
		return; /* an open file does no harm; a close may block */
	f->fd = fd;
	if (put(f))
		start();
}
