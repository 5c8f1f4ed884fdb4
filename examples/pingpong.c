/*
 * Ping-pong: a client sends COUNT messages, a server sends each one back.
 *
 *     pingpong server IDENTITY PEER        # prints the port of its listener
 *     pingpong client IDENTITY PEER PORT COUNT
 *
 * SRDMA_WORKER names the worker of each program, SRDMA_AGENT its agent.
 * IDENTITY: credentials of the agent's policy. PEER: the permitted identity of
 * the other end.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <srdma/srdma.h>

enum { SIZE = 64, RECEIVES = 2, WAIT_MS = 30000 };

struct end {
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
	struct srdma_mr *mr; /* a buffer for each receive */
	struct srdma_mr_info memory;
	struct srdma_connection *connection;
};

static int check(int rc)
{
	if (rc >= 0)
		return rc;
	fprintf(stderr, "pingpong: %s\n", srdma_error_text());
	exit(1);
}

static uint8_t *buffer(const struct end *e, uint64_t number)
{
	return (uint8_t *)e->memory.addr + number * SIZE;
}

static void post_receive(struct end *e, uint64_t number)
{
	struct srdma_recv_wr wr = {
		.wr_id = number,
		.addr = buffer(e, number),
		.length = SIZE,
		.lkey = e->memory.key,
	};

	check(srdma_post_recv(e->qp, &wr, NULL));
}

static void send_number(struct end *e, uint64_t number)
{
	uint8_t message[SIZE] = { 0 };
	struct srdma_send_wr wr = {
		.opcode = SRDMA_WR_SEND,
		.flags = SRDMA_SEND_INLINE | SRDMA_SEND_SIGNALED,
		.addr = message,
		.length = sizeof(message),
	};

	memcpy(message, &number, sizeof(number));
	check(srdma_post_send(e->qp, &wr, NULL));
}

/* Waits for the next message, and returns its number. */
static uint64_t receive_number(struct end *e)
{
	struct srdma_wc wc;
	uint64_t number;

	do {
		if (!check(srdma_wait_cq(e->pd, 1, &wc, WAIT_MS))) {
			fprintf(stderr, "pingpong: no message\n");
			exit(1);
		}
		if (wc.status != SRDMA_WC_SUCCESS) {
			fprintf(stderr, "pingpong: %s: %s\n",
				srdma_reason_name(wc.vendor_err),
				srdma_reason_text(wc.vendor_err));
			exit(1);
		}
	} while (wc.opcode != SRDMA_WC_RECV);
	memcpy(&number, buffer(e, wc.wr_id), sizeof(number));
	post_receive(e, wc.wr_id);
	return number;
}

static void open_end(struct end *e)
{
	const struct srdma_mr_attr attr = {
		.length = (size_t)RECEIVES * SIZE,
		.access = SRDMA_ACCESS_LOCAL_WRITE,
	};

	check(srdma_open_device(&e->device, NULL, NULL));
	check(srdma_alloc_pd(&e->pd, e->device, NULL));
	check(srdma_alloc_mr(&e->mr, e->pd, &attr));
	srdma_query_mr(e->mr, &e->memory);
	check(srdma_create_qp(&e->qp, e->pd, NULL));
	for (uint64_t i = 0; i < RECEIVES; i++)
		post_receive(e, i);
}

static void close_end(struct end *e)
{
	check(srdma_destroy_qp(e->qp));
	srdma_disconnect(e->connection);
	check(srdma_dereg_mr(e->mr));
	check(srdma_dealloc_pd(e->pd));
	check(srdma_close_device(e->device));
}

static void show_peer(const struct end *e)
{
	struct srdma_connection_info info;

	srdma_query_connection(e->connection, &info);
	printf("connected to %s\n", info.identity);
	fflush(stdout);
}

static void serve(struct end *e, const char *identity, const char *peer)
{
	const struct srdma_listener_attr attr = { .identity = identity,
						  .peers = &peer,
						  .n_peers = 1 };
	const struct srdma_connection_attr how = { .identity = identity,
						   .peers = &peer,
						   .n_peers = 1,
						   .qps = &e->qp,
						   .n_qps = 1 };
	struct srdma_listener *listener;
	struct srdma_request request;
	uint64_t number;

	check(srdma_listen(&listener, e->device, "127.0.0.1", 0, &attr));
	printf("listening at %u\n", srdma_listener_port(listener));
	fflush(stdout);
	check(srdma_get_request(listener, &request, WAIT_MS));
	check(srdma_accept(&e->connection, e->pd, &request, &how));
	srdma_close_listener(listener);
	show_peer(e);
	do { /* the last number is 0 */
		number = receive_number(e);
		send_number(e, number);
	} while (number);
	/* The client ends when it has the last answer, which ends this QP. */
	while (!srdma_check_connection(e->connection)) {
		struct timespec pause = { .tv_nsec = 10000000 };

		nanosleep(&pause, NULL);
	}
}

static void play(struct end *e, const char *identity, const char *peer,
		 uint16_t port, uint64_t count)
{
	const struct srdma_connection_attr how = { .identity = identity,
						   .peers = &peer,
						   .n_peers = 1,
						   .qps = &e->qp,
						   .n_qps = 1 };
	struct timespec start, end;

	check(srdma_connect(&e->connection, e->pd, "127.0.0.1", port, &how));
	show_peer(e);
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (uint64_t left = count; left-- > 0;) {
		send_number(e, left);
		if (receive_number(e) != left) {
			fprintf(stderr, "pingpong: another number\n");
			exit(1);
		}
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%llu round trips, %.1f us each\n", (unsigned long long)count,
	       ((double)(end.tv_sec - start.tv_sec) * 1e6 +
		(double)(end.tv_nsec - start.tv_nsec) / 1e3) /
		       (double)count);
}

int main(int argc, char **argv)
{
	struct end e = { 0 };

	if (argc == 4 && !strcmp(argv[1], "server")) {
		open_end(&e);
		serve(&e, argv[2], argv[3]);
	} else if (argc == 6 && !strcmp(argv[1], "client") &&
		   strtoull(argv[5], NULL, 10) > 0) {
		open_end(&e);
		play(&e, argv[2], argv[3], (uint16_t)atoi(argv[4]),
		     strtoull(argv[5], NULL, 10));
	} else {
		fprintf(stderr, "usage: pingpong server IDENTITY PEER\n"
				"       pingpong client IDENTITY PEER PORT "
				"COUNT\n"
				"COUNT is at least 1\n");
		return 2;
	}
	close_end(&e);
	return 0;
}
