#include "shared.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "log.h"
#include "preference.h"
#include "process.h"

/* *out NULL: OpenSSL, whose implementations were self-tested before. */
static int open_provider(struct srdma_provider **out, const char *name)
{
	int rc = srdma_provider_create(out, name);

	if (rc == -ENOENT)
		log_error("--provider %s is not part of this build: use "
			  "openssl",
			  name);
	else if (rc == -ENOTSUP)
		log_error("--provider %s does not support this CPU: use "
			  "openssl",
			  name);
	else if (rc < 0)
		log_error("the crypto provider fails its self-test (%s): "
			  "check the machine, or use --provider openssl",
			  strerror(-rc));
	else
		log_info("crypto provider: %s", srdma_provider_name(*out));
	return rc;
}

static int open_descriptors(struct shared *s, unsigned workers)
{
	int rc = broadcast_open(&s->words, workers);

	if (rc < 0)
		return rc;
	s->signals = process_signals();
	if (s->signals < 0)
		return s->signals;
	s->ended = epoll_create1(EPOLL_CLOEXEC);
	if (s->ended < 0)
		return -errno;
	s->report = report_out_create();
	return s->report ? 0 : -errno;
}

int shared_open(struct shared *s, const struct options *o)
{
	int rc;

	*s = (struct shared){ .signals = -1, .ended = -1 };
	rc = open_descriptors(s, o->workers);
	if (rc < 0)
		log_error("no file descriptors or memory to start: %s",
			  strerror(-rc));
	else
		rc = open_provider(&s->provider, o->provider);
	if (rc < 0)
		shared_close(s);
	else
		preference_measure(s->suites, s->provider);
	return rc;
}

void shared_close(struct shared *s)
{
	srdma_provider_destroy(s->provider);
	report_out_destroy(s->report);
	broadcast_close(&s->words);
	if (s->ended >= 0)
		close(s->ended);
	if (s->signals >= 0)
		close(s->signals);
}
