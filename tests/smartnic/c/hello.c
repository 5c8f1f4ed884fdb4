/*
 * Sends HELLO to the control socket of a worker and prints its answer
 * (local-interface.md 3.4): hello PATH. Exit code 1 if there is no legal answer.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

enum { KIND_HELLO = 1, VERSION = 1, TIMEOUT_S = 10 };

struct header {
	uint16_t kind, zero;
	uint32_t tag, status;
};

struct request {
	struct header header;
	uint32_t version;
};

/* The beginning of the answer. */
struct answer {
	struct header header;
	uint32_t version, flags, host_kind, pid;
	char host_device[64], wire[64], name[64];
};

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static int ask(int fd, struct answer *a)
{
	const struct timeval limit = { .tv_sec = TIMEOUT_S };
	const struct request r = { { .kind = htons(KIND_HELLO) },
				   .version = htonl(VERSION) };
	ssize_t n;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (send(fd, &r, sizeof(r), 0) < 0)
		return fail("send");
	n = recv(fd, a, sizeof(*a), 0);
	if (n < 0)
		return fail("recv");
	if (n < (ssize_t)sizeof(*a) || ntohs(a->header.kind) != KIND_HELLO ||
	    a->header.status || ntohl(a->version) != VERSION) {
		fprintf(stderr, "%zd bytes that are no answer to HELLO\n", n);
		return 1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	struct answer a;
	int fd;

	if (argc != 2 || strlen(argv[1]) >= sizeof(at.sun_path)) {
		fprintf(stderr, "usage: hello PATH\n");
		return 2;
	}
	strcpy(at.sun_path, argv[1]);
	fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof(at)) < 0)
		return fail(argv[1]);
	if (ask(fd, &a))
		return 1;
	printf("%u %.63s %.63s %.63s\n", ntohl(a.pid), a.name, a.host_device,
	       a.wire);
	return 0;
}
