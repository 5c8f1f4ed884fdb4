/*
 * bench/tls_echo: what TLS 1.3 over loopback TCP does, between two processes:
 * round trips of an application's echo, or goodput of records of one size.
 * Prints one line of JSON.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "latency.h"
#include "tls_link.h"

enum { MAX_SIZE = 16384, BATCH = 64, MAX_PATH = 4096 };

static const char help[] =
	"Usage: tls_echo FOLDER echo|stream SIZE SECONDS block|spin CORE CORE\n"
	"TLS 1.3 over loopback TCP: round trips, or goodput. FOLDER has ca.pem\n"
	"and .pem and .key of host-a and host-b; SIZE is 1 to 16384; the ends\n"
	"wait in the kernel or poll, on these cores (-1: any).\n";

struct options {
	const char *folder;
	int stream, spin, size;
	uint64_t ns;
	int core[2]; /* of client, server */
};

/* The server's word at the end of a stream. */
struct word {
	uint64_t bytes;
};

static int parse(struct options *o, int argc, char **argv)
{
	if (argc != 8)
		return 0;
	o->folder = argv[1];
	o->stream = !strcmp(argv[2], "stream");
	o->size = atoi(argv[3]);
	o->ns = (uint64_t)(atof(argv[4]) * 1e9);
	o->spin = !strcmp(argv[5], "spin");
	o->core[0] = atoi(argv[6]);
	o->core[1] = atoi(argv[7]);
	return (o->stream || !strcmp(argv[2], "echo")) &&
	       (o->spin || !strcmp(argv[5], "block")) && o->size >= 1 &&
	       o->size <= MAX_SIZE && o->ns;
}

static SSL *open_end(const struct options *o, int fd, int server)
{
	const char *name = server ? "host-b" : "host-a";
	char cert[MAX_PATH], key[MAX_PATH], ca[MAX_PATH];
	SSL *ssl;

	snprintf(cert, sizeof(cert), "%s/%s.pem", o->folder, name);
	snprintf(key, sizeof(key), "%s/%s.key", o->folder, name);
	snprintf(ca, sizeof(ca), "%s/ca.pem", o->folder);
	tls_pin(o->core[server]);
	ssl = tls_start(
		tls_context(&(struct tls_files){ cert, key, ca }, server), fd,
		server);
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
	while (tls_read(ssl, data, o->size))
		word.bytes += (uint64_t)o->size;
	tls_write(ssl, &word, sizeof(word));
}

static uint64_t cpu_of(pid_t pid)
{
	struct timespec t;
	clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;

	if ((pid && clock_getcpuclockid(pid, &clock)) ||
	    clock_gettime(clock, &t))
		tls_fail("the CPU clock of a process");
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

struct run {
	uint64_t rounds, ns;
	struct kvs_latency latency;
};

static void echo(const struct options *o, SSL *ssl, struct run *run)
{
	static char data[MAX_SIZE], back[MAX_SIZE];
	uint64_t begin = tls_now(), now = begin, last;

	while (now - begin < o->ns) {
		data[0] = (char)run->rounds;
		last = now;
		if (!tls_write(ssl, data, o->size) ||
		    !tls_read(ssl, back, o->size) ||
		    memcmp(data, back, (size_t)o->size))
			tls_fail("an echo");
		now = tls_now();
		kvs_latency_add(&run->latency, now - last);
		run->rounds++;
	}
	run->ns = now - begin;
}

/* Until the server has told how much arrived. */
static void stream(const struct options *o, SSL *ssl, struct run *run)
{
	static char data[MAX_SIZE];
	const uint64_t begin = tls_now();
	struct word word;

	while (tls_now() - begin < o->ns) {
		for (int i = 0; i < BATCH; i++)
			if (!tls_write(ssl, data, o->size))
				tls_fail("a record");
		run->rounds += BATCH;
	}
	SSL_shutdown(ssl);
	if (!tls_read(ssl, &word, sizeof(word)) ||
	    word.bytes != run->rounds * (uint64_t)o->size)
		tls_fail("the server's count of the stream");
	run->ns = tls_now() - begin;
}

static void ask(const struct options *o, SSL *ssl, pid_t server)
{
	static struct run warm, run;
	struct options first = *o;
	uint64_t mine, theirs;

	first.ns = o->ns / 10;
	if (!o->stream)
		echo(&first, ssl, &warm);
	mine = cpu_of(0);
	theirs = cpu_of(server);
	if (o->stream)
		stream(o, ssl, &run);
	else
		echo(o, ssl, &run);
	mine = cpu_of(0) - mine;
	theirs = cpu_of(server) - theirs;
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
		serve(&o, open_end(&o, tls_accept(listener), 1));
		return 0;
	}
	ssl = open_end(&o, tls_dial(port), 0);
	ask(&o, ssl, server);
	fflush(stdout);
	SSL_shutdown(ssl);
	close(SSL_get_fd(ssl));
	if (waitpid(server, &status, 0) != server || status)
		tls_fail("the server's end");
	return 0;
}
