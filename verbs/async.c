/*
 * ibv_get_async_event(): the end of the worker, and events of QPs and SRQs. They are
 * noticed when a CQ is polled, or an event of a channel is waited for.
 */
#include <unistd.h>

#include "verbs/objects.h"

/* A read of the descriptor takes one event. Its object may have ended meanwhile. */
int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	uint64_t n;

	do {
		if (read(context->async_fd, &n, sizeof(n)) != sizeof(n))
			return -1;
	} while (!verbs_event_take(verbs_root_of(context), event));
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	verbs_event_ack(event);
}
