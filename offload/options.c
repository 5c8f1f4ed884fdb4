#include "options_impl.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relay/ctl.h"
#include "relay/relay.h"
#include "wire/wire.h"

enum {
	MIN_MTU = 256,
	DEFAULT_WINDOW = 512,
	DEFAULT_READS = 16,
	DEFAULT_KEY_CACHE = 1024,
	MAX_TABLE_MIB = 1 << 20,
	MAX_STATS = 86400,
	MIN_REKEY_MS = 10,
	MAX_REKEY_MS = SRDMA_REKEY_NS / 1000000,
	MIN_PING_MS = 10,
};

enum options_result options_wrong(struct options *o, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(o->error, sizeof(o->error), format, args);
	va_end(args);
	return OPTIONS_WRONG;
}

/* A numeric option and its place in struct options. */
struct amount {
	int opt;
	const char *option;
	uint64_t least, most; /* options in seconds: milliseconds */
	size_t at, size;      /* of a uint32_t or uint64_t member */
};

static void put(struct options *o, const struct amount *a, uint64_t value)
{
	const uint32_t narrow = (uint32_t)value;

	memcpy((char *)o + a->at,
	       a->size == sizeof(narrow) ? (const void *)&narrow : &value,
	       a->size);
}

static enum options_result number(struct options *o, const struct amount *a,
				  const char *text)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || *end || !isdigit((unsigned char)*text) || v < a->least ||
	    v > a->most)
		return options_wrong(
			o, "--%s %.32s: give a number from %llu to %llu",
			a->option, text, (unsigned long long)a->least,
			(unsigned long long)a->most);
	put(o, a, v);
	return OPTIONS_RUN;
}

/* Accepts a fraction; the resolution is 1 ms. */
static enum options_result seconds(struct options *o, const struct amount *a,
				   const char *text)
{
	const char *end = text + strspn(text, "0123456789.");
	char *parsed;
	double ms = strtod(text, &parsed) * 1000 + 0.5;

	if (*end || parsed != end || parsed == text || ms < (double)a->least ||
	    ms >= (double)a->most + 1)
		return options_wrong(
			o, "--%s %.32s: give seconds from %g to %g", a->option,
			text, (double)a->least / 1000, (double)a->most / 1000);
	put(o, a, (uint64_t)ms);
	return OPTIONS_RUN;
}

static enum options_result level(struct options *o, const char *text)
{
	static const char *const names[] = { "error", "info", "debug" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (strcmp(text, names[i]) == 0) {
			o->log_level = (enum log_level)i;
			return OPTIONS_RUN;
		}
	}
	return options_wrong(o, "--log-level %.32s: give error, info or debug",
			     text);
}

/*
 * The name is used as a file name in the wire's directory and as a JSON string.
 */
static enum options_result name_set(struct options *o, const char *text,
				    size_t len)
{
	size_t ok = strspn(text, "abcdefghijklmnopqrstuvwxyz"
				 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");

	if (len == 0 || len >= sizeof(o->name) || ok < len || *text == '.')
		return options_wrong(
			o,
			"name \"%.*s\": give 1 to 63 letters, digits, '_', "
			"'-' or '.', not '.' first, by --name",
			(int)(len < 80 ? len : 80), text);
	memcpy(o->name, text, len);
	o->name[len] = '\0';
	return OPTIONS_RUN;
}

static enum options_result control_set(struct options *o, const char *path)
{
	if (*path == '\0' || strlen(path) >= sizeof(o->control))
		return options_wrong(
			o,
			"--control %.120s: give a path of 1 to %zu bytes, "
			"the most a Unix socket can have",
			path, sizeof(o->control) - 1);
	strcpy(o->control, path);
	return OPTIONS_RUN;
}

static enum options_result name_from_control(struct options *o)
{
	const char *base = strrchr(o->control, '/');
	size_t len;

	base = base ? base + 1 : o->control;
	len = strlen(base);
	if (len > 5 && strcmp(base + len - 5, ".sock") == 0)
		len -= 5;
	return name_set(o, base, len);
}

static enum options_result control_from_name(struct options *o)
{
	const char *run = getenv("XDG_RUNTIME_DIR");
	char path[PATH_MAX];

	if (!run || *run != '/')
		return options_wrong(
			o, "XDG_RUNTIME_DIR is not set: set it, or give "
			   "--control PATH");
	snprintf(path, sizeof(path), "%s/srdma/%s.sock", run, o->name);
	return control_set(o, path);
}

static enum options_result pin(struct options *o, const char *text)
{
	if (pin_parse(&o->pin, text) == 0)
		return OPTIONS_RUN;
	return options_wrong(
		o,
		"--pin %.64s: give numbers of cores and ranges of them, "
		"0,2-5, each core once",
		text);
}

static enum options_result gid(struct options *o, const char *text)
{
	switch (gid_parse(o->gid, text)) {
	case 0:
		return OPTIONS_RUN;
	case -EADDRNOTAVAIL:
		return options_wrong(
			o,
			"--gid %.64s is not a unicast address: give one "
			"address of this worker",
			text);
	}
	return options_wrong(
		o,
		"--gid %.64s is not an IPv4 or IPv6 address: give one "
		"without brackets and port",
		text);
}

/* Checking the last worker process is enough: its values are the largest. */
static enum options_result check_workers(struct options *o)
{
	struct options last;

	if (o->pin.cores && o->pin.cores < o->workers)
		return options_wrong(
			o,
			"--pin names %u cores for --workers %u: name one "
			"for each",
			o->pin.cores, o->workers);
	if (o->max_qps > SRDMA_MAX_WORKER_QPS / o->workers)
		return options_wrong(
			o,
			"--max-qps %u with --workers %u: give at most %u, "
			"because the worker processes share the QPNs",
			o->max_qps, o->workers,
			SRDMA_MAX_WORKER_QPS / o->workers);
	if (options_of_process(&last, o, o->workers - 1) == OPTIONS_RUN)
		return OPTIONS_RUN;
	return options_wrong(o, "%s", last.error);
}

static enum options_result complete(struct options *o)
{
	enum options_result rc = OPTIONS_RUN;

	if (!o->name[0] && !o->control[0])
		return options_wrong(
			o, "no name: give --name NAME or --control PATH");
	if (!o->name[0])
		rc = name_from_control(o);
	else if (!o->control[0])
		rc = control_from_name(o);
	if (rc != OPTIONS_RUN)
		return rc;
	if (o->silence_ms <= o->ping_ms)
		return options_wrong(
			o,
			"--silence %g: give more seconds than --ping, "
			"which is %g",
			o->silence_ms / 1000.0, o->ping_ms / 1000.0);
	if (!o->wire_dev)
		return options_wrong(
			o, "no wire: give --wire-dev shm:DIR, udp or an "
			   "RDMA device");
	return OPTIONS_RUN;
}

enum {
	OPT_NAME = 256,
	OPT_CONTROL,
	OPT_HOST_DEV,
	OPT_WIRE_DEV,
	OPT_WIRE_LISTEN,
	OPT_WIRE_TRAINS,
	OPT_HOST_LISTEN,
	OPT_GID,
	OPT_WORKERS,
	OPT_PIN,
	OPT_AGENT_UID,
	OPT_UNPROTECTED,
	OPT_MEMFD_ONLY,
	OPT_MTU,
	OPT_WINDOW,
	OPT_READS,
	OPT_KEY_CACHE,
	OPT_MAX_QPS,
	OPT_TABLE_MEMORY,
	OPT_PING,
	OPT_SILENCE,
	OPT_REKEY_PACKETS,
	OPT_REKEY_BYTES,
	OPT_REKEY_SECONDS,
	OPT_PROVIDER,
	OPT_STATS,
	OPT_LOG_LEVEL,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option table[] = {
	{ "name", required_argument, NULL, OPT_NAME },
	{ "control", required_argument, NULL, OPT_CONTROL },
	{ "host-dev", required_argument, NULL, OPT_HOST_DEV },
	{ "wire-dev", required_argument, NULL, OPT_WIRE_DEV },
	{ "wire-listen", required_argument, NULL, OPT_WIRE_LISTEN },
	{ "wire-trains", no_argument, NULL, OPT_WIRE_TRAINS },
	{ "host-listen", required_argument, NULL, OPT_HOST_LISTEN },
	{ "gid", required_argument, NULL, OPT_GID },
	{ "workers", required_argument, NULL, OPT_WORKERS },
	{ "threads", required_argument, NULL, OPT_WORKERS }, /* former name */
	{ "pin", required_argument, NULL, OPT_PIN },
	{ "agent-uid", required_argument, NULL, OPT_AGENT_UID },
	{ "allow-unprotected", no_argument, NULL, OPT_UNPROTECTED },
	{ "memfd-only", no_argument, NULL, OPT_MEMFD_ONLY },
	{ "mtu", required_argument, NULL, OPT_MTU },
	{ "window", required_argument, NULL, OPT_WINDOW },
	{ "reads", required_argument, NULL, OPT_READS },
	{ "key-cache", required_argument, NULL, OPT_KEY_CACHE },
	{ "max-qps", required_argument, NULL, OPT_MAX_QPS },
	{ "table-memory", required_argument, NULL, OPT_TABLE_MEMORY },
	{ "ping", required_argument, NULL, OPT_PING },
	{ "silence", required_argument, NULL, OPT_SILENCE },
	{ "rekey-packets", required_argument, NULL, OPT_REKEY_PACKETS },
	{ "rekey-bytes", required_argument, NULL, OPT_REKEY_BYTES },
	{ "rekey-seconds", required_argument, NULL, OPT_REKEY_SECONDS },
	{ "provider", required_argument, NULL, OPT_PROVIDER },
	{ "stats", required_argument, NULL, OPT_STATS },
	{ "log-level", required_argument, NULL, OPT_LOG_LEVEL },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

#define PLACE(name)                                                            \
	offsetof(struct options, name), sizeof(((struct options *)0)->name)

static const struct amount numbers[] = {
	{ OPT_WORKERS, "workers", 1, SRDMA_CTL_PROCESSES, PLACE(workers) },
	{ OPT_AGENT_UID, "agent-uid", 0, UINT32_MAX - 1, PLACE(agent_uid) },
	{ OPT_MTU, "mtu", MIN_MTU, SRDMA_MAX_PAYLOAD, PLACE(mtu) },
	{ OPT_WINDOW, "window", 1, SRDMA_MAX_WINDOW, PLACE(window) },
	{ OPT_READS, "reads", 1, SRDMA_MAX_READS, PLACE(reads) },
	{ OPT_KEY_CACHE, "key-cache", 0, SRDMA_MAX_KEY_CACHE,
	  PLACE(key_cache) },
	{ OPT_MAX_QPS, "max-qps", 1, SRDMA_MAX_QPS, PLACE(max_qps) },
	{ OPT_TABLE_MEMORY, "table-memory", 1, MAX_TABLE_MIB,
	  PLACE(table_mib) },
	{ OPT_REKEY_PACKETS, "rekey-packets", 1, SRDMA_REKEY_PACKETS,
	  PLACE(rekey_packets) },
	{ OPT_REKEY_BYTES, "rekey-bytes", 1, SRDMA_REKEY_BYTES,
	  PLACE(rekey_bytes) },
	{ OPT_STATS, "stats", 1, MAX_STATS, PLACE(stats) },
	{ 0, NULL, 0, 0, 0, 0 },
};

static const struct amount times[] = {
	{ OPT_PING, "ping", MIN_PING_MS, SRDMA_MAX_SILENCE_MS, PLACE(ping_ms) },
	{ OPT_SILENCE, "silence", MIN_PING_MS, SRDMA_MAX_SILENCE_MS,
	  PLACE(silence_ms) },
	{ OPT_REKEY_SECONDS, "rekey-seconds", MIN_REKEY_MS, MAX_REKEY_MS,
	  PLACE(rekey_ms) },
	{ 0, NULL, 0, 0, 0, 0 },
};

static const struct amount *amount_of(const struct amount *a, int opt)
{
	while (a->opt && a->opt != opt)
		a++;
	return a->opt ? a : NULL;
}

/* An option whose text is kept as it is, and the place of the pointer. */
static const struct text {
	int opt;
	size_t at;
} texts[] = {
	{ OPT_HOST_DEV, offsetof(struct options, host_dev) },
	{ OPT_WIRE_DEV, offsetof(struct options, wire_dev) },
	{ OPT_WIRE_LISTEN, offsetof(struct options, wire_listen) },
	{ OPT_HOST_LISTEN, offsetof(struct options, host_listen) },
	{ OPT_PROVIDER, offsetof(struct options, provider) },
	{ 0, 0 },
};

/* 1 if the option is one of texts, whose text is kept then. */
static int keep_text(struct options *o, int opt, const char *arg)
{
	const struct text *t = texts;

	while (t->opt && t->opt != opt)
		t++;
	if (t->opt)
		memcpy((char *)o + t->at, &arg, sizeof(arg));
	return t->opt != 0;
}

static enum options_result take(struct options *o, int opt, const char *arg)
{
	const struct amount *amount = amount_of(numbers, opt);

	if (amount)
		return number(o, amount, arg);
	amount = amount_of(times, opt);
	if (amount)
		return seconds(o, amount, arg);
	if (keep_text(o, opt, arg))
		return OPTIONS_RUN;
	switch (opt) {
	case OPT_NAME:
		return name_set(o, arg, strlen(arg));
	case OPT_CONTROL:
		return control_set(o, arg);
	case OPT_GID:
		return gid(o, arg);
	case OPT_PIN:
		return pin(o, arg);
	case OPT_UNPROTECTED:
		o->allow_unprotected = 1;
		return OPTIONS_RUN;
	case OPT_WIRE_TRAINS:
		o->wire_trains = 1;
		return OPTIONS_RUN;
	case OPT_MEMFD_ONLY:
		o->memfd_only = 1;
		return OPTIONS_RUN;
	case OPT_LOG_LEVEL:
		return level(o, arg);
	case OPT_HELP:
		return OPTIONS_HELP;
	}
	return OPTIONS_VERSION;
}

enum options_result options_parse(struct options *o, int argc, char **argv)
{
	enum options_result rc;
	int opt;

	*o = (struct options){
		.host_dev = "shm",
		.workers = 1,
		.agent_uid = OPTIONS_NO_UID,
		.mtu = SRDMA_MAX_PAYLOAD,
		.window = DEFAULT_WINDOW,
		.reads = DEFAULT_READS,
		.key_cache = DEFAULT_KEY_CACHE,
		.max_qps = SRDMA_DEFAULT_QPS,
		.ping_ms = SRDMA_DEFAULT_PING_MS,
		.silence_ms = SRDMA_DEFAULT_SILENCE_MS,
		.rekey_packets = SRDMA_REKEY_PACKETS,
		.rekey_bytes = SRDMA_REKEY_BYTES,
		.rekey_ms = MAX_REKEY_MS,
		.log_level = LEVEL_INFO,
	};
	optind = 0; /* lets a test call this function again */
	while ((opt = getopt_long(argc, argv, "+:", table, NULL)) != -1) {
		if (opt == ':')
			return options_wrong(o,
					     "%.64s needs a value; see --help",
					     argv[optind - 1]);
		if (opt == '?')
			return options_wrong(
				o,
				"%.64s is not an option, or takes no "
				"value; see --help",
				argv[optind - 1]);
		rc = take(o, opt, optarg);
		if (rc != OPTIONS_RUN)
			return rc;
	}
	if (optind < argc)
		return options_wrong(
			o, "\"%.64s\": only options are taken; see --help",
			argv[optind]);
	rc = complete(o);
	if (rc == OPTIONS_RUN)
		rc = options_devices_check(o);
	if (gid_is_zero(o->gid))
		gid_of_listen(o->gid, o->wire_listen);
	return rc == OPTIONS_RUN ? check_workers(o) : rc;
}
