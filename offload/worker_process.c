#include "worker_process.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/time.h"
#include "log.h"
#include "ports.h"

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

static int open_ports(struct worker_process *t)
{
	int rc = ports_open_host(&t->params.host, &t->o);

	if (rc < 0)
		return rc;
	rc = ports_open_wire(&t->params.wire, &t->o);
	if (rc < 0)
		t->params.host->ops->destroy(t->params.host);
	return rc;
}

/* srdma_relay_create() owns the ports even if it fails. */
static int open_relay(struct worker_process *t)
{
	const struct options *o = &t->o;
	struct srdma_relay_params params = {
		.allow_unprotected = o->allow_unprotected,
		.mtu = o->mtu,
		.window = o->window,
		.reads = o->reads,
		.key_cache = o->key_cache,
		.qps = o->max_qps,
		.minima = 1,
		.processes = o->workers,
		.process = t->number,
		.table_memory = (uint64_t)o->table_mib << 20,
		.ping_ms = o->ping_ms,
		.silence_ms = o->silence_ms,
		.rekey_packets = o->rekey_packets,
		.rekey_bytes = o->rekey_bytes,
		.rekey_ns = o->rekey_ms * SRDMA_MS,
		.provider = t->shared->provider,
		.random = random_fill,
	};
	int rc = open_ports(t);

	if (rc < 0)
		return rc;
	params.host = t->params.host;
	params.wire = t->params.wire;
	rc = srdma_relay_create(&t->params.relay, &params);
	if (rc < 0)
		log_error("relay: %s", strerror(-rc));
	return rc;
}

static int open_control(struct worker_process *t)
{
	const int agent_only = t->o.agent_uid != OPTIONS_NO_UID;
	struct control_params params = {
		.listener = t->listener,
		.requests = {
			.relay = t->params.relay,
			.host = t->params.host,
			.wire = t->params.wire,
			.host_dev = t->o.host_dev,
			.name = t->o.name,
			.suites = t->shared->suites,
			.workers = t->o.workers,
			.index = t->number,
			.allow_unprotected = t->o.allow_unprotected,
			.agent_uid = agent_only ? (uint32_t)t->o.agent_uid
						: geteuid(),
			.agent_only = agent_only,
		},
	};
	int rc;

	memcpy(params.requests.gid, t->o.gid, sizeof(params.requests.gid));
	rc = control_create(&t->params.control, &params);
	if (rc < 0)
		log_error("control socket: %s", strerror(-rc));
	return rc;
}

int worker_process_open(struct worker_process *t)
{
	int rc = 0;

	t->params = (struct worker_params){
		.name = t->o.name,
		.index = t->number,
		.words = &t->shared->words,
		.signals = t->number == 0 ? t->shared->signals : -1,
		.ended = t->number == 0 ? t->shared->ended : -1,
		.report = t->shared->report,
		.stats = t->o.stats,
	};
	if (t->o.pin.cores)
		rc = pin_thread(t->o.pin.core[t->number]);
	if (rc == 0)
		rc = open_relay(t);
	if (rc < 0)
		return rc;
	rc = open_control(t);
	if (rc < 0)
		goto destroy_relay;
	rc = worker_create(&t->worker, &t->params);
	if (rc == 0)
		return 0;
	log_error("waiting for events: %s", strerror(-rc));
	control_destroy(t->params.control);
destroy_relay:
	srdma_relay_destroy(t->params.relay);
	return rc;
}

void worker_process_close(struct worker_process *t)
{
	worker_destroy(t->worker);
	control_destroy(t->params.control);
	srdma_relay_destroy(t->params.relay);
}
