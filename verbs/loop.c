/*
 * The thread that works while the program does something else: it reads what the agent
 * says about UD QPs, so that sessions are made, and looks at a worker whose end no
 * descriptor tells. A context has one from its first UD QP in RTR, or with such a worker
 * from its beginning, until its end.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "host/channel.h"
#include "verbs/objects.h"

enum {
	READY_MAX = 16,
	LOOK_MS = 1000, /* at connections and time limits */
};

struct verbs_loop {
	struct verbs_root *root;
	pthread_t thread;
	pid_t process; /* a child has no thread */
	int epoll, wake;
	int stop; /* 1: the thread is to end */
};

static void look(struct verbs_root *root)
{
	verbs_ud_look(root);
	if (verbs_worker_tells_end(root)) {
		verbs_ud_progress(root);
	} else {
		verbs_collect(root);
		verbs_worker_look(root);
	}
}

static void *run(void *arg)
{
	struct verbs_loop *loop = arg;
	struct epoll_event ready[READY_MAX];
	int stop;

	do {
		epoll_wait(loop->epoll, ready, READY_MAX, LOOK_MS);
		pthread_mutex_lock(&loop->root->lock);
		stop = loop->stop;
		if (!stop)
			look(loop->root);
		pthread_mutex_unlock(&loop->root->lock);
	} while (!stop);
	return NULL;
}

static void release(struct verbs_loop *loop)
{
	if (loop->epoll >= 0)
		close(loop->epoll);
	if (loop->wake >= 0)
		close(loop->wake);
	free(loop);
}

static int start(struct verbs_loop *loop)
{
	struct epoll_event e = { .events = EPOLLIN };
	sigset_t all, before;
	int err;

	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	loop->wake = eventfd(0, EFD_CLOEXEC);
	if (loop->epoll < 0 || loop->wake < 0 ||
	    epoll_ctl(loop->epoll, EPOLL_CTL_ADD, loop->wake, &e))
		return errno;
	sigfillset(&all); /* signals are for the program's threads */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&loop->thread, NULL, run, loop);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return err;
}

int verbs_loop_start(struct verbs_root *root)
{
	struct verbs_loop *loop;
	int err;

	if (root->loop)
		return 0;
	loop = calloc(1, sizeof(*loop));
	if (!loop)
		return ENOMEM;
	loop->root = root;
	loop->process = getpid();
	err = start(loop);
	if (err)
		release(loop);
	else
		root->loop = loop;
	return err;
}

void verbs_loop_stop(struct verbs_root *root)
{
	struct verbs_loop *loop = root->loop;
	const uint64_t one = 1;

	if (!loop)
		return;
	pthread_mutex_lock(&root->lock);
	loop->stop = 1;
	pthread_mutex_unlock(&root->lock);
	if (loop->process == getpid() &&
	    write(loop->wake, &one, sizeof(one)) == sizeof(one))
		pthread_join(loop->thread, NULL);
	root->loop = NULL;
	release(loop);
}

int verbs_loop_watch(const struct verbs_root *root, int fd)
{
	struct epoll_event e = { .events = EPOLLIN };

	return epoll_ctl(root->loop->epoll, EPOLL_CTL_ADD, fd, &e) ? errno : 0;
}

void verbs_loop_unwatch(const struct verbs_root *root, int fd)
{
	epoll_ctl(root->loop->epoll, EPOLL_CTL_DEL, fd, NULL);
}

void verbs_loop_end(const struct verbs_root *root, struct srdma_channel *c)
{
	if (!c)
		return;
	verbs_loop_unwatch(root, srdma_channel_fd(c));
	srdma_channel_drop(c);
}
