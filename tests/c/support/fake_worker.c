#include "support/fake_worker.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "port/shm/doorbell.h"

static void open_fds(struct srdma_socket_fds *fds)
{
	struct srdma_doorbell bell;

	assert_int_equal(srdma_doorbell_create(&bell), 0);
	fds->fd[0] = srdma_doorbell_eventfd();
	fds->fd[1] = dup(bell.fd);
	fds->n = 2;
	srdma_doorbell_destroy(&bell);
}

static void fill(struct fake_worker *w, struct srdma_ctl_msg *m,
		 struct srdma_socket_fds *fds)
{
	switch (m->kind) {
	case SRDMA_CTL_HELLO:
		m->hello = (struct srdma_ctl_hello_answer){
			.version = SRDMA_CTL_VERSION,
			.host_kind = w->legs,
			.pid = (uint32_t)getpid(),
			.name = "fake",
			.suites = { 1, 2, 3 },
			.threads = 1,
			.gid = { [10] = 0xff, 0xff, 10, 0, 0, 7 },
		};
		break;
	case SRDMA_CTL_OPEN:
		m->opened = (struct srdma_ctl_open_answer){ .leg = 1,
							    .token = "token" };
		if (w->legs == SRDMA_PORT_SHM)
			open_fds(fds);
		else
			strcpy(m->opened.address, FAKE_LEG_ADDRESS);
		break;
	case SRDMA_CTL_ATTACH:
		m->attached = (struct srdma_ctl_attach_answer){ .leg = 1 };
		break;
	case SRDMA_CTL_REG_MR:
		m->key = FAKE_KEY;
		break;
	case SRDMA_CTL_INIT:
		memset(&m->qp, 0, sizeof(m->qp));
		m->qp.qp.qpn = w->qpn++;
		break;
	}
}

/* Answers one request. Returns 0 if the connection ends. */
static int serve(struct fake_worker *w, int fd)
{
	uint8_t data[SRDMA_CTL_MAX];
	struct srdma_socket_fds fds;
	struct srdma_ctl_msg m;
	enum fake_action action = FAKE_ANSWER;
	int len = srdma_socket_receive(fd, data, sizeof(data), &fds, 0);

	srdma_socket_close_fds(&fds);
	if (len <= 0)
		return 0;
	if (srdma_ctl_decode(&m, SRDMA_CTL_REQUEST, data, (size_t)len))
		abort();
	w->request = m;
	fill(w, &m, &fds);
	if (w->hook)
		action = w->hook(w, &m, &fds);
	if (action == FAKE_ANSWER) {
		len = srdma_ctl_encode(data, SRDMA_CTL_ANSWER, &m);
		if (len < 0)
			abort();
		srdma_socket_send(fd, data, (size_t)len, &fds, INT64_MAX);
	}
	if (action == FAKE_RAW)
		srdma_socket_send(fd, w->raw, w->raw_len, &fds, INT64_MAX);
	srdma_socket_close_fds(&fds);
	return action != FAKE_CLOSE;
}

static void serve_clients(struct fake_worker *w, const struct pollfd *polled,
			  unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!polled[i].revents || serve(w, w->client[i]))
			continue;
		close(w->client[i]);
		w->client[i] = -1;
	}
}

static void *run(void *arg)
{
	struct fake_worker *w = arg;
	struct pollfd polled[2 + FAKE_CLIENTS];

	for (;;) {
		const unsigned n = w->clients;

		polled[0] = (struct pollfd){ .fd = w->stop, .events = POLLIN };
		polled[1] =
			(struct pollfd){ .fd = w->listener, .events = POLLIN };
		for (unsigned i = 0; i < n; i++)
			polled[2 + i] = (struct pollfd){ .fd = w->client[i],
							 .events = POLLIN };
		poll(polled, 2 + n, -1);
		if (polled[0].revents)
			return NULL;
		if (polled[1].revents && n < FAKE_CLIENTS)
			w->client[w->clients++] =
				accept(w->listener, NULL, NULL);
		serve_clients(w, polled + 2, n);
	}
}

void fake_worker_start(struct fake_worker *w)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };

	memset(w, 0, sizeof(*w));
	w->qpn = FAKE_QPN;
	w->legs = SRDMA_PORT_SHM;
	strcpy(w->folder, "/tmp/srdma-fake-XXXXXX");
	assert_non_null(mkdtemp(w->folder));
	snprintf(w->path, sizeof(w->path), "%s/worker", w->folder);
	strcpy(name.sun_path, w->path);
	w->stop = eventfd(0, EFD_CLOEXEC);
	w->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(
		bind(w->listener, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(w->listener, FAKE_CLIENTS), 0);
	assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
}

void fake_worker_stop(struct fake_worker *w)
{
	eventfd_write(w->stop, 1);
	pthread_join(w->thread, NULL);
	for (unsigned i = 0; i < w->clients; i++)
		if (w->client[i] >= 0)
			close(w->client[i]);
	close(w->listener);
	close(w->stop);
	unlink(w->path);
	rmdir(w->folder);
}

void fake_worker_cut(const struct fake_worker *w)
{
	for (unsigned i = 0; i < w->clients; i++)
		if (w->client[i] >= 0)
			shutdown(w->client[i], SHUT_RDWR);
}

int fake_worker_setup(void **state)
{
	struct fake_worker *w = malloc(sizeof(*w));

	assert_non_null(w);
	fake_worker_start(w);
	*state = w;
	return 0;
}

int fake_worker_teardown(void **state)
{
	fake_worker_stop(*state);
	free(*state);
	return 0;
}

enum fake_action fake_refuse(struct srdma_ctl_msg *m, uint32_t status,
			     const char *text)
{
	m->status = status;
	strcpy(m->text, text);
	return FAKE_ANSWER;
}
