#include "server.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "wire/wire.h"

struct connection {
	struct kvs_queue answers;
	const uint8_t *memory;
	uint32_t slots;
	uint32_t expected; /* sequence of the next request */
	uint8_t ended;
};

struct job {
	struct connection *from;
	uint64_t hash;
	struct kvs_request request;
};

struct kvs_server {
	struct kvs_end end;
	struct kvs_index *index;
	struct kvs_server_counts counts;
	uint32_t n, live, turn;
	uint32_t jobs;
	struct job job[KVS_BURST];
	struct connection connections[];
};

static int legal(const struct kvs_served *list, uint32_t n)
{
	if (!n || n > KVS_CONNECTIONS)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (list[i].sq < 2 || !list[i].slots ||
		    (list[i].slots & (list[i].slots - 1)))
			return 0;
	return 1;
}

int kvs_server_create(struct kvs_server **out, const struct kvs_end *end,
		      struct kvs_index *index, const struct kvs_served *list,
		      uint32_t n)
{
	struct kvs_server *s;

	*out = NULL;
	if (!legal(list, n))
		return -EINVAL;
	s = calloc(1, sizeof(*s) + n * sizeof(s->connections[0]));
	if (!s)
		return -ENOMEM;
	s->end = *end;
	s->index = index;
	s->n = s->live = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct srdma_desc send = { .opcode = SRDMA_DESC_SEND,
						 .qpn = list[i].qpn,
						 .id = i };

		kvs_queue_init(&s->connections[i].answers, &send, list[i].sq);
		s->connections[i].memory = list[i].memory;
		s->connections[i].slots = list[i].slots;
		s->connections[i].expected = 1;
	}
	*out = s;
	return 0;
}

void kvs_server_destroy(struct kvs_server *server)
{
	free(server);
}

static void end_connection(struct kvs_server *s, struct connection *c)
{
	if (c->ended)
		return;
	c->ended = 1;
	s->live--;
}

static void lose_connection(struct kvs_server *s, struct connection *c)
{
	if (!c->ended)
		s->counts.lost++;
	end_connection(s, c);
}

/* Process completions: they free send queue entries or end connections. */
static void collect(struct kvs_server *s)
{
	struct srdma_record records[KVS_RECORDS];
	int n = kvs_end_collect(&s->end, records);

	for (int i = 0; i < n; i++) {
		const struct srdma_record *r = &records[i];
		struct connection *c = NULL;

		if (!r->status && r->opcode == SRDMA_WC_SEND) {
			kvs_queue_retire(&s->connections[r->id].answers);
			continue;
		}
		for (uint32_t k = 0; k < s->n && !c; k++)
			if (s->connections[k].answers.desc.qpn == r->qpn)
				c = &s->connections[k];
		if (c)
			lose_connection(s, c);
	}
}

static const uint8_t *slot_of(const struct connection *c)
{
	const uint32_t i = (c->expected - 1) & (c->slots - 1);

	return c->memory + (size_t)i * KVS_SLOT_LEN;
}

/* Take the pending requests of a connection, limited by room for responses. */
static void take(struct kvs_server *s, struct connection *c)
{
	uint32_t room = c->ended ? 0 : c->answers.room;

	for (; room && s->jobs < KVS_BURST; room--) {
		struct job *job = &s->job[s->jobs];

		if (!kvs_request_take(&job->request, slot_of(c), c->expected))
			return;
		c->expected++;
		job->from = c;
		job->hash = kvs_index_hash(s->index, job->request.key);
		kvs_index_prefetch(s->index, job->hash);
		s->jobs++;
	}
}

/* Start with another connection each time, so that none starves. */
static void gather(struct kvs_server *s)
{
	s->jobs = 0;
	s->turn = s->turn + 1 < s->n ? s->turn + 1 : 0;
	for (uint32_t i = s->turn; i < s->n && s->jobs < KVS_BURST; i++)
		take(s, &s->connections[i]);
	for (uint32_t i = 0; i < s->turn && s->jobs < KVS_BURST; i++)
		take(s, &s->connections[i]);
}

static uint8_t get(struct kvs_server *s, const struct job *job,
		   struct kvs_answer *a)
{
	s->counts.gets++;
	if (kvs_index_get(s->index, job->hash, job->request.key, a->value)) {
		a->length = KVS_VALUE_LEN;
		return KVS_OK;
	}
	s->counts.misses++;
	return KVS_NOT_FOUND;
}

static uint8_t put(struct kvs_server *s, const struct job *job)
{
	s->counts.puts++;
	if (kvs_index_put(s->index, job->hash, job->request.key,
			  job->request.value) >= 0)
		return KVS_OK;
	s->counts.full++;
	return KVS_FULL;
}

static void answer(struct kvs_server *s, const struct job *job)
{
	struct connection *c = job->from;
	struct kvs_answer a = { .sequence = job->request.sequence };

	if (!kvs_request_legal(&job->request)) {
		s->counts.bad++;
		a.status = KVS_BAD;
	} else if (job->request.opcode == KVS_GET) {
		a.status = get(s, job, &a);
	} else if (job->request.opcode == KVS_PUT) {
		a.status = put(s, job);
	} else {
		end_connection(s, c);
	}
	/* take() reserved the room: a refusal means that the QP has ended. */
	if (kvs_queue_post(&s->end, &c->answers, &a, kvs_answer_len(&a), 0))
		lose_connection(s, c);
}

static void work(struct kvs_server *s)
{
	for (uint32_t i = 0; i < s->jobs; i++)
		kvs_index_prefetch_item(s->index, s->job[i].hash);
	for (uint32_t i = 0; i < s->jobs; i++)
		answer(s, &s->job[i]);
	srdma_leg_shm_flush(s->end.leg);
	s->counts.bursts++;
	s->end.idle = 0;
}

static int look(void *arg)
{
	struct kvs_server *s = arg;

	collect(s);
	gather(s);
	if (s->jobs)
		work(s);
	return s->jobs || !s->live;
}

int kvs_server_run(struct kvs_server *server, uint64_t ns)
{
	const uint64_t end = clock_now() + ns;

	while (server->live && clock_now() < end) {
		if (look(server))
			continue;
		server->counts.sleeps++;
		kvs_end_wait(&server->end, 1, look, server);
	}
	return (int)server->live;
}

const struct kvs_server_counts *
kvs_server_counts(const struct kvs_server *server)
{
	return &server->counts;
}
