#include "host/access.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "host/error.h"

static int ask(struct srdma_channel **channel,
	       const struct srdma_agent_place *agent, const char *path)
{
	struct srdma_message w = { 0 };
	int r;

	srdma_message_map(&w, 2);
	srdma_message_text(&w, "do");
	srdma_message_text(&w, "open");
	srdma_message_text(&w, "worker");
	srdma_message_text(&w, path);
	r = srdma_message_finish(&w);
	r = r ? srdma_error_set(r, "no memory")
	      : srdma_channel_open(channel, agent, &w, NULL,
				   SRDMA_CHANNEL_TIMEOUT_MS);
	srdma_message_free(&w);
	return r;
}

static int next(struct srdma_channel *channel, struct srdma_agent_event *e)
{
	const int64_t deadline =
		srdma_socket_deadline(SRDMA_CHANNEL_TIMEOUT_MS);
	int r;

	do {
		r = srdma_channel_next(channel, e, deadline);
	} while (r == -EINTR);
	if (r == -ETIMEDOUT)
		return srdma_error_set(r,
				       "the agent passed no connection in "
				       "%d ms: restart it",
				       SRDMA_CHANNEL_TIMEOUT_MS);
	return r;
}

int srdma_access_connect(struct srdma_control **out,
			 const struct srdma_agent_place *agent,
			 const char *path, int *remote)
{
	struct srdma_channel *channel = NULL;
	struct srdma_agent_event e;
	int fd = -1, r;

	*out = NULL;
	*remote = 0;
	r = ask(&channel, agent, path);
	if (!r)
		r = next(channel, &e);
	if (!r && !strcmp(e.event, "error"))
		r = srdma_channel_error(&e);
	if (!r)
		fd = srdma_channel_take_fd(channel);
	if (!r && (fd < 0 || strcmp(e.event, "opened")))
		r = srdma_channel_illegal();
	if (!r)
		*remote = e.remote;
	if (!r)
		r = srdma_control_create(out, fd, path,
					 SRDMA_CONTROL_TIMEOUT_MS);
	else if (fd >= 0)
		close(fd);
	srdma_channel_close(channel);
	return r;
}
