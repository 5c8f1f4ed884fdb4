/*
 * srdma-offload: the worker of one NIC. Start and stop order; the work is
 * worker.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "control.h"
#include "listener.h"
#include "log.h"
#include "options.h"
#include "ports.h"
#include "preference.h"
#include "process.h"
#include "relay.h"
#include "suite.h"
#include "worker.h"

enum { EXIT_OK = 0, EXIT_START = 1, EXIT_USAGE = 2 };

static int random_fill(void *ctx, uint8_t *out, size_t len)
{
	(void)ctx;
	while (len) {
		ssize_t n = getrandom(out, len, 0);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			out += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

/* No worker runs with a suite that this machine computes wrongly. */
static int selftest(void)
{
	const struct srdma_suite *s;
	int rc;

	for (unsigned i = 0; (s = srdma_suite_at(i)) != NULL; i++) {
		rc = srdma_suite_selftest(s, NULL);
		if (rc < 0) {
			log_error("suite %s fails its self-test: check the "
				  "OpenSSL library of this machine",
				  s->name);
			return rc;
		}
	}
	return 0;
}

/* NULL: OpenSSL, whose rows have been tested. */
static int open_provider(struct srdma_provider **out, const char *name)
{
	int rc = srdma_provider_create(out, name);

	if (rc == -ENOENT)
		log_error("--provider %s: there is none in this build; openssl "
			  "would be right",
			  name);
	else if (rc == -ENOTSUP)
		log_error("--provider %s: not on this CPU; openssl would be "
			  "right",
			  name);
	else if (rc < 0)
		log_error("a provider of suites fails its self-test (%s): "
			  "check the machine, or use --provider openssl",
			  strerror(-rc));
	else
		log_info("suites by %s", srdma_provider_name(*out));
	return rc;
}

/* The relay owns the ports, also when this fails. */
static int open_relay(struct worker_params *w, struct srdma_port *port[2],
		      const struct options *o)
{
	struct srdma_relay_params params = {
		.allow_unprotected = o->allow_unprotected,
		.mtu = o->mtu,
		.window = o->window,
		.reads = o->reads,
		.key_cache = o->key_cache,
		.ping_ms = o->ping_ms,
		.silence_ms = o->silence_ms,
		.rekey_packets = o->rekey_packets,
		.rekey_bytes = o->rekey_bytes,
		.rekey_ns = o->rekey_ms * UINT64_C(1000000),
		.provider = w->provider,
		.random = random_fill,
	};
	int rc = ports_open_host(&port[0], o);

	if (rc < 0)
		return rc;
	rc = ports_open_wire(&port[1], o);
	if (rc < 0) {
		port[0]->ops->destroy(port[0]);
		return rc;
	}
	params.host = port[0];
	params.wire = port[1];
	rc = srdma_relay_create(&w->relay, &params);
	if (rc < 0)
		log_error("relay: %s", strerror(-rc));
	return rc;
}

static int serve(const struct options *o, struct worker_params *w, int listener)
{
	uint8_t suites[SRDMA_CTL_SUITES_LEN];
	struct control_params params = {
		.listener = listener,
		.requests = {
			.relay = w->relay,
			.host = w->host,
			.wire = w->wire,
			.host_dev = o->host_dev,
			.name = o->name,
			.suites = suites,
			.allow_unprotected = o->allow_unprotected,
		},
	};
	int rc;

	preference_measure(suites, w->provider);
	rc = control_create(&w->control, &params);
	if (rc < 0) {
		log_error("control socket: %s", strerror(-rc));
		return rc;
	}
	log_line("ready %s control=%s wire=%s", o->name, o->control,
		 w->wire->address);
	process_notify("READY=1");
	rc = worker_run(w);
	process_notify("STOPPING=1");
	control_destroy(w->control);
	return rc;
}

/* The control socket comes first: it tells whether a worker is running. */
static int run(const struct options *o)
{
	struct worker_params w = { .name = o->name, .stats = o->stats };
	struct srdma_port *port[2];
	int listener, rc;

	w.signals = process_signals();
	if (w.signals < 0)
		return w.signals;
	listener = rc = listener_open(o->control);
	if (listener < 0)
		goto close_signals;
	rc = open_provider(&w.provider, o->provider);
	if (rc < 0)
		goto close_listener;
	rc = open_relay(&w, port, o);
	if (rc < 0)
		goto destroy_provider;
	w.host = port[0];
	w.wire = port[1];
	rc = serve(o, &w, listener);
	srdma_relay_destroy(w.relay);
destroy_provider:
	srdma_provider_destroy(w.provider);
close_listener:
	listener_close(listener, o->control);
close_signals:
	close(w.signals);
	return rc;
}

int main(int argc, char **argv)
{
	struct options o;

	switch (options_parse(&o, argc, argv)) {
	case OPTIONS_HELP:
		return fputs(options_help(), stdout) < 0 ? EXIT_START : EXIT_OK;
	case OPTIONS_VERSION:
		return fputs(options_version(), stdout) < 0 ? EXIT_START
							    : EXIT_OK;
	case OPTIONS_WRONG:
		log_error("%s", o.error);
		return EXIT_USAGE;
	case OPTIONS_RUN:
		break;
	}
	log_set_level(o.log_level);
	if (o.allow_unprotected)
		log_info("QPs without any protection are permitted "
			 "(--allow-unprotected)");
	process_harden();
	process_raise_files();
	return selftest() < 0 || run(&o) < 0 ? EXIT_START : EXIT_OK;
}
