/*
 * bench/tls_echo: TLS 1.3 over loopback TCP between two processes: round trips
 * of an application-level echo, or goodput of records of one size. Prints one
 * line of JSON.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "latency.h"
#include "number.h"
#include "tls_link.h"

enum { MAX_SIZE = 16384, BATCH = 64, MAX_CORE = 1023 };

static const char help[] =
	"Usage: tls_echo FOLDER echo|stream SIZE SECONDS block|spin CORE CORE\n"
	"TLS 1.3 over loopback TCP: round trips, or goodput. FOLDER has ca.pem\n"
	"and .pem and .key of host-a and host-b; SIZE is 1 to 16384, SECONDS\n"
	"3600 at most; the ends wait in the kernel or poll, on these cores (-1:\n"
	"any).\n";

struct options {
	const char *folder;
	int stream, spin, size;
	uint64_t ns;
	int core[2]; /* of client and server */
};

/*
 * Message from the server after the first BATCH records of a stream and at its
 * end: bytes received so far.
 */
struct word {
	uint64_t bytes;
};

static int parse(struct options *o, int argc, char **argv)
{
	long size, core[2];

	if (argc != 8 || !number_read(argv[3], 1, MAX_SIZE, &size) ||
	    !seconds_read(argv[4], &o->ns) || !o->ns ||
	    !number_read(argv[6], -1, MAX_CORE, &core[0]) ||
	    !number_read(argv[7], -1, MAX_CORE, &core[1]))
		return 0;
	o->folder = argv[1];
	o->stream = !strcmp(argv[2], "stream");
	o->spin = !strcmp(argv[5], "spin");
	o->size = (int)size;
	o->core[0] = (int)core[0];
	o->core[1] = (int)core[1];
	return (o->stream || !strcmp(argv[2], "echo")) &&
	       (o->spin || !strcmp(argv[5], "block"));
}

static SSL *open_end(const struct options *o, int fd, int server)
{
	const char *name = server ? "host-b" : "host-a";
	SSL *ssl;

	tls_pin(o->core[server]);
	ssl = tls_start(tls_context(o->folder, name, server), fd, server);
	if (o->spin)
		tls_unblock(ssl);
	return ssl;
}

static void serve(const struct options *o, SSL *ssl)
{
	static char data[MAX_SIZE];
	struct word word = { 0 };

	if (!o->stream) {
		while (tls_read(ssl, data, o->size))
			tls_write(ssl, data, o->size);
		return;
	}
	for (int n = 1; tls_read(ssl, data, o->size); n++) {
		word.bytes += (uint64_t)o->size;
		if (n == BATCH)
			tls_write(ssl, &word, sizeof(word));
	}
	tls_write(ssl, &word, sizeof(word));
}

struct run {
	uint64_t rounds, ns;
	struct kvs_latency latency;
};

static void echo(const struct options *o, SSL *ssl, struct run *run)
{
	static char data[MAX_SIZE], back[MAX_SIZE];
	uint64_t begin = clock_now(), now = begin, last;

	while (now - begin < o->ns) {
		data[0] = (char)run->rounds;
		last = now;
		if (!tls_write(ssl, data, o->size) ||
		    !tls_read(ssl, back, o->size) ||
		    memcmp(data, back, (size_t)o->size))
			tls_fail("an echo");
		now = clock_now();
		kvs_latency_add(&run->latency, now - last);
		run->rounds++;
	}
	run->ns = now - begin;
}

static void send_batch(const struct options *o, SSL *ssl)
{
	static char data[MAX_SIZE];

	for (int i = 0; i < BATCH; i++)
		if (!tls_write(ssl, data, o->size))
			tls_fail("a record");
}

static void hear_count(const struct options *o, SSL *ssl, uint64_t records)
{
	struct word word;

	if (!tls_read(ssl, &word, sizeof(word)) ||
	    word.bytes != records * (uint64_t)o->size)
		tls_fail("the server's count of the stream");
}

/* Send until the time is over; includes the server's final count. */
static void stream(const struct options *o, SSL *ssl, struct run *run)
{
	const uint64_t begin = clock_now();

	while (clock_now() - begin < o->ns) {
		send_batch(o, ssl);
		run->rounds += BATCH;
	}
	tls_end(ssl);
	hear_count(o, ssl, BATCH + run->rounds);
	run->ns = clock_now() - begin;
}

/* Run before the measurement. */
static void warm_up(const struct options *o, SSL *ssl)
{
	static struct run warm;
	struct options first = *o;

	if (o->stream) {
		send_batch(o, ssl);
		hear_count(o, ssl, BATCH);
	} else {
		first.ns = o->ns / 10;
		echo(&first, ssl, &warm);
	}
}

static void ask(const struct options *o, SSL *ssl, pid_t server)
{
	static struct run run;
	uint64_t mine, theirs;

	warm_up(o, ssl);
	mine = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	theirs = tls_cpu_of(server);
	if (o->stream)
		stream(o, ssl, &run);
	else
		echo(o, ssl, &run);
	mine = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - mine;
	theirs = tls_cpu_of(server) - theirs;
	printf("{\"rounds\": %lu, \"ns\": %lu, \"p50_ns\": %lu, "
	       "\"p99_ns\": %lu, \"cpu_client\": %lu, \"cpu_server\": %lu, "
	       "\"protocol\": \"%s %s\"}\n",
	       run.rounds, run.ns, kvs_latency_quantile(&run.latency, 0.5),
	       kvs_latency_quantile(&run.latency, 0.99), mine, theirs,
	       SSL_get_version(ssl), SSL_get_cipher_name(ssl));
}

int main(int argc, char **argv)
{
	struct options o;
	uint16_t port;
	const pid_t client = getpid();
	int listener, status;
	pid_t server;
	SSL *ssl;

	if (!parse(&o, argc, argv)) {
		fputs(help, stderr);
		return 2;
	}
	listener = tls_listen(&port);
	server = fork();
	if (server < 0)
		tls_fail("fork");
	if (!server) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != client) /* the client ended before prctl() */
			return 1;
		serve(&o, open_end(&o, tls_accept(listener), 1));
		return 0;
	}
	ssl = open_end(&o, tls_dial(port), 0);
	ask(&o, ssl, server);
	fflush(stdout);
	if (!o.stream) /* a stream has been ended already */
		tls_end(ssl);
	close(SSL_get_fd(ssl));
	if (waitpid(server, &status, 0) != server || status)
		tls_fail("the server's end");
	return 0;
}
