/*
 * Capabilities: an owner lets a user read one block of a region, and revokes
 * that later. The owner's worker enforces it; the owner's program does nothing
 * meanwhile.
 *
 *     capability owner IDENTITY PEER       # prints the port of its listener
 *     capability user  IDENTITY PEER PORT
 *
 * SRDMA_WORKER names the worker of each program, SRDMA_AGENT its agent.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <srdma/srdma.h>

enum {
	BLOCK = 4096,
	BLOCKS = 4,
	GRANTED = 1, /* the block that the user may read */
	WAIT_MS = 30000,
};

/* A refused request ends its QP, so each step has one. */
enum { MESSAGES, PERMITTED, OUTSIDE, REVOKED, QPS };

struct end {
	struct srdma_device *device;
	struct srdma_pd *pd;
	struct srdma_qp *qps[QPS];
	struct srdma_mr *mr; /* for messages and results */
	struct srdma_mr_info memory;
	struct srdma_connection *connection;
	struct srdma_wc early; /* of a message; QP_EVENT: there is none */
};

static int check(int rc)
{
	if (rc >= 0)
		return rc;
	fprintf(stderr, "capability: %s\n", srdma_error_text());
	exit(1);
}

static void say(const char *text)
{
	puts(text);
	fflush(stdout);
}

/*
 * Waits for a completion of this operation. The two queues complete in any
 * order: a message that arrives meanwhile is kept.
 */
static struct srdma_wc completion(struct end *e, enum srdma_wc_opcode opcode)
{
	struct srdma_wc wc = e->early;

	e->early.opcode = SRDMA_WC_QP_EVENT;
	while (wc.opcode != opcode) {
		if (wc.opcode == SRDMA_WC_RECV)
			e->early = wc;
		if (!check(srdma_wait_cq(e->pd, 1, &wc, WAIT_MS))) {
			fprintf(stderr, "capability: nothing completes\n");
			exit(1);
		}
	}
	return wc;
}

static void succeed(const struct srdma_wc *wc)
{
	if (wc->status == SRDMA_WC_SUCCESS)
		return;
	fprintf(stderr, "capability: %s: %s\n",
		srdma_reason_name(wc->vendor_err),
		srdma_reason_text(wc->vendor_err));
	exit(1);
}

/* Sends a message, and waits until the peer has it. */
static void send_message(struct end *e, const void *data, uint32_t len)
{
	struct srdma_send_wr wr = {
		.opcode = SRDMA_WR_SEND,
		.flags = SRDMA_SEND_INLINE | SRDMA_SEND_SIGNALED,
		.addr = (void *)(uintptr_t)data,
		.length = len,
	};
	struct srdma_wc wc;

	check(srdma_post_send(e->qps[MESSAGES], &wr, NULL));
	wc = completion(e, SRDMA_WC_SEND);
	succeed(&wc);
}

static void post_receive(struct end *e)
{
	struct srdma_recv_wr wr = {
		.addr = e->memory.addr,
		.length = BLOCK,
		.lkey = e->memory.key,
	};

	check(srdma_post_recv(e->qps[MESSAGES], &wr, NULL));
}

/* Waits for the message of the posted receive. Returns its length. */
static uint32_t receive_message(struct end *e)
{
	struct srdma_wc wc = completion(e, SRDMA_WC_RECV);

	succeed(&wc);
	return wc.byte_len;
}

static void open_end(struct end *e)
{
	const struct srdma_mr_attr attr = {
		.length = BLOCK,
		.access = SRDMA_ACCESS_LOCAL_WRITE,
	};

	check(srdma_open_device(&e->device, NULL, NULL));
	check(srdma_alloc_pd(&e->pd, e->device, NULL));
	check(srdma_alloc_mr(&e->mr, e->pd, &attr));
	srdma_query_mr(e->mr, &e->memory);
	for (int i = 0; i < QPS; i++)
		check(srdma_create_qp(&e->qps[i], e->pd, NULL));
}

static void close_end(struct end *e)
{
	for (int i = 0; i < QPS; i++)
		check(srdma_destroy_qp(e->qps[i]));
	srdma_disconnect(e->connection);
	check(srdma_dereg_mr(e->mr));
	check(srdma_dealloc_pd(e->pd));
	check(srdma_close_device(e->device));
}

/* --- owner --------------------------------------------------------------- */

static struct srdma_mr *make_table(struct end *e)
{
	const struct srdma_mr_attr attr = {
		.length = (size_t)BLOCKS * BLOCK,
		.access = SRDMA_ACCESS_REMOTE_READ | SRDMA_ACCESS_PROOF,
		.block_size = BLOCK,
	};
	struct srdma_mr_info info;
	struct srdma_mr *table;

	check(srdma_alloc_mr(&table, e->pd, &attr));
	srdma_query_mr(table, &info);
	for (int i = 0; i < BLOCKS; i++)
		snprintf((char *)info.addr + (size_t)i * BLOCK, BLOCK,
			 "this is block %d", i);
	return table;
}

static void accept_user(struct end *e, const char *identity, const char *peer)
{
	const uint8_t mode = SRDMA_MODE_MEM;
	const struct srdma_listener_attr attr = { .identity = identity,
						  .peers = &peer,
						  .n_peers = 1 };
	const struct srdma_connection_attr how = { .identity = identity,
						   .peers = &peer,
						   .n_peers = 1,
						   .qps = e->qps,
						   .n_qps = QPS,
						   .modes = &mode,
						   .n_modes = 1 };
	struct srdma_listener *listener;
	struct srdma_request request;

	check(srdma_listen(&listener, e->device, "127.0.0.1", 0, &attr));
	printf("listening at %u\n", srdma_listener_port(listener));
	fflush(stdout);
	check(srdma_get_request(listener, &request, WAIT_MS));
	check(srdma_accept(&e->connection, e->pd, &request, &how));
	srdma_close_listener(listener);
}

static void own(struct end *e, const char *identity, const char *peer)
{
	struct srdma_mr *table = make_table(e);
	const struct srdma_cap_attr attr = {
		.offset = GRANTED * BLOCK,
		.length = BLOCK,
		.access = SRDMA_ACCESS_REMOTE_READ,
	};
	uint8_t token[SRDMA_CAP_MAX];
	int len = check(srdma_make_cap(token, sizeof(token), table, &attr));

	accept_user(e, identity, peer);
	post_receive(e);
	send_message(e, token, (uint32_t)len);
	say("gave a capability for block 1");
	receive_message(e);
	check(srdma_revoke_caps(table, 0, 0));
	post_receive(e);
	send_message(e, "revoked", 8);
	say("revoked it");
	receive_message(e);
	/* The user ends when its last message is acknowledged. */
	while (!srdma_check_connection(e->connection)) {
		struct timespec pause = { .tv_nsec = 10000000 };

		nanosleep(&pause, NULL);
	}
	check(srdma_dereg_mr(table));
}

/* --- user ---------------------------------------------------------------- */

static struct srdma_wc read_block(struct end *e, int qp,
				  const struct srdma_cap_info *cap,
				  uint32_t handle, int64_t offset)
{
	struct srdma_send_wr wr = {
		.opcode = SRDMA_WR_RDMA_READ,
		.flags = SRDMA_SEND_SIGNALED,
		.addr = e->memory.addr,
		.length = BLOCK,
		.lkey = e->memory.key,
		.rkey = cap->rkey,
		.remote_addr = cap->remote_addr + (uint64_t)offset,
		.capability = handle,
	};

	check(srdma_post_send(e->qps[qp], &wr, NULL));
	return completion(e, SRDMA_WC_RDMA_READ);
}

static void must_fail(const char *what, const struct srdma_wc *wc)
{
	if (wc->status == SRDMA_WC_SUCCESS) {
		fprintf(stderr, "capability: %s was not refused\n", what);
		exit(1);
	}
	printf("%s: refused, %s\n", what, srdma_reason_name(wc->vendor_err));
	fflush(stdout);
}

static void use(struct end *e, const char *identity, const char *peer,
		uint16_t port)
{
	const uint8_t mode = SRDMA_MODE_MEM;
	const struct srdma_connection_attr how = { .identity = identity,
						   .peers = &peer,
						   .n_peers = 1,
						   .qps = e->qps,
						   .n_qps = QPS,
						   .modes = &mode,
						   .n_modes = 1 };
	struct srdma_cap_info cap;
	struct srdma_wc wc;
	uint32_t len, handle;

	post_receive(e);
	check(srdma_connect(&e->connection, e->pd, "127.0.0.1", port, &how));
	len = receive_message(e);
	check(srdma_query_cap(&cap, e->memory.addr, len));
	check(srdma_install_cap(&handle, e->pd, e->memory.addr, len));

	wc = read_block(e, PERMITTED, &cap, handle, 0);
	succeed(&wc);
	/* bytes of the peer: they need not end with a NUL */
	printf("read: %.*s\n", BLOCK, (const char *)e->memory.addr);
	wc = read_block(e, OUTSIDE, &cap, handle, -BLOCK);
	must_fail("block 0", &wc);

	post_receive(e);
	send_message(e, "done", 5);
	receive_message(e);
	wc = read_block(e, REVOKED, &cap, handle, 0);
	must_fail("block 1 after its revocation", &wc);
	check(srdma_uninstall_cap(e->pd, handle));
	send_message(e, "bye", 4);
}

int main(int argc, char **argv)
{
	struct end e = { .early.opcode = SRDMA_WC_QP_EVENT };

	if (argc == 4 && !strcmp(argv[1], "owner")) {
		open_end(&e);
		own(&e, argv[2], argv[3]);
	} else if (argc == 5 && !strcmp(argv[1], "user")) {
		open_end(&e);
		use(&e, argv[2], argv[3], (uint16_t)atoi(argv[4]));
	} else {
		fprintf(stderr, "usage: capability owner IDENTITY PEER\n"
				"       capability user IDENTITY PEER PORT\n");
		return 2;
	}
	close_end(&e);
	return 0;
}
