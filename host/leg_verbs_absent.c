/* In place of the other leg_verbs files where libsrdma is built without the
 * headers of libibverbs and librdmacm. */
#include "host/leg_verbs.h"

#include <errno.h>

#include "host/error.h"

int srdma_leg_verbs_check(void)
{
	return srdma_error_set(-ENOTSUP,
			       "this libsrdma was built without RDMA: build it "
			       "where libibverbs-dev and librdmacm-dev are "
			       "installed, or use a worker with --host-dev "
			       "shm");
}

int srdma_leg_verbs_create(struct srdma_host_leg **out,
			   const struct srdma_leg_verbs_params *params,
			   int64_t deadline)
{
	(void)params;
	(void)deadline;
	*out = NULL;
	return srdma_leg_verbs_check();
}
