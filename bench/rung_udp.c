/*
 * Datagrams of the size of a WRITE's packet between two UDP sockets, both ends
 * in one thread: what the kernel alone costs under the rungs `udp`.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rung.h"
#include "wire/icrc.h"
#include "wire/wire.h"

enum {
	AT_ONCE = 32, /* datagrams: the window of the rungs `udp` */
	TRAIN_BYTES = 65507,
	BUFFER = 4 << 20,
};

struct sockets {
	int from, to;
	uint32_t size;	/* bytes of a datagram */
	uint32_t train; /* datagrams of a call; 1: sendmmsg and recvmmsg */
	struct mmsghdr out[AT_ONCE], in[AT_ONCE];
	struct iovec out_iov[AT_ONCE], in_iov[AT_ONCE];
	uint8_t bytes[TRAIN_BYTES], back[AT_ONCE][1 << 16];
};

static int bound(const struct end *end, struct sockaddr_in *at)
{
	const int buffer = BUFFER;
	socklen_t len = sizeof(*at);
	int sock;

	end_enter(end);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	end_leave(end);
	*at = (struct sockaddr_in){ .sin_family = AF_INET };
	if (inet_pton(AF_INET, end->four, &at->sin_addr) != 1)
		wrong(end->four, "no IPv4 address");
	if (sock < 0 || bind(sock, (struct sockaddr *)at, len) ||
	    getsockname(sock, (struct sockaddr *)at, &len))
		wrong("datagrams", "no socket");
	setsockopt(sock, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
	return sock;
}

static struct sockets *open_sockets(const struct shape *s)
{
	struct sockets *k = calloc(1, sizeof(*k));
	struct sockaddr_in from, to;

	if (!k)
		wrong("datagrams", "out of memory");
	k->from = bound(&s->end[0], &from);
	k->to = bound(&s->end[1], &to);
	if (connect(k->from, (struct sockaddr *)&to, sizeof(to)))
		wrong("datagrams", "cannot connect");
	k->size = SRDMA_BTH_LEN + SRDMA_RETH_LEN + SRDMA_STH_LEN +
		  s->suite->tag_len + s->payload + SRDMA_ICRC_LEN;
	k->train = 1;
	for (int i = 0; i < AT_ONCE; i++) {
		k->out_iov[i] = (struct iovec){ k->bytes, k->size };
		k->in_iov[i] = (struct iovec){ k->back[i], sizeof(k->back[i]) };
		k->out[i].msg_hdr.msg_iov = &k->out_iov[i];
		k->in[i].msg_hdr.msg_iov = &k->in_iov[i];
		k->out[i].msg_hdr.msg_iovlen = k->in[i].msg_hdr.msg_iovlen = 1;
	}
	return k;
}

static void *open_alone(const struct shape *s)
{
	return open_sockets(s);
}

/* As long as a call takes: a train has AT_ONCE datagrams at most. */
static void *open_trains(const struct shape *s)
{
	struct sockets *k = open_sockets(s);
	const int size = (int)k->size, on = 1;

	if (setsockopt(k->from, SOL_UDP, UDP_SEGMENT, &size, sizeof(size)) ||
	    setsockopt(k->to, SOL_UDP, UDP_GRO, &on, sizeof(on)))
		wrong("datagrams", "the kernel has no UDP_SEGMENT or UDP_GRO");
	k->train = TRAIN_BYTES / k->size;
	if (k->train > AT_ONCE)
		k->train = AT_ONCE;
	return k;
}

static void close_sockets(void *state)
{
	struct sockets *k = state;

	close(k->from);
	close(k->to);
	free(k);
}

/* Sends n datagrams and receives them. */
static void pass(struct sockets *k, uint32_t n)
{
	const uint32_t calls = (n + k->train - 1) / k->train;
	uint64_t bytes = 0;

	for (uint32_t i = 0, left = n; i < calls; i++) {
		const uint32_t here = left < k->train ? left : k->train;

		k->out_iov[i].iov_len = (size_t)here * k->size;
		left -= here;
	}
	if (sendmmsg(k->from, k->out, calls, 0) != (int)calls)
		wrong("datagrams", "the kernel did not send all");
	while (bytes < (uint64_t)n * k->size) {
		int got = recvmmsg(k->to, k->in, AT_ONCE, MSG_WAITFORONE, NULL);

		if (got <= 0)
			wrong("datagrams", "nothing arrived");
		for (int i = 0; i < got; i++)
			bytes += k->in[i].msg_len;
	}
}

static uint64_t run_pass(void *state, unsigned n)
{
	const uint64_t start = ticks();

	for (unsigned done = 0; done < n; done += AT_ONCE)
		pass(state, n - done < AT_ONCE ? n - done : AT_ONCE);
	return ticks() - start;
}

const struct rung rungs_udp[] = {
	{ "datagrams", NULL, "a WRITE's datagram, by sendmmsg and recvmmsg",
	  open_alone, run_pass, close_sockets },
	{ "datagrams train", "datagrams", "by UDP_SEGMENT and UDP_GRO",
	  open_trains, run_pass, close_sockets },
	{ 0 },
};
