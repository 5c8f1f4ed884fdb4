/* ibv_query_device_ex() and ibv_query_rt_values_ex(). */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "verbs/objects.h"

enum { CLOCK_KHZ = 1000000, NS_PER_S = 1000000000 };

int verbs_query_device_ex(struct ibv_context *context,
			  const struct ibv_query_device_ex_input *input,
			  struct ibv_device_attr_ex *attr, size_t size)
{
	struct ibv_device_attr_ex found = { .hca_core_clock = CLOCK_KHZ };

	if (input && input->comp_mask)
		return EINVAL;
	ibv_query_device(context, &found.orig_attr);
	found.phys_port_cnt_ex = found.orig_attr.phys_port_cnt;
	memset(attr, 0, size);
	memcpy(attr, &found, size < sizeof(found) ? size : sizeof(found));
	return 0;
}

/* The clock counts nanoseconds. Like other devices do, tv_nsec has all of them. */
int verbs_query_rt_values(struct ibv_context *context,
			  struct ibv_values_ex *values)
{
	struct timespec now;

	(void)context;
	values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
	clock_gettime(CLOCK_MONOTONIC, &now);
	values->raw_clock =
		(struct timespec){ .tv_nsec = now.tv_sec * NS_PER_S +
					      now.tv_nsec };
	return 0;
}
