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
	struct ibv_device_attr_ex found = {
		.hca_core_clock = CLOCK_KHZ,
		.completion_timestamp_mask = UINT64_MAX,
	};

	if (input && input->comp_mask)
		return EINVAL;
	ibv_query_device(context, &found.orig_attr);
	found.phys_port_cnt_ex = found.orig_attr.phys_port_cnt;
	memset(attr, 0, size);
	memcpy(attr, &found, size < sizeof(found) ? size : sizeof(found));
	return 0;
}

uint64_t verbs_clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* The clock counts nanoseconds. Like other devices do, tv_nsec has all of them. */
int verbs_query_rt_values(struct ibv_context *context,
			  struct ibv_values_ex *values)
{
	(void)context;
	values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;
	values->raw_clock = (struct timespec){ .tv_nsec = (long)verbs_clock_ns(
						       CLOCK_MONOTONIC) };
	return 0;
}
