#include "control/server.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/addr.h"
#include "base/time.h"
#include "control/audit.h"
#include "control/credentials.h"
#include "control/entrance.h"
#include "control/link.h"
#include "offload/log.h"
#include "offload/process.h"

enum {
	LINKS_MAX = 4,		    /* of the proxy; one more ends the oldest */
	LINKS_ROOM = 2 * LINKS_MAX, /* with those that are ending */
	BACKLOG = 128,
};

struct server {
	const struct settings *settings;
	struct credentials credentials;
	struct loop loop;
	struct watch signals;
	struct entrance *entrance;
	struct stream_worker worker;
	struct link_params link_params;
	struct link *link[LINKS_ROOM]; /* the oldest first */
	unsigned links;
	int over;
};

/* Admission --------------------------------------------------------------- */

static void log_refused(void *ctx, const char *address, const struct reason *r)
{
	(void)ctx;
	audit_write("refused", "address", address, "code", r->code, "text",
		    r->text, NULL);
}

static SSL_CTX *begin(void *ctx, struct reason *r)
{
	struct server *s = ctx;

	if (credentials_refresh(&s->credentials, r))
		audit_write("credentials", "text", r->text, NULL);
	if (credentials_check_clock(&s->credentials, time(NULL), r))
		return NULL;
	return s->credentials.ctx;
}

static int check(void *ctx, const SSL *ssl, struct reason *r)
{
	const struct server *s = ctx;

	return credentials_check_peer(ssl, s->settings->peer, r);
}

static void greeted(const struct protocol *p)
{
	struct audit a;

	audit_begin(&a, "linked", audit_now());
	audit_text(&a, "computer", p->name);
	audit_number(&a, "ahead", p->time - time(NULL));
	audit_put(&a);
}

static void remove_link(struct server *s, unsigned i)
{
	const struct reason *r = link_over(s->link[i]);

	audit_write("unlinked", "code", r->code, "text", r->text, NULL);
	link_destroy(s->link[i]);
	s->links--;
	memmove(s->link + i, s->link + i + 1,
		(s->links - i) * sizeof(*s->link));
}

/* Makes room for one more link: ends the oldest of LINKS_MAX, and closes the
 * oldest that is ending if all places are taken. */
static void end_oldest(struct server *s)
{
	unsigned open = 0, oldest = 0, ending = 0;
	struct reason r;

	for (unsigned i = s->links; i-- > 0;) {
		if (link_over(s->link[i])) {
			ending = i;
			continue;
		}
		oldest = i;
		open++;
	}
	if (open == LINKS_MAX) {
		reason_set(&r, "busy", "more than %d links of this host",
			   LINKS_MAX);
		link_refuse(s->link[oldest], &r);
	}
	if (s->links == LINKS_ROOM)
		remove_link(s, ending);
}

static void admit(void *ctx, SSL *ssl)
{
	struct server *s = ctx;

	end_oldest(s);
	if (link_create(&s->link[s->links], &s->link_params, ssl) == 0)
		s->links++;
}

/* Life -------------------------------------------------------------------- */

static void run_signals(struct watch *w, uint32_t events)
{
	struct server *s =
		(struct server *)((char *)w - offsetof(struct server, signals));
	struct signalfd_siginfo info;

	(void)events;
	if (read(w->fd, &info, sizeof(info)) == sizeof(info) &&
	    info.ssi_signo != SIGUSR1)
		s->over = 1;
}

/* Returns the time of the next call, at most. */
static uint64_t check_all(struct server *s)
{
	const uint64_t now = loop_now();
	uint64_t next = entrance_check(s->entrance, now);

	for (unsigned i = 0; i < s->links;) {
		const uint64_t due = link_check(s->link[i], now);

		if (link_is_closed(s->link[i])) {
			remove_link(s, i);
			continue;
		}
		next = srdma_time_earlier(next, due);
		i++;
	}
	return next;
}

static int listen_at(const struct sockaddr_storage *at)
{
	const socklen_t len = at->ss_family == AF_INET6
				      ? sizeof(struct sockaddr_in6)
				      : sizeof(struct sockaddr_in);
	const int on = 1;
	int fd = socket(at->ss_family,
			SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int rc;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (const struct sockaddr *)at, len) == 0 &&
	    listen(fd, BACKLOG) == 0)
		return fd;
	rc = -errno;
	close(fd);
	return rc;
}

static int open_entrance(struct server *s, int listener)
{
	const struct entrance_params params = {
		.loop = &s->loop,
		.listener = listener,
		.begin = begin,
		.check = check,
		.admit = admit,
		.refused = log_refused,
		.ctx = s,
	};
	int rc = loop_open(&s->loop);

	if (rc < 0)
		return rc;
	rc = loop_add(&s->loop, &s->signals);
	if (rc == 0)
		rc = entrance_create(&s->entrance, &params);
	if (rc < 0)
		loop_close(&s->loop);
	return rc;
}

static void serve(struct server *s)
{
	char at[SRDMA_NAME_LEN];

	srdma_addr_format(at, (const struct sockaddr *)&s->settings->listen);
	audit_write("started", "listen", at, "control", s->settings->control,
		    "identity", s->credentials.identity, "peer",
		    s->settings->peer, NULL);
	process_notify("READY=1");
	while (!s->over)
		loop_wait(&s->loop, check_all(s));
	while (s->links) {
		link_drop(s->link[0], "unreachable", "this end closed it");
		remove_link(s, 0);
	}
	entrance_destroy(s->entrance);
	loop_close(&s->loop);
}

static int open_listener(const struct settings *settings)
{
	const int fd = listen_at(&settings->listen);
	char at[SRDMA_NAME_LEN];

	if (fd >= 0)
		return fd;
	srdma_addr_format(at, (const struct sockaddr *)&settings->listen);
	log_error("cannot listen at %s: %s: change --listen", at,
		  strerror(-fd));
	return fd;
}

static int run(struct server *s)
{
	const int listener = open_listener(s->settings);
	int rc;

	if (listener < 0)
		return listener;
	s->signals = (struct watch){ .fd = process_signals(),
				     .events = EPOLLIN,
				     .run = run_signals };
	rc = s->signals.fd < 0 ? s->signals.fd : open_entrance(s, listener);
	if (rc == 0)
		serve(s);
	else
		log_error("waiting for events: %s", strerror(-rc));
	close(listener);
	return rc;
}

int server_run(const struct settings *settings)
{
	struct server s = {
		.settings = settings,
		.worker = { settings->control, settings->worker_uid },
	};
	struct reason r;
	int rc;

	s.link_params = (struct link_params){ &s.loop, &s.worker, greeted };
	if (credentials_open(&s.credentials, &settings->files, &r)) {
		log_error("%s", r.text);
		return -EPROTO;
	}
	rc = run(&s);
	credentials_close(&s.credentials);
	return rc;
}
