#include "closer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include "thread.h"

enum { THREADS = 64, THREADS_OF_OWNER = 2 };

struct file {
	struct file *next;
	int fd;
};

/* It exists while files of it wait or are being closed. */
struct owner {
	TAILQ_ENTRY(owner) next;
	char name[CLOSER_OWNER_MAX];
	struct file *first;
	unsigned waiting, busy; /* files that wait; threads that close one */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The one whose turn it is next comes first. */
static TAILQ_HEAD(, owner) owners = TAILQ_HEAD_INITIALIZER(owners);
static unsigned threads;

static struct owner *find(const char *name)
{
	struct owner *o;

	TAILQ_FOREACH(o, &owners, next)
		if (!strcmp(o->name, name))
			return o;
	return NULL;
}

static struct owner *find_or_add(const char *name)
{
	struct owner *o = find(name);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (o) {
		snprintf(o->name, sizeof(o->name), "%s", name);
		TAILQ_INSERT_TAIL(&owners, o, next);
	}
	return o;
}

/* The file of `former` that this thread had is closed. */
static void done(struct owner *former)
{
	former->busy--;
	if (!former->busy && !former->waiting) {
		TAILQ_REMOVE(&owners, former, next);
		free(former);
	}
}

/* The next file that a thread may close: the owners have turns. */
static struct file *next_file(struct owner **of)
{
	struct owner *o;
	struct file *f;

	TAILQ_FOREACH(o, &owners, next)
		if (o->waiting && o->busy < THREADS_OF_OWNER)
			break;
	*of = o;
	if (!o)
		return NULL;
	TAILQ_REMOVE(&owners, o, next);
	TAILQ_INSERT_TAIL(&owners, o, next);
	f = o->first;
	o->first = f->next;
	o->waiting--;
	o->busy++;
	return f;
}

/* The next file for a thread, which closed one of *of, if that is not NULL. */
static struct file *take(struct owner **of)
{
	struct file *f;

	pthread_mutex_lock(&lock);
	if (*of)
		done(*of);
	f = next_file(of);
	threads -= !f;
	pthread_mutex_unlock(&lock);
	return f;
}

static void *run(void *unused)
{
	struct owner *owner = NULL;
	struct file *f;

	while ((f = take(&owner))) {
		close(f->fd);
		free(f);
	}
	return unused;
}

/* Put the file first, and tell whether a thread is to be started for it. 0 too if
 * there is no memory: an open file does no harm, and a close may block. */
static int put(const char *owner, struct file *f)
{
	struct owner *o;
	int start = 0;

	pthread_mutex_lock(&lock);
	o = find_or_add(owner);
	if (o) {
		f->next = o->first;
		o->first = f;
		o->waiting++;
		start = threads < THREADS && o->busy < THREADS_OF_OWNER;
		threads += (unsigned)start;
	} else {
		free(f);
	}
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

int closer_is_crowded(const char *owner)
{
	const struct owner *o;
	int crowded;

	pthread_mutex_lock(&lock);
	o = find(owner);
	crowded = o && o->waiting >= CLOSER_FILES;
	pthread_mutex_unlock(&lock);
	return crowded;
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

void closer_close(const char *owner, int fd)
{
	struct file *f;

	if (is_quick(fd)) {
		close(fd);
		return;
	}
	f = malloc(sizeof(*f));
	if (!f)
		return; /* as in put() */
	f->fd = fd;
	if (put(owner, f))
		start();
}
