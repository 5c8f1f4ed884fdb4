/* Asynchronous events. The only one is the end of the worker. */
#include <errno.h>
#include <unistd.h>

#include "verbs/objects.h"

/* The eventfd counts the events that were not read; a read takes one. */
void verbs_event_worker_gone(struct verbs_root *root)
{
	const uint64_t one = 1;

	if (!root->gone &&
	    write(root->ctx.context.async_fd, &one, sizeof(one)) == sizeof(one))
		root->gone = 1;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	uint64_t n;

	if (read(context->async_fd, &n, sizeof(n)) != sizeof(n))
		return -1;
	*event = (struct ibv_async_event){ .event_type =
						   IBV_EVENT_DEVICE_FATAL };
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	(void)event; /* it names no object whose end would wait for it */
}
