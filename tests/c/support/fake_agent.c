#include "support/fake_agent.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/message.h"

static void read_first(struct fake_agent *a, int fd,
		       struct srdma_socket_fds *fds)
{
	int n = srdma_socket_receive(fd, a->first, sizeof(a->first) - 1, fds,
				     INT64_MAX);

	n = n < 0 ? 0 : n;
	a->passed = fds->n;
	a->channels++;
	for (int i = 0; i < n; i++)
		if (!a->first[i])
			a->first[i] = '.';
	a->first[n] = 0;
}

static void *run(void *arg)
{
	struct fake_agent *a = arg;

	for (;;) {
		struct srdma_socket_fds fds;
		int fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			return NULL;
		read_first(a, fd, &fds);
		a->act(fd);
		srdma_socket_close_fds(&fds);
		close(fd);
	}
}

void fake_agent_start(struct fake_agent *a, const char *folder)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };

	snprintf(a->path, sizeof(a->path), "%s/agent", folder);
	strcpy(name.sun_path, a->path);
	a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(
		bind(a->listener, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(a->listener, 4), 0);
	assert_int_equal(pthread_create(&a->thread, NULL, run, a), 0);
}

void fake_agent_stop(struct fake_agent *a)
{
	shutdown(a->listener, SHUT_RDWR);
	pthread_join(a->thread, NULL);
	close(a->listener);
	unlink(a->path);
}

void fake_agent_report(int fd, const char *event, const char *code,
		       const struct srdma_socket_fds *fds)
{
	struct srdma_message w = { 0 };

	srdma_message_map(&w, 3);
	srdma_message_text(&w, "event");
	srdma_message_text(&w, event);
	srdma_message_text(&w, "code");
	srdma_message_text(&w, code);
	srdma_message_text(&w, "text");
	srdma_message_text(&w, "because");
	assert_int_equal(srdma_message_finish(&w), 0);
	srdma_socket_send(fd, w.data, w.len, fds, INT64_MAX);
	srdma_message_free(&w);
}
