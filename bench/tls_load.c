/*
 * bench/tls_load: GET and SET over TLS 1.3 connections to a local redis or
 * memcached, with DEPTH requests in flight per connection. Keys have 16 bytes,
 * values 32: the key repeated, so that each response can be verified. Prints
 * one line of JSON.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "clock.h"
#include "latency.h"
#include "number.h"
#include "tls_link.h"
#include "zipf.h"

enum {
	MAX_CONNECTIONS = 256,
	MAX_DEPTH = 256,
	MAX_MESSAGE = 128,
	ROOM = MAX_DEPTH * MAX_MESSAGE,
	MAX_KEYS = 1 << 30,
	MAX_PORT = 65535,
	MAX_PID = 1 << 22, /* maximum pid of Linux */
};

static const char help[] =
	"Usage: tls_load FOLDER PORT PID redis|memcached CONNECTIONS DEPTH KEYS\n"
	"                READS SECONDS\n"
	"Closed loop; READS per cent are GET, the others SET, of random keys.\n"
	"SECONDS 0: SET each key once. FOLDER has ca.pem, host-a.pem and .key.\n"
	"PID: pid of the server. The CPU times of server and client are measured\n"
	"after the handshakes.\n";

/*
 * Formats of requests and responses; \1 stands for the key, \2 for the value.
 */
struct dialect {
	const char *name, *get, *got, *set, *stored;
};

static const struct dialect dialects[] = {
	{ "redis", "*2\r\n$3\r\nGET\r\n$16\r\n\1\r\n", "$32\r\n\2\r\n",
	  "*3\r\n$3\r\nSET\r\n$16\r\n\1\r\n$32\r\n\2\r\n", "+OK\r\n" },
	{ "memcached", "get \1\r\n", "VALUE \1 0 32\r\n\2\r\nEND\r\n",
	  "set \1 0 0 32\r\n\2\r\n", "STORED\r\n" },
};

enum { KEY_LEN = 16 };

struct wanted {
	uint64_t sent_ns;
	uint32_t key;
	int get;
};

struct connection {
	SSL *ssl;
	uint32_t asked, answered; /* numbers of requests, modulo 2^32 */
	int have;		  /* bytes in `in` */
	char in[ROOM];
	struct wanted wanted[MAX_DEPTH];
};

struct load {
	const struct dialect *dialect;
	uint32_t port, server; /* pid of the server */
	uint32_t connections, depth, keys, reads;
	uint64_t ns, dice, begin, now;
	uint64_t asked, answered;
	int epoll;
	struct kvs_latency latency;
	struct connection connection[MAX_CONNECTIONS];
};

static void key_of(char key[KEY_LEN], uint32_t number)
{
	memcpy(key, "key:", 4);
	for (int i = KEY_LEN - 1; i >= 4; i--) {
		key[i] = (char)('0' + number % 10);
		number /= 10;
	}
}

/* Format a message of at most MAX_MESSAGE bytes. Returns its length. */
static int say(char *out, const char *how, uint32_t number)
{
	char key[KEY_LEN], *at = out;

	key_of(key, number);
	for (; *how; how++) {
		if (*how > 2) {
			*at++ = *how;
			continue;
		}
		for (int i = 0; i < *how; i++, at += KEY_LEN)
			memcpy(at, key, KEY_LEN);
	}
	return (int)(at - out);
}

static struct wanted next(struct load *l)
{
	struct wanted w = { .sent_ns = l->now, .get = 0 };

	w.key = (uint32_t)l->asked;
	if (l->ns) {
		w.key = (uint32_t)kvs_dice_below(&l->dice, l->keys);
		w.get = kvs_dice_below(&l->dice, 100) < l->reads;
	}
	l->asked++;
	return w;
}

static int wants_more(const struct load *l)
{
	return l->ns ? l->now - l->begin < l->ns : l->asked < l->keys;
}

/* Send all requests that may be in flight, with one write. */
static void ask(struct load *l, struct connection *c)
{
	char out[ROOM];
	int len = 0;

	while (c->asked - c->answered < l->depth && wants_more(l)) {
		struct wanted *w = &c->wanted[c->asked++ % MAX_DEPTH];

		*w = next(l);
		len += say(out + len,
			   w->get ? l->dialect->get : l->dialect->set, w->key);
	}
	if (len && SSL_write(c->ssl, out, len) != len)
		tls_fail("sending requests (the server does not read)");
}

/*
 * Compare received data with the expected responses. Returns the bytes
 * consumed.
 */
static int compare(struct load *l, struct connection *c)
{
	int used = 0;

	while (c->answered != c->asked) {
		const struct wanted *w = &c->wanted[c->answered % MAX_DEPTH];
		char right[MAX_MESSAGE];
		int len = say(right,
			      w->get ? l->dialect->got : l->dialect->stored,
			      w->key);

		if (c->have - used < len)
			break;
		if (memcmp(c->in + used, right, (size_t)len))
			tls_fail("verifying a response");
		kvs_latency_add(&l->latency, l->now - w->sent_ns);
		used += len;
		c->answered++;
		l->answered++;
	}
	return used;
}

static void hear(struct load *l, struct connection *c)
{
	int n, used;

	while ((n = SSL_read(c->ssl, c->in + c->have, ROOM - c->have)) > 0)
		c->have += n;
	if (SSL_get_error(c->ssl, n) != SSL_ERROR_WANT_READ)
		tls_fail("receiving responses (the server ended)");
	l->now = clock_now();
	used = compare(l, c);
	c->have -= used;
	memmove(c->in, c->in + used, (size_t)c->have);
	ask(l, c);
}

static void open_all(struct load *l, const char *folder)
{
	SSL_CTX *ctx = tls_context(folder, "host-a", 0);

	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	for (uint32_t i = 0; i < l->connections; i++) {
		struct connection *c = &l->connection[i];
		struct epoll_event e = { .events = EPOLLIN, .data.ptr = c };

		c->ssl = tls_start(ctx, tls_dial((uint16_t)l->port), 0);
		tls_unblock(c->ssl);
		if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, SSL_get_fd(c->ssl), &e))
			tls_fail("epoll");
	}
}

static void run(struct load *l)
{
	struct epoll_event events[MAX_CONNECTIONS];

	l->now = l->begin = clock_now();
	for (uint32_t i = 0; i < l->connections; i++)
		ask(l, &l->connection[i]);
	while (l->answered != l->asked || wants_more(l)) {
		int n = epoll_wait(l->epoll, events, MAX_CONNECTIONS, -1);

		for (int i = 0; i < n; i++)
			hear(l, events[i].data.ptr);
	}
}

/* Parse a number from 1 to most. */
static int take(const char *text, long most, uint32_t *to)
{
	long n;

	if (!number_read(text, 1, most, &n))
		return 0;
	*to = (uint32_t)n;
	return 1;
}

static int parse(struct load *l, char **argv)
{
	long reads;

	for (size_t i = 0; i < sizeof(dialects) / sizeof(dialects[0]); i++)
		if (!strcmp(argv[4], dialects[i].name))
			l->dialect = &dialects[i];
	if (!l->dialect || !number_read(argv[8], 0, 100, &reads))
		return 0;
	l->reads = (uint32_t)reads;
	l->dice = clock_now();
	return take(argv[2], MAX_PORT, &l->port) &&
	       take(argv[3], MAX_PID, &l->server) &&
	       take(argv[5], MAX_CONNECTIONS, &l->connections) &&
	       take(argv[6], MAX_DEPTH, &l->depth) &&
	       take(argv[7], MAX_KEYS, &l->keys) &&
	       seconds_read(argv[9], &l->ns);
}

int main(int argc, char **argv)
{
	static struct load load;
	uint64_t mine, theirs;

	if (argc != 10 || !parse(&load, argv)) {
		fputs(help, stderr);
		return 2;
	}
	open_all(&load, argv[1]);
	mine = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	theirs = tls_cpu_of((pid_t)load.server);
	run(&load);
	mine = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - mine;
	theirs = tls_cpu_of((pid_t)load.server) - theirs;
	printf("{\"rounds\": %lu, \"ns\": %lu, \"p50_ns\": %lu, "
	       "\"p99_ns\": %lu, \"cpu_client\": %lu, \"cpu_server\": %lu, "
	       "\"protocol\": \"%s %s\"}\n",
	       load.answered, load.now - load.begin,
	       kvs_latency_quantile(&load.latency, 0.5),
	       kvs_latency_quantile(&load.latency, 0.99), mine, theirs,
	       SSL_get_version(load.connection[0].ssl),
	       SSL_get_cipher_name(load.connection[0].ssl));
	return 0;
}
