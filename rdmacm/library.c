/* The lock of all ids, and the device srdma0, which has a lock of its own. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rdmacm/objects.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_context *device;
static struct ibv_pd *pd;
static struct srdma_private_self self;

int cm_fail(int err)
{
	errno = err;
	return -1;
}

void cm_lock(void)
{
	pthread_mutex_lock(&lock);
}

void cm_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void cm_wait(void)
{
	pthread_cond_wait(&changed, &lock);
}

void cm_changed(void)
{
	pthread_cond_broadcast(&changed);
}

void cm_library_forget(void)
{
	pthread_mutex_init(&lock, NULL);
	pthread_cond_init(&changed, NULL);
	pthread_mutex_init(&device_lock, NULL);
	device = NULL;
	pd = NULL;
}

/* --- the device --------------------------------------------------------------- */

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	if (!list)
		return;
	if (list[0])
		device = ibv_open_device(list[0]);
	else
		errno = ENODEV;
	ibv_free_device_list(list);
	if (device)
		srdma_private_self(device, &self);
}

struct ibv_context *cm_device(void)
{
	struct ibv_context *found;

	pthread_mutex_lock(&device_lock);
	if (!device)
		open_device();
	found = device;
	pthread_mutex_unlock(&device_lock);
	return found;
}

struct ibv_pd *cm_pd(void)
{
	struct ibv_context *context = cm_device();
	struct ibv_pd *found;

	if (!context)
		return NULL;
	pthread_mutex_lock(&device_lock);
	if (!pd)
		pd = ibv_alloc_pd(context);
	found = pd;
	pthread_mutex_unlock(&device_lock);
	return found;
}

void cm_own_gid(uint8_t gid[SRDMA_GID_LEN])
{
	union ibv_gid own;

	ibv_query_gid(device, 1, 0, &own);
	memcpy(gid, own.raw, SRDMA_GID_LEN);
}

const struct verbs_peer *cm_policy_peer(const uint8_t gid[SRDMA_GID_LEN])
{
	return verbs_policy_peer(self.policy, gid);
}

void cm_self(struct srdma_talk_self *s, const struct verbs_peer *peer,
	     const char **patterns)
{
	*s = (struct srdma_talk_self){ .agent = self.agent,
				       .worker = self.policy->worker,
				       .identity = self.policy->identity };
	s->peers = peer ? peer->allowed : patterns;
	s->n_peers =
		peer ? peer->n : verbs_policy_patterns(self.policy, patterns);
}

struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **list = calloc(2, sizeof(struct ibv_context *));

	if (!list)
		return NULL;
	list[0] = cm_device();
	if (num_devices)
		*num_devices = list[0] != NULL;
	if (list[0])
		return list;
	free(list);
	return NULL;
}

void rdma_free_devices(struct ibv_context **list)
{
	free(list);
}
