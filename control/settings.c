#include "control/settings.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"
#include "control/identity.h"
#include "host/socket.h"

static const char help[] =
	"Usage: srdma-control --listen IP:PORT --control PATH --cert FILE --key FILE\n"
	"                     --ca FILE --peer IDENTITY [OPTION...]\n"
	"Connects the proxy of a host to the worker of this NIC, in place of an agent:\n"
	"the agent runs on the host.\n"
	"\n"
	"  --listen IP:PORT     where the proxy connects: an address of the link to the\n"
	"                       host, [IPv6]:PORT too\n"
	"  --control PATH       control socket of the worker (of its process 0)\n"
	"  --cert FILE          certificate of this NIC, and chain (PEM)\n"
	"  --key FILE           its private key (PEM, not encrypted)\n"
	"  --ca FILE            certificates of the CAs of the proxy (PEM)\n"
	"  --crl FILE           revocation list of the CA (PEM; default: none)\n"
	"  --peer IDENTITY      identity of the proxy, spiffe://example.org/left/control\n"
	"  --worker-uid UID     user of the worker, if it is neither root nor that of\n"
	"                       this process (which is then --agent-uid of the worker)\n"
	"  --help               print this text and exit\n"
	"  --version            print the version and exit\n"
	"\n"
	"Replaced files of certificate, key, CA and revocation list are used for the\n"
	"next connection. Log lines on stderr are JSON objects.\n";

const char *settings_help(void)
{
	return help;
}

const char *settings_version(void)
{
	return "srdma-control 0.1.0 (srdma-control/1)\n";
}

static enum settings_result wrong(struct settings *s, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static enum settings_result wrong(struct settings *s, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(s->error, sizeof(s->error), format, args);
	va_end(args);
	return SETTINGS_WRONG;
}

enum {
	OPT_LISTEN = 256,
	OPT_CONTROL,
	OPT_CERT,
	OPT_KEY,
	OPT_CA,
	OPT_CRL,
	OPT_PEER,
	OPT_WORKER_UID,
	OPT_HELP,
	OPT_VERSION,
};

static const struct option table[] = {
	{ "listen", required_argument, NULL, OPT_LISTEN },
	{ "control", required_argument, NULL, OPT_CONTROL },
	{ "cert", required_argument, NULL, OPT_CERT },
	{ "key", required_argument, NULL, OPT_KEY },
	{ "ca", required_argument, NULL, OPT_CA },
	{ "crl", required_argument, NULL, OPT_CRL },
	{ "peer", required_argument, NULL, OPT_PEER },
	{ "worker-uid", required_argument, NULL, OPT_WORKER_UID },
	{ "help", no_argument, NULL, OPT_HELP },
	{ "version", no_argument, NULL, OPT_VERSION },
	{ NULL, 0, NULL, 0 },
};

static enum settings_result listen_set(struct settings *s, const char *text)
{
	if (srdma_addr_parse(&s->listen, text, SRDMA_ADDR_NO_PORT) == 0 &&
	    srdma_addr_port((const struct sockaddr *)&s->listen))
		return SETTINGS_RUN;
	return wrong(s,
		     "--listen %.64s: give IP:PORT or [IPv6]:PORT, an address "
		     "of the link to the host",
		     text);
}

/* The paths of other worker processes are longer by up to 3 bytes. */
static enum settings_result control_set(struct settings *s, const char *path)
{
	const size_t most = SRDMA_SOCKET_PATH - 4;

	if (*path != '/' || strlen(path) > most)
		return wrong(s,
			     "--control %.120s: give an absolute path of at "
			     "most %zu bytes, that of the worker's socket",
			     path, most);
	s->control = path;
	return SETTINGS_RUN;
}

static enum settings_result peer_set(struct settings *s, const char *uri)
{
	if (!identity_is_valid(uri, strlen(uri)))
		return wrong(s,
			     "--peer %.120s: give one identity, such as "
			     "spiffe://example.org/left/control",
			     uri);
	s->peer = uri;
	return SETTINGS_RUN;
}

static enum settings_result uid_set(struct settings *s, const char *text)
{
	char *end;
	unsigned long long uid;

	errno = 0;
	uid = strtoull(text, &end, 10);
	if (errno || *end || !isdigit((unsigned char)*text) ||
	    uid >= UINT32_MAX)
		return wrong(s, "--worker-uid %.32s: give the number of a user",
			     text);
	s->worker_uid = (uint32_t)uid;
	return SETTINGS_RUN;
}

static enum settings_result take(struct settings *s, int opt, const char *arg)
{
	switch (opt) {
	case OPT_LISTEN:
		return listen_set(s, arg);
	case OPT_CONTROL:
		return control_set(s, arg);
	case OPT_CERT:
		s->files.cert = arg;
		return SETTINGS_RUN;
	case OPT_KEY:
		s->files.key = arg;
		return SETTINGS_RUN;
	case OPT_CA:
		s->files.ca = arg;
		return SETTINGS_RUN;
	case OPT_CRL:
		s->files.crl = arg;
		return SETTINGS_RUN;
	case OPT_PEER:
		return peer_set(s, arg);
	case OPT_WORKER_UID:
		return uid_set(s, arg);
	case OPT_HELP:
		return SETTINGS_HELP;
	}
	return SETTINGS_VERSION;
}

static enum settings_result check_complete(struct settings *s)
{
	const struct {
		const char *option;
		int given;
	} needed[] = {
		{ "listen IP:PORT", s->listen.ss_family != 0 },
		{ "control PATH", s->control != NULL },
		{ "cert FILE", s->files.cert != NULL },
		{ "key FILE", s->files.key != NULL },
		{ "ca FILE", s->files.ca != NULL },
		{ "peer IDENTITY", s->peer != NULL },
	};

	for (unsigned i = 0; i < sizeof(needed) / sizeof(*needed); i++)
		if (!needed[i].given)
			return wrong(s, "give --%s; see --help",
				     needed[i].option);
	return SETTINGS_RUN;
}

enum settings_result settings_parse(struct settings *s, int argc, char **argv)
{
	int opt;

	*s = (struct settings){ .worker_uid = UINT32_MAX };
	optind = 0; /* lets a test call this function again */
	while ((opt = getopt_long(argc, argv, "+:", table, NULL)) != -1) {
		enum settings_result rc;

		if (opt == ':')
			return wrong(s, "%.64s needs a value; see --help",
				     argv[optind - 1]);
		if (opt == '?')
			return wrong(s,
				     "%.64s is not an option, or takes no "
				     "value; see --help",
				     argv[optind - 1]);
		rc = take(s, opt, optarg);
		if (rc != SETTINGS_RUN)
			return rc;
	}
	if (optind < argc)
		return wrong(s, "\"%.64s\": only options are taken; see --help",
			     argv[optind]);
	return check_complete(s);
}
