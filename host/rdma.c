#include "host/rdma.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "host/error.h"

struct function {
	const char *name;
	size_t at; /* offset of its field */
};

#define IBV(field)  { "ibv_" #field, offsetof(struct srdma_rdma, field) },
#define RDMA(field) { "rdma_" #field, offsetof(struct srdma_rdma, field) },

static const struct function of_verbs[] = { SRDMA_RDMA_VERBS(IBV) };
static const struct function of_cm[] = { SRDMA_RDMA_CM(RDMA) };

enum {
	VERBS_COUNT = sizeof(of_verbs) / sizeof(*of_verbs),
	CM_COUNT = sizeof(of_cm) / sizeof(*of_cm),
};

static int missing(void)
{
	const char *why = dlerror();

	return srdma_error_set(-ENOTSUP,
			       "a leg over RDMA needs libibverbs and "
			       "librdmacm (%.300s): install libibverbs1, "
			       "ibverbs-providers and librdmacm1",
			       why ? why : "unknown");
}

/* The library is never closed: devices that it opened may be in use. */
static int load(struct srdma_rdma *rdma, const char *library,
		const struct function *functions, size_t count)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (!handle)
		return missing();
	for (size_t i = 0; i < count; i++) {
		void *found = dlsym(handle, functions[i].name);

		if (!found)
			return missing();
		memcpy((char *)rdma + functions[i].at, &found, sizeof(found));
	}
	return 0;
}

static int load_both(struct srdma_rdma *rdma)
{
	int r = load(rdma, "libibverbs.so.1", of_verbs, VERBS_COUNT);

	return r ? r : load(rdma, "librdmacm.so.1", of_cm, CM_COUNT);
}

int srdma_rdma_load(const struct srdma_rdma **out)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct srdma_rdma rdma;
	static int loaded;
	int r = 0;

	pthread_mutex_lock(&lock);
	if (!loaded)
		r = load_both(&rdma);
	loaded = !r;
	pthread_mutex_unlock(&lock);
	*out = &rdma;
	return r;
}
