/*
 * A client and a server of UCP: a tagged message from the client, an answer, a PUT
 * into the server's memory and a GET from there. Both ends check the data.
 *     ucp server ADDRESS PORT        prints "listening", then serves one client
 *     ucp client ADDRESS PORT        the address of the server
 * A failure is a line on stderr and status 1.
 */
#include <arpa/inet.h>
#include <stdint.h>
#include <ucp/api/ucp.h>

#include "ends.h"

enum { KEY_MAX = 256, TAG = 7 };

/* The first message of the server: where its memory is. */
struct place {
	uint64_t address;
	uint32_t key_length;
	unsigned char key[KEY_MAX];
};

static ucp_context_h context;
static ucp_worker_h worker;
static ucp_conn_request_h request; /* of a server */
static unsigned char memory[LENGTH], copy[LENGTH];

static void ok(ucs_status_t status, const char *what)
{
	if (status == UCS_OK)
		return;
	fprintf(stderr, "ucp: %s: %s\n", what, ucs_status_string(status));
	exit(1);
}

/* Waits for the end of an operation. */
static void finish(ucs_status_ptr_t operation, const char *what)
{
	ucs_status_t status = UCS_INPROGRESS;

	if (!UCS_PTR_IS_PTR(operation)) {
		ok(UCS_PTR_STATUS(operation), what);
		return;
	}
	while (status == UCS_INPROGRESS) {
		ucp_worker_progress(worker);
		status = ucp_request_check_status(operation);
	}
	ucp_request_free(operation);
	ok(status, what);
}

static void open_worker(void)
{
	const ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES,
		.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA,
	};
	const ucp_worker_params_t single = { 0 };

	ok(ucp_init(&params, NULL, &context), "ucp_init()");
	ok(ucp_worker_create(context, &single, &worker), "ucp_worker_create()");
}

static ucs_sock_addr_t address(struct sockaddr_in *in, const char *ip,
			       const char *port)
{
	*in = (struct sockaddr_in){ .sin_family = AF_INET,
				    .sin_port = htons((uint16_t)atoi(port)) };
	check(inet_pton(AF_INET, ip, &in->sin_addr) == 1, "the address");
	return (ucs_sock_addr_t){ (struct sockaddr *)in, sizeof(*in) };
}

/* A message of this length, one of each end at a time. */
static void tell(ucp_ep_h ep, const void *data, size_t length)
{
	const ucp_request_param_t none = { 0 };

	finish(ucp_tag_send_nbx(ep, data, length, TAG, &none), "a message");
}

static void receive(void *data, size_t length)
{
	const ucp_request_param_t none = { 0 };

	finish(ucp_tag_recv_nbx(worker, data, length, TAG, UINT64_MAX, &none),
	       "the receipt of a message");
}

static void close_all(ucp_ep_h ep)
{
	const ucp_request_param_t none = { 0 };

	finish(ucp_ep_close_nbx(ep, &none), "ucp_ep_close_nbx()");
	ucp_worker_destroy(worker);
	ucp_cleanup(context);
}

/* --- the server ------------------------------------------------------------------ */

static void called(ucp_conn_request_h found, void *arg)
{
	(void)arg;
	request = found;
}

static ucp_ep_h accept_one(const char *ip, const char *port,
			   ucp_listener_h *listener)
{
	struct sockaddr_in in;
	ucp_ep_params_t ep_params = { .field_mask =
					      UCP_EP_PARAM_FIELD_CONN_REQUEST };
	const ucp_listener_params_t params = {
		.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR |
			      UCP_LISTENER_PARAM_FIELD_CONN_HANDLER,
		.sockaddr = address(&in, ip, port),
		.conn_handler = { .cb = called },
	};
	ucp_ep_h ep;

	ok(ucp_listener_create(worker, &params, listener),
	   "ucp_listener_create()");
	puts("listening");
	fflush(stdout);
	while (!request)
		ucp_worker_progress(worker);
	ep_params.conn_request = request;
	ok(ucp_ep_create(worker, &ep_params, &ep), "ucp_ep_create()");
	return ep;
}

/* Registers the memory, and tells the client. */
static ucp_mem_h offer(ucp_ep_h ep)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = memory,
		.length = LENGTH,
	};
	struct place own = { .address = (uintptr_t)memory };
	ucp_mem_h region;
	size_t length;
	void *key;

	ok(ucp_mem_map(context, &params, &region), "ucp_mem_map()");
	ok(ucp_rkey_pack(context, region, &key, &length), "ucp_rkey_pack()");
	check(length <= KEY_MAX, "a short key");
	own.key_length = (uint32_t)length;
	memcpy(own.key, key, length);
	ucp_rkey_buffer_release(key);
	tell(ep, &own, sizeof(own));
	return region;
}

static void serve(const char *ip, const char *port)
{
	ucp_listener_h listener;
	ucp_ep_h ep;
	ucp_mem_h region;
	char end;

	open_worker();
	ep = accept_one(ip, port, &listener);
	receive(copy, LENGTH);
	check(whole(copy), "the data of the message");
	region = offer(ep);
	receive(&end, sizeof(end));
	check(whole(memory), "the data of the PUT");
	tell(ep, &end, sizeof(end));
	ok(ucp_mem_unmap(context, region), "ucp_mem_unmap()");
	ucp_listener_destroy(listener);
	close_all(ep);
}

/* --- the client ------------------------------------------------------------------ */

static ucp_ep_h connect_to(const char *ip, const char *port)
{
	struct sockaddr_in in;
	const ucp_ep_params_t params = {
		.field_mask =
			UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR,
		.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER,
		.sockaddr = address(&in, ip, port),
	};
	ucp_ep_h ep;

	ok(ucp_ep_create(worker, &params, &ep), "ucp_ep_create()");
	return ep;
}

static void put_and_get(ucp_ep_h ep, const struct place *peer)
{
	const ucp_request_param_t none = { 0 };
	ucp_rkey_h key;

	ok(ucp_ep_rkey_unpack(ep, peer->key, &key), "ucp_ep_rkey_unpack()");
	finish(ucp_put_nbx(ep, memory, LENGTH, peer->address, key, &none),
	       "the PUT");
	finish(ucp_ep_flush_nbx(ep, &none), "the flush");
	finish(ucp_get_nbx(ep, copy, LENGTH, peer->address, key, &none),
	       "the GET");
	check(whole(copy), "the data of the GET");
	ucp_rkey_destroy(key);
}

static void use(const char *ip, const char *port)
{
	struct place peer;
	char end = 0;
	ucp_ep_h ep;

	fill(memory);
	open_worker();
	ep = connect_to(ip, port);
	tell(ep, memory, LENGTH);
	receive(&peer, sizeof(peer));
	put_and_get(ep, &peer);
	tell(ep, &end, sizeof(end));
	receive(&end, sizeof(end));
	close_all(ep);
}

int main(int argc, char **argv)
{
	return run_end(argc, argv, serve, use);
}
