/*
 * Importing a device and its objects (docs/run.md 4): those of this process, because a
 * leg belongs to a process. An imported object is the object itself, which cannot end
 * as long as it is imported.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "verbs/objects.h"
#include "verbs/verbs.h"

/* --- contexts -------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_root *opened;

void verbs_import_offer(struct verbs_root *root)
{
	pthread_mutex_lock(&lock);
	root->opens = 1;
	root->next = opened;
	opened = root;
	pthread_mutex_unlock(&lock);
}

static void withdraw(const struct verbs_root *root)
{
	struct verbs_root **at = &opened;

	while (*at != root)
		at = &(*at)->next;
	*at = root->next;
}

int verbs_import_close(struct verbs_root *root)
{
	int left;

	pthread_mutex_lock(&lock);
	if (root->opens == 1 && root->pds) {
		left = -EBUSY;
	} else {
		left = (int)--root->opens;
		if (!left)
			withdraw(root);
	}
	pthread_mutex_unlock(&lock);
	return left;
}

/* 1: one descriptor is a duplicate of the other. */
static int are_duplicates(int a, int b)
{
	const pid_t self = getpid();

	return syscall(SYS_kcmp, self, self, KCMP_FILE, a, b) == 0;
}

struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct verbs_root *root;

	if (fcntl(cmd_fd, F_GETFD) < 0)
		return NULL;
	pthread_mutex_lock(&lock);
	root = opened;
	while (root && !are_duplicates(root->ctx.context.cmd_fd, cmd_fd))
		root = root->next;
	if (root)
		root->opens++;
	pthread_mutex_unlock(&lock);
	if (!root)
		return verbs_null(EOPNOTSUPP);
	if (cmd_fd != root->ctx.context.cmd_fd)
		close(cmd_fd);
	return &root->ctx.context;
}

/* --- objects --------------------------------------------------------------------- */

struct ibv_pd *ibv_import_pd(struct ibv_context *context, uint32_t pd_handle)
{
	struct verbs_root *root = verbs_root_of(context);
	struct verbs_pd *pd;

	pthread_mutex_lock(&root->lock);
	pd = root->pds;
	while (pd && pd->ibv.handle != pd_handle)
		pd = pd->next;
	if (pd)
		pd->users++;
	pthread_mutex_unlock(&root->lock);
	return pd ? &pd->ibv : verbs_null(EINVAL);
}

void ibv_unimport_pd(struct ibv_pd *ibv)
{
	struct verbs_root *root = verbs_root_of(ibv->context);

	pthread_mutex_lock(&root->lock);
	((struct verbs_pd *)ibv)->users--;
	pthread_mutex_unlock(&root->lock);
}

struct ibv_mr *ibv_import_mr(struct ibv_pd *pd, uint32_t mr_handle)
{
	struct verbs_root *root = verbs_root_of(pd->context);
	struct verbs_mr *mr;

	pthread_mutex_lock(&root->lock);
	mr = *verbs_mrs_of((struct verbs_pd *)pd);
	while (mr && mr->ibv.handle != mr_handle)
		mr = mr->next;
	if (mr)
		mr->imports++;
	pthread_mutex_unlock(&root->lock);
	return mr ? &mr->ibv : verbs_null(EINVAL);
}

void ibv_unimport_mr(struct ibv_mr *ibv)
{
	struct verbs_root *root = verbs_root_of(ibv->context);

	pthread_mutex_lock(&root->lock);
	((struct verbs_mr *)ibv)->imports--;
	pthread_mutex_unlock(&root->lock);
}
