/*
 * Completion channels. The descriptor that a program waits on is an epoll of the
 * legs and connections that can make completions for the channel's CQs, of an eventfd
 * for completions that another thread has taken, and of the end of the worker. So it
 * may become readable without an event.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

static int open_fds(struct verbs_channel *c)
{
	const struct verbs_root *root = verbs_root_of(c->ibv.context);
	struct epoll_event e = { .events = EPOLLIN };

	c->ibv.fd = epoll_create1(EPOLL_CLOEXEC);
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->ibv.fd < 0 || c->wake < 0 ||
	    epoll_ctl(c->ibv.fd, EPOLL_CTL_ADD, c->wake, &e) ||
	    epoll_ctl(c->ibv.fd, EPOLL_CTL_ADD, root->ends_fd, &e))
		return errno;
	return 0;
}

static void release(struct verbs_channel *c)
{
	if (c->ibv.fd >= 0)
		close(c->ibv.fd);
	if (c->wake >= 0)
		close(c->wake);
	free(c);
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct verbs_channel *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return verbs_null(ENOMEM);
	c->ibv.context = context;
	c->wake = -1;
	err = open_fds(c);
	if (!err)
		return &c->ibv;
	release(c);
	return verbs_null(err);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct verbs_root *root = verbs_root_of(channel->context);
	int users;

	pthread_mutex_lock(&root->lock);
	users = channel->refcnt;
	pthread_mutex_unlock(&root->lock);
	if (users)
		return verbs_result(EBUSY);
	release((struct verbs_channel *)channel);
	return 0;
}

int verbs_channel_watch(const struct verbs_cq *cq, int fd)
{
	struct epoll_event e = { .events = EPOLLIN };

	if (!cq->ibv.channel ||
	    !epoll_ctl(cq->ibv.channel->fd, EPOLL_CTL_ADD, fd, &e) ||
	    errno == EEXIST)
		return 0;
	return errno;
}

void verbs_channel_unwatch(const struct verbs_cq *cq, int fd)
{
	/* ENOENT: both CQs of a QP may have the same channel. */
	if (cq->ibv.channel)
		epoll_ctl(cq->ibv.channel->fd, EPOLL_CTL_DEL, fd, NULL);
}

/* --- events ------------------------------------------------------------------------- */

static void wake(const struct verbs_channel *c)
{
	const uint64_t one = 1;

	if (write(c->wake, &one, sizeof(one)) < 0 && errno != EAGAIN)
		abort(); /* an eventfd of this library has no other error */
}

void verbs_channel_note(struct verbs_cq *cq, const struct ibv_wc *wc)
{
	if (!cq->armed || (cq->solicited && wc->status == IBV_WC_SUCCESS &&
			   !(wc->opcode & IBV_WC_RECV)))
		return;
	verbs_root_of(cq->ibv.context)->armed--;
	cq->armed = 0;
	if (!cq->ibv.channel)
		return;
	cq->due = 1;
	wake((const struct verbs_channel *)cq->ibv.channel);
}

void verbs_channel_forget(struct verbs_cq *cq)
{
	if (cq->armed)
		verbs_root_of(cq->ibv.context)->armed--;
	cq->armed = cq->due = 0;
}

int verbs_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct verbs_cq *cq = (struct verbs_cq *)ibv;
	struct verbs_root *root = verbs_root_of(ibv->context);

	pthread_mutex_lock(&root->lock);
	cq->solicited = solicited_only && (!cq->armed || cq->solicited);
	root->armed += !cq->armed;
	cq->armed = 1;
	for (struct verbs_pd *pd = root->pds; pd; pd = pd->next)
		srdma_req_notify_cq(pd->pd);
	pthread_mutex_unlock(&root->lock);
	return 0;
}

/* Takes an event of one of the channel's CQs; NULL: there is none. */
static struct verbs_cq *take(struct verbs_channel *c)
{
	struct verbs_cq *found = NULL;
	uint64_t n;

	for (struct verbs_cq *cq = c->cqs; cq; cq = cq->channel_next) {
		if (!cq->due)
			continue;
		if (found) /* the eventfd stays readable for it */
			return found;
		cq->due = 0;
		found = cq;
	}
	if (read(c->wake, &n, sizeof(n)) < 0 && errno != EAGAIN)
		return NULL;
	return found;
}

/* An event of one of the channel's CQs; NULL: there is none, and *over is 1 if there
 * will be none, because the worker has ended. */
static struct verbs_cq *look(struct verbs_channel *c, int *over)
{
	struct verbs_root *root = verbs_root_of(c->ibv.context);
	struct verbs_cq *cq;

	pthread_mutex_lock(&root->lock);
	verbs_collect(root);
	cq = take(c);
	*over = !cq && verbs_worker_look(root);
	if (*over) { /* its end completes requests */
		verbs_collect(root);
		cq = take(c);
	}
	if (cq)
		cq->events++;
	pthread_mutex_unlock(&root->lock);
	return cq;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	struct verbs_cq *found;
	int over;

	while (!(found = look((struct verbs_channel *)channel, &over))) {
		if (over) {
			errno = EIO;
			return -1;
		}
		if (verbs_wait(channel->fd))
			return -1;
	}
	*cq = &found->ibv;
	*cq_context = found->ibv.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	verbs_acks_add(&(struct verbs_acks){ &cq->mutex, &cq->cond,
					     &cq->comp_events_completed },
		       nevents);
}
