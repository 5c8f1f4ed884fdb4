/*
 * verbs_leg DEVICE RING: the worker's half of one leg. The host posts jobs: copy
 * a piece of host memory to another place by READ and WRITE. After each job the
 * program writes a record with the job's id. It prints "up", and when the host is
 * gone "down STATUS failed N", where N is the number of DMAs that failed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "peer.h"
#include "wire/wire.h"

enum { TOKEN_BYTE = 0x5a, JOBS = 1024 };

/* A job's descriptor, big-endian, bytes: id 8, from 8, its rkey 4, length 4, to 8,
 * its rkey 4. */
struct job {
	uint64_t id, to;
	uint32_t length;
	uint32_t to_rkey;
	struct srdma_buf *buf;
	struct srdma_region *from, *into;
	uint8_t state; /* FREE, READING, WRITING */
};

enum { FREE, READING, WRITING };

struct worker {
	struct srdma_port *port;
	struct srdma_conn *leg;
	struct job jobs[JOBS];
	uint32_t ring, written, failed;
};

static struct srdma_region *region(struct worker *w, uint64_t addr,
				   uint32_t length, uint32_t rkey)
{
	struct srdma_region_params params = {
		.addr = addr, .length = length, .host_rkey = rkey, .fd = -1
	};
	struct srdma_region *out;

	if (w->port->ops->region_open(w->leg, &params, &out))
		peer_die("region_open");
	return out;
}

static void drop(struct worker *w, struct job *job)
{
	w->port->ops->region_close(job->from);
	w->port->ops->region_close(job->into);
	w->port->ops->buf_put(job->buf);
	job->state = FREE;
}

/* Starts a DMA of a job. It fails at once if the leg has ended. */
static void dma(struct worker *w, struct job *job, int write)
{
	struct srdma_region *r = write ? job->into : job->from;
	struct srdma_dma d = { .region = r,
			       .addr = r->base,
			       .len = job->length,
			       .buf = job->buf,
			       .cookie = (uintptr_t)job };
	int err = write ? w->port->ops->write(&d) : w->port->ops->read(&d);

	job->state = write ? WRITING : READING;
	if (err == -EPIPE) {
		++w->failed;
		drop(w, job);
	} else if (err) {
		peer_die("dma: %d", err);
	}
}

static void begin(struct worker *w, const struct srdma_buf *buf)
{
	const uint8_t *in = buf->data;
	struct job *job = w->jobs;

	while (job->state != FREE)
		if (++job == w->jobs + JOBS)
			peer_die("too many jobs");
	if (buf->len < 36)
		peer_die("a job of %u bytes", buf->len);
	job->id = srdma_load64(in);
	job->length = srdma_load32(in + 20);
	job->from = region(w, srdma_load64(in + 8), job->length,
			   srdma_load32(in + 16));
	job->into = region(w, srdma_load64(in + 24), job->length,
			   srdma_load32(in + 32));
	job->buf = w->port->ops->buf_get(w->port);
	if (!job->buf)
		peer_die("no buffers");
	dma(w, job, 0);
}

static void end(struct worker *w, struct job *job)
{
	uint8_t record[SRDMA_RECORD_LEN] = { 0 };
	uint32_t slot = w->written++ % w->ring;
	int err;

	srdma_store64(record, job->id);
	srdma_store32(record + 28, w->written);
	err = w->port->ops->complete(w->leg, slot, record);
	if (err && err != -EPIPE)
		peer_die("complete: %d", err);
}

static void done(struct worker *w, const struct srdma_event *ev)
{
	struct job *job = (struct job *)(uintptr_t)ev->cookie;

	if (!ev->status && job->state == READING) {
		dma(w, job, 1);
		return;
	}
	if (ev->status)
		++w->failed;
	else
		end(w, job);
	drop(w, job);
}

/* Returns 0 when the host is gone. */
static int handle(struct worker *w, const struct srdma_event *ev)
{
	uint32_t i;

	switch (ev->kind) {
	case SRDMA_EV_UP:
		peer_say("up");
		return 1;
	case SRDMA_EV_RECV:
		begin(w, ev->buf);
		w->port->ops->buf_put(ev->buf);
		return 1;
	case SRDMA_EV_DMA_DONE:
		done(w, ev);
		return 1;
	case SRDMA_EV_DOWN:
		for (i = 0; i < JOBS; ++i)
			if (w->jobs[i].state != FREE)
				peer_die("a DMA was never reported");
		peer_say("down %d failed %u", -ev->status, w->failed);
		w->port->ops->close(ev->conn);
		return 0;
	default:
		peer_die("event %d", ev->kind);
	}
}

int main(int argc, char **argv)
{
	static struct worker w;
	struct srdma_leg_params params = { .fds = { -1, -1, -1 } };
	struct srdma_event ev[PEER_BURST];
	struct srdma_leg_answer answer;
	int i, n, on = 1;

	if (argc != 3)
		return 2;
	w.port = peer_open(argv[1], SRDMA_PORT_VERBS_HOST);
	w.ring = params.ring = (uint32_t)atoi(argv[2]);
	memset(params.token, TOKEN_BYTE, sizeof(params.token));
	if (w.port->ops->leg_open(w.port, &params, &w.leg, &answer))
		peer_die("%s", w.port->why);
	while (on) {
		n = w.port->ops->poll(w.port, ev, PEER_BURST);
		for (i = 0; i < n && on; ++i)
			on = handle(&w, &ev[i]);
		w.port->ops->flush(w.port);
		if (!n)
			peer_sleep(w.port);
	}
	w.port->ops->destroy(w.port);
	return 0;
}
