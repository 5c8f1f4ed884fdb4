/*
 * Holders of ids, and children of fork(). A thread that works on an id holds it, and may
 * wait for the agent or the worker meanwhile. The lock of all ids is held for moments
 * only, so that a thread that waits does not stop calls with other ids.
 */
#include <errno.h>
#include <unistd.h>

#include "rdmacm/objects.h"

/* Number of forks between the first process and this one. */
static unsigned generation;

unsigned cm_generation(void)
{
	return generation;
}

int cm_check_own(unsigned of)
{
	return of == generation ? 0 : cm_fail(EINVAL);
}

int cm_hold(struct cm_id *id)
{
	if (cm_check_own(id->generation))
		return -1;
	cm_lock();
	while (id->held)
		cm_wait();
	id->held = 1;
	cm_unlock();
	return 0;
}

void cm_release(struct cm_id *id)
{
	id->held = 0;
	if (id->disarmed)
		cm_loop_rearm(id);
	if (id->late)
		cm_loop_wake();
	id->disarmed = id->late = 0;
	cm_changed();
}

int cm_done(struct cm_id *id, int err)
{
	cm_lock();
	cm_release(id);
	cm_unlock();
	return err ? cm_fail(err) : 0;
}

/* --- fork ------------------------------------------------------------------------ */

/* The child's copies of the descriptors would keep a talk alive after the end of the
 * parent. A service whose id another thread held may be half changed, so that it is left
 * as it is. Nothing is freed, for the same reason. */
static void close_copies(const struct cm_id *id)
{
	if (id->talk)
		close(srdma_channel_fd(id->talk));
	if (id->service && !id->held)
		srdma_lasting_close_copies(id->service);
}

static void in_child(void)
{
	generation++;
	for (const struct cm_id *id = cm_ids; id; id = id->next)
		close_copies(id);
	cm_ids = NULL;
	cm_loop_forget();
	cm_library_forget();
}

int cm_watch_forks(void)
{
	static int watched;
	int err = watched ? 0 : pthread_atfork(cm_lock, cm_unlock, in_child);

	watched = watched || !err;
	return -err;
}
