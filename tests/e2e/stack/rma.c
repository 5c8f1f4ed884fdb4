/*
 * A client and a server of libfabric: WRITE and READ by an endpoint of type FI_EP_MSG.
 *     rma server ADDRESS PORT        prints "listening", then serves one client
 *     rma client ADDRESS PORT        the address of the server
 * The server tells its memory with its answer to the connection. Both ends check the
 * data. A failure is a line on stderr and status 1.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdint.h>

#include "ends.h"

enum { WAIT_MS = 60000 };

struct place {
	uint64_t address, key;
};

struct end {
	struct fid_fabric *fabric;
	struct fid_eq *eq;
	struct fid_domain *domain;
	struct fid_cq *cq;
	struct fid_ep *ep;
	struct fid_mr *mr;
};

static unsigned char memory[2 * LENGTH]; /* the second half: of a READ */

static void ok(ssize_t r, const char *what)
{
	if (!r)
		return;
	fprintf(stderr, "rma: %s: %s\n", what, fi_strerror((int)-r));
	exit(1);
}

static struct fi_info *look_up(const char *node, const char *port,
			       uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	check(hints != NULL, "fi_allocinfo()");
	hints->ep_attr->type = FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup("verbs");
	ok(fi_getinfo(FI_VERSION(1, 11), node, port, flags, hints, &info),
	   "fi_getinfo()");
	fi_freeinfo(hints);
	return info;
}

static void open_fabric(struct end *e, const struct fi_info *info)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	ok(fi_fabric(info->fabric_attr, &e->fabric, NULL), "fi_fabric()");
	ok(fi_eq_open(e->fabric, &attr, &e->eq, NULL), "fi_eq_open()");
}

static void open_endpoint(struct end *e, struct fi_info *info)
{
	struct fi_cq_attr attr = { .format = FI_CQ_FORMAT_CONTEXT,
				   .wait_obj = FI_WAIT_UNSPEC };

	ok(fi_domain(e->fabric, info, &e->domain, NULL), "fi_domain()");
	ok(fi_cq_open(e->domain, &attr, &e->cq, NULL), "fi_cq_open()");
	ok(fi_mr_reg(e->domain, memory, sizeof(memory),
		     FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
		     0, 0, &e->mr, NULL),
	   "fi_mr_reg()");
	ok(fi_endpoint(e->domain, info, &e->ep, NULL), "fi_endpoint()");
	ok(fi_ep_bind(e->ep, &e->eq->fid, 0), "fi_ep_bind(), events");
	ok(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV),
	   "fi_ep_bind(), completions");
	ok(fi_enable(e->ep), "fi_enable()");
}

static void close_end(struct end *e)
{
	ok(fi_close(&e->ep->fid), "fi_close(), endpoint");
	ok(fi_close(&e->mr->fid), "fi_close(), memory");
	ok(fi_close(&e->cq->fid), "fi_close(), completions");
	ok(fi_close(&e->domain->fid), "fi_close(), domain");
	ok(fi_close(&e->eq->fid), "fi_close(), events");
	ok(fi_close(&e->fabric->fid), "fi_close(), fabric");
}

/* Waits for this event. Its private data are at least `size` bytes, if size is not 0.
 * Returns the information of a request for a connection. */
static struct fi_info *expect(struct end *e, uint32_t wanted, void *data,
			      size_t size)
{
	struct {
		struct fi_eq_cm_entry entry;
		unsigned char data[256];
	} found;
	uint32_t event;
	ssize_t n =
		fi_eq_sread(e->eq, &event, &found, sizeof(found), WAIT_MS, 0);

	if (n == -FI_EAVAIL) {
		struct fi_eq_err_entry why = { 0 };

		fi_eq_readerr(e->eq, &why, 0);
		n = -why.err;
	}
	ok(n < 0 ? n : 0, "fi_eq_sread()");
	check(event == wanted, "the order of events");
	check((size_t)n >= sizeof(found.entry) + size, "private data");
	if (size)
		memcpy(data, found.data, size);
	return found.entry.info;
}

static void completed(struct end *e, const char *what)
{
	struct fi_cq_entry entry;
	ssize_t n = fi_cq_sread(e->cq, &entry, 1, NULL, WAIT_MS);

	ok(n < 0 ? n : 0, what);
	check(n == 1, what);
}

static void serve(const char *node, const char *port)
{
	struct fi_info *info = look_up(node, port, FI_SOURCE), *request;
	struct end e = { 0 };
	struct fid_pep *pep;
	struct place own = { .address = (uintptr_t)memory };

	open_fabric(&e, info);
	ok(fi_passive_ep(e.fabric, info, &pep, NULL), "fi_passive_ep()");
	ok(fi_pep_bind(pep, &e.eq->fid, 0), "fi_pep_bind()");
	ok(fi_listen(pep), "fi_listen()");
	puts("listening");
	fflush(stdout);
	request = expect(&e, FI_CONNREQ, NULL, 0);
	open_endpoint(&e, request);
	own.key = fi_mr_key(e.mr);
	ok(fi_accept(e.ep, &own, sizeof(own)), "fi_accept()");
	expect(&e, FI_CONNECTED, NULL, 0);
	expect(&e, FI_SHUTDOWN, NULL, 0);
	check(whole(memory), "the data of the WRITE");
	ok(fi_close(&pep->fid), "fi_close(), listener");
	close_end(&e);
	fi_freeinfo(request);
	fi_freeinfo(info);
}

static void use(const char *node, const char *port)
{
	struct fi_info *info = look_up(node, port, 0);
	struct end e = { 0 };
	struct place peer;

	fill(memory);
	open_fabric(&e, info);
	open_endpoint(&e, info);
	ok(fi_connect(e.ep, info->dest_addr, NULL, 0), "fi_connect()");
	expect(&e, FI_CONNECTED, &peer, sizeof(peer));
	ok(fi_write(e.ep, memory, LENGTH, fi_mr_desc(e.mr), 0, peer.address,
		    peer.key, NULL),
	   "fi_write()");
	completed(&e, "the WRITE");
	ok(fi_read(e.ep, memory + LENGTH, LENGTH, fi_mr_desc(e.mr), 0,
		   peer.address, peer.key, NULL),
	   "fi_read()");
	completed(&e, "the READ");
	check(whole(memory + LENGTH), "the data of the READ");
	ok(fi_shutdown(e.ep, 0), "fi_shutdown()");
	close_end(&e);
	fi_freeinfo(info);
}

int main(int argc, char **argv)
{
	return run_end(argc, argv, serve, use);
}
