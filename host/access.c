#include "host/access.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "host/error.h"

int srdma_access_ask(struct srdma_channel **channel,
		     const struct srdma_agent_place *agent, const char *path,
		     int timeout_ms)
{
	struct srdma_message w = { 0 };
	int r;

	srdma_message_map(&w, 2);
	srdma_message_text(&w, "do");
	srdma_message_text(&w, "open");
	srdma_message_text(&w, "worker");
	srdma_message_text(&w, path);
	r = srdma_message_finish(&w);
	*channel = NULL;
	r = r ? srdma_error_set(r, "no memory")
	      : srdma_channel_open(channel, agent, &w, NULL, timeout_ms);
	srdma_message_free(&w);
	return r;
}

int srdma_access_take(struct srdma_channel *channel, struct srdma_control **out,
		      const char *path, enum srdma_access_kind *kind,
		      int64_t deadline)
{
	struct srdma_agent_event e;
	int fd, r;

	*out = NULL;
	do {
		r = srdma_channel_next(channel, &e, deadline);
	} while (r == -EINTR);
	if (r == -ETIMEDOUT)
		return srdma_error_set(r,
				       "the agent passed no connection in "
				       "%d ms: restart it",
				       SRDMA_CHANNEL_TIMEOUT_MS);
	if (!r && !strcmp(e.event, "error"))
		r = srdma_channel_error(&e);
	if (r)
		return r;
	fd = srdma_channel_take_fd(channel);
	if (fd < 0)
		return srdma_channel_illegal();
	if (strcmp(e.event, "opened") != 0) {
		close(fd);
		return srdma_channel_illegal();
	}
	*kind = e.remote    ? SRDMA_ACCESS_REMOTE
		: e.lasting ? SRDMA_ACCESS_LASTING
			    : SRDMA_ACCESS_HERE;
	return srdma_control_create(out, fd, path, SRDMA_CONTROL_TIMEOUT_MS);
}

int srdma_access_connect(struct srdma_control **out,
			 const struct srdma_agent_place *agent,
			 const char *path, enum srdma_access_kind *kind)
{
	struct srdma_channel *channel;
	int r = srdma_access_ask(&channel, agent, path,
				 SRDMA_CHANNEL_TIMEOUT_MS);

	*out = NULL;
	*kind = SRDMA_ACCESS_HERE;
	if (!r)
		r = srdma_access_take(
			channel, out, path, kind,
			srdma_socket_deadline(SRDMA_CHANNEL_TIMEOUT_MS));
	srdma_channel_close(channel);
	return r;
}
