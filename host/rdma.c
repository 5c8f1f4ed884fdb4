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

/* Paths in place of names, for a link namespace of their own. */
static struct {
	int set;
	const char *verbs, *cm;
} paths;

void srdma_rdma_set_paths(const char *verbs, const char *cm)
{
	paths.set = 1;
	paths.verbs = verbs;
	paths.cm = cm;
}

static int is_absent(void)
{
	return paths.set && (!paths.verbs || !paths.cm);
}

static int missing(void)
{
	const char *why = is_absent() ? "not found on this machine" : dlerror();

	return srdma_error_set(-ENOTSUP,
			       "a leg over RDMA needs libibverbs and "
			       "librdmacm (%.300s): install libibverbs1, "
			       "ibverbs-providers and librdmacm1",
			       why ? why : "unknown");
}

static int find(void *handle, const char *name, void *field)
{
	void *found = dlsym(handle, name);

	if (!found)
		return missing();
	memcpy(field, &found, sizeof(found));
	return 0;
}

static int find_all(struct srdma_rdma *rdma, void *handle,
		    const struct function *functions, size_t count)
{
	int r = handle ? 0 : missing();

	for (size_t i = 0; i < count && !r; i++)
		r = find(handle, functions[i].name,
			 (char *)rdma + functions[i].at);
	return r;
}

enum { MODE = RTLD_NOW | RTLD_LOCAL };

static void *open_verbs(void)
{
	return paths.set ? dlmopen(LM_ID_NEWLM, paths.verbs, MODE)
			 : dlopen("libibverbs.so.1", MODE);
}

/* It finds libibverbs by its name, in the namespace of that. */
static void *open_cm(void *verbs)
{
	Lmid_t namespace;

	if (!paths.set)
		return dlopen("librdmacm.so.1", MODE);
	return dlinfo(verbs, RTLD_DI_LMID, &namespace)
		       ? NULL
		       : dlmopen(namespace, paths.cm, MODE);
}

/* The libraries are never closed: devices that they opened may be in use. */
static int load_both(struct srdma_rdma *rdma)
{
	void *verbs;
	int r;

	if (is_absent())
		return missing();
	verbs = open_verbs();
	r = find_all(rdma, verbs, of_verbs, VERBS_COUNT);
	if (!r)
		r = find(verbs, "__errno_location", &rdma->errno_location);
	return r ? r : find_all(rdma, open_cm(verbs), of_cm, CM_COUNT);
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
