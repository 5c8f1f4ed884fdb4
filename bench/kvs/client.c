#include "client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "keys.h"
#include "protocol.h"
#include "wire/wire.h"

/* A run without responses is aborted after this time. */
#define SILENCE_NS 10000000000
#define LOOK_NS	   100000000 /* interval of calls of the plan's look() */

/* A request in flight. */
struct flight {
	uint64_t sent_ns;
	uint64_t start; /* time on the history's clock */
	uint32_t id;
	uint8_t opcode;
};

struct connection {
	struct kvs_queue requests;
	struct srdma_desc receive;
	struct kvs_asker a;
	uint32_t asked, answered; /* numbers of requests */
	struct flight *flights;	  /* indexed by request number modulo slots */
};

struct kvs_client {
	struct kvs_end end;
	struct kvs_client_counts counts;
	struct kvs_latency latency;
	struct kvs_history *history;
	uint64_t clock;
	uint32_t keys, capacity;
	uint32_t n, under_way;
	/* state of the current run */
	struct kvs_plan plan;
	struct kvs_trouble *trouble;
	uint64_t now, asked, heard_ns, looked_ns;
	int failed; /* -errno, or 0 */
	struct connection connections[];
};

/* --- life -------------------------------------------------------------- */

static int legal(const struct kvs_asker *list, uint32_t n)
{
	if (!n || n > KVS_CONNECTIONS)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		if (!list[i].depth || list[i].slots < list[i].depth ||
		    (list[i].slots & (list[i].slots - 1)) || list[i].sq < 2 ||
		    list[i].rq < list[i].depth)
			return 0;
	return 1;
}

static int connection_init(struct connection *c, const struct kvs_asker *a,
			   uint32_t i)
{
	const struct srdma_desc write = { .opcode = SRDMA_DESC_WRITE,
					  .qpn = a->qpn,
					  .id = i,
					  .rkey = a->rkey,
					  .capability = a->capability };

	c->a = *a;
	c->receive = (struct srdma_desc){ .opcode = SRDMA_DESC_RECV,
					  .qpn = a->qpn,
					  .id = i,
					  .length = KVS_SLOT_LEN,
					  .local_key = a->lkey };
	kvs_queue_init(&c->requests, &write, a->sq);
	c->flights = calloc(a->slots, sizeof(*c->flights));
	return c->flights ? 0 : -ENOMEM;
}

/*
 * Post receive `number`; it reuses the landing buffer of receive number - rq.
 */
static int post_receive(struct kvs_client *k, struct connection *c,
			uint32_t number)
{
	uint8_t *slot = srdma_leg_shm_slot(k->end.leg);
	int used;

	if (!slot)
		return -EAGAIN;
	c->receive.local_addr = (uintptr_t)c->a.landing +
				(uint64_t)(number % c->a.rq) * KVS_SLOT_LEN;
	used = srdma_host_post(k->end.host, &c->receive, NULL, slot);
	if (used < 0)
		return used;
	return srdma_leg_shm_post(k->end.leg, (uint32_t)used);
}

static int post_receives(struct kvs_client *k, struct connection *c)
{
	int r = 0;

	for (uint32_t i = 0; i < c->a.rq && !r; i++)
		r = post_receive(k, c, i);
	return r;
}

int kvs_client_create(struct kvs_client **out, const struct kvs_end *end,
		      const struct kvs_asker *list, uint32_t n, uint32_t keys,
		      uint32_t capacity)
{
	struct kvs_client *k;
	int r = 0;

	*out = NULL;
	if (!legal(list, n) || !keys || capacity < keys)
		return -EINVAL;
	k = calloc(1, sizeof(*k) + n * sizeof(k->connections[0]));
	if (!k)
		return -ENOMEM;
	k->end = *end;
	k->keys = keys;
	k->capacity = capacity;
	k->n = n;
	for (uint32_t i = 0; i < n && !r; i++) {
		r = connection_init(&k->connections[i], &list[i], i);
		if (!r)
			r = post_receives(k, &k->connections[i]);
	}
	srdma_leg_shm_flush(k->end.leg);
	if (r) {
		kvs_client_destroy(k);
		return r;
	}
	*out = k;
	return 0;
}

void kvs_client_destroy(struct kvs_client *client)
{
	if (!client)
		return;
	for (uint32_t i = 0; i < client->n; i++)
		free(client->connections[i].flights);
	free(client);
}

void kvs_client_record(struct kvs_client *client, struct kvs_history *history)
{
	client->history = history;
}

const struct kvs_client_counts *
kvs_client_counts(const struct kvs_client *client)
{
	return &client->counts;
}

const struct kvs_latency *kvs_client_latency(const struct kvs_client *client)
{
	return &client->latency;
}

void kvs_client_reset(struct kvs_client *client)
{
	memset(&client->counts, 0, sizeof(client->counts));
	memset(&client->latency, 0, sizeof(client->latency));
}

uint32_t kvs_client_keys(const struct kvs_client *client)
{
	return client->keys;
}

/* --- requests ---------------------------------------------------------- */

/*
 * 1 if the run has more requests to send. The clock ends a run with ns > 0.
 */
static int wants_more(const struct kvs_client *k)
{
	if (!k->plan.wishes)
		return k->asked < k->keys;
	return k->plan.ns || k->asked < k->plan.count;
}

static void next_request(struct kvs_client *k, struct flight *f)
{
	const struct kvs_mix_row *mix = k->plan.mix;
	struct kvs_wish wish = { .read = 1, .rank = (uint32_t)k->asked };

	if (k->plan.wishes)
		wish = k->plan.wishes[k->asked % k->plan.count];
	f->opcode = wish.read ? KVS_GET : KVS_PUT;
	f->id = wish.rank;
	if (!wish.read && mix->insert && k->keys < k->capacity)
		f->id = k->keys++;
	else if (k->plan.wishes && mix->latest)
		f->id = k->keys - 1 - wish.rank;
	k->asked++;
}

static int post_request(struct kvs_client *k, struct connection *c,
			struct flight *f)
{
	const uint32_t slot = c->asked & (c->a.slots - 1);
	struct kvs_request r = { .sequence = c->asked + 1,
				 .opcode = f->opcode };
	uint32_t at;
	int rc;

	f->sent_ns = k->now;
	f->start = ++k->clock;
	kvs_key_make(r.key, f->id);
	if (f->opcode == KVS_PUT) {
		r.length = KVS_VALUE_LEN;
		kvs_value_make(r.value, f->id, f->start);
	}
	at = kvs_request_seal(&r);
	rc = kvs_queue_post(&k->end, &c->requests, (const uint8_t *)&r + at,
			    KVS_SLOT_LEN - at,
			    c->a.remote_addr + (uint64_t)slot * KVS_SLOT_LEN +
				    at);
	if (rc < 0)
		return rc;
	c->flights[slot] = *f;
	c->asked++;
	k->under_way++;
	return 0;
}

/* Send requests until depth are in flight. */
static void ask(struct kvs_client *k, struct connection *c)
{
	while (!k->failed && wants_more(k) &&
	       c->asked - c->answered < c->a.depth &&
	       kvs_queue_ready(&k->end, &c->requests)) {
		struct flight f = { 0 };

		next_request(k, &f);
		k->failed = post_request(k, c, &f);
	}
}

/* --- responses --------------------------------------------------------- */

static void fail(struct kvs_client *k, int error, uint32_t id, uint8_t status)
{
	k->failed = error;
	k->trouble->id = id;
	k->trouble->status = status;
}

/* Check the response to a GET or PUT and add it to the history. */
static int judge(struct kvs_client *k, const struct flight *f,
		 const struct kvs_answer *a)
{
	struct kvs_event e = { .start = f->start,
			       .end = ++k->clock,
			       .version = f->start,
			       .id = f->id,
			       .put = f->opcode == KVS_PUT };

	if (a->length !=
	    (f->opcode == KVS_GET && a->status == KVS_OK ? KVS_VALUE_LEN : 0))
		return -EPROTO;
	if (a->status == KVS_NOT_FOUND && f->opcode == KVS_GET)
		e.version = KVS_ABSENT;
	else if (a->status != KVS_OK)
		return -EPROTO;
	else if (f->opcode == KVS_GET &&
		 kvs_value_read(a->value, f->id, &e.version))
		return -EBADMSG;
	k->counts.misses += e.version == KVS_ABSENT;
	k->counts.puts += f->opcode == KVS_PUT;
	k->counts.gets += f->opcode == KVS_GET;
	if (k->history && f->opcode != KVS_BYE)
		return kvs_history_add(k->history, &e);
	return 0;
}

static void heard(struct kvs_client *k, struct connection *c, uint32_t len)
{
	const struct flight *f = &c->flights[c->answered & (c->a.slots - 1)];
	struct kvs_answer a;
	int r;

	memcpy(&a,
	       c->a.landing + (size_t)(c->answered % c->a.rq) * KVS_SLOT_LEN,
	       sizeof(a));
	if (c->answered == c->asked ||
	    !kvs_answer_legal(&a, len, c->answered + 1)) {
		fail(k, -EPROTO, f->id, a.status);
		return;
	}
	r = judge(k, f, &a);
	if (r) {
		fail(k, r, f->id, a.status);
		return;
	}
	kvs_latency_add(&k->latency, k->now - f->sent_ns);
	k->failed = post_receive(k, c, c->answered);
	c->answered++;
	k->under_way--;
}

static int collect(struct kvs_client *k)
{
	struct srdma_record records[KVS_RECORDS];
	int n = kvs_end_collect(&k->end, records);

	if (n)
		k->now = k->heard_ns = clock_now();
	for (int i = 0; i < n && !k->failed; i++) {
		const struct srdma_record *r = &records[i];

		if (r->status || r->opcode == SRDMA_WC_QP_EVENT) {
			k->trouble->record = *r;
			k->failed = -EIO;
		} else if (r->opcode == SRDMA_WC_RECV) {
			heard(k, &k->connections[r->id], r->byte_len);
		} else {
			kvs_queue_retire(&k->connections[r->id].requests);
		}
	}
	return n;
}

/* --- runs -------------------------------------------------------------- */

static int look(void *arg)
{
	return collect(arg);
}

static void wait_for_news(struct kvs_client *k)
{
	kvs_end_wait(&k->end, 0, look, k);
	k->now = clock_now();
	if (!k->failed && k->now - k->heard_ns > SILENCE_NS)
		k->failed = -ETIMEDOUT;
}

/* Process received responses, or wait briefly. */
static void turn(struct kvs_client *k)
{
	srdma_leg_shm_flush(k->end.leg);
	if (collect(k))
		k->end.idle = 0;
	else
		wait_for_news(k);
	if (k->plan.look && k->now - k->looked_ns > LOOK_NS) {
		k->looked_ns = k->now;
		if (k->plan.look(k->plan.arg) && !k->failed)
			k->failed = -EINTR;
	}
}

/* Wait until all requests are answered. */
static void finish(struct kvs_client *k)
{
	while (k->under_way && !k->failed)
		turn(k);
}

static void start(struct kvs_client *k, const struct kvs_plan *plan,
		  struct kvs_trouble *trouble)
{
	memset(trouble, 0, sizeof(*trouble));
	k->plan = *plan;
	k->trouble = trouble;
	k->failed = 0;
	k->asked = 0;
	k->now = k->heard_ns = k->looked_ns = clock_now();
}

int kvs_client_run(struct kvs_client *client, const struct kvs_plan *plan,
		   struct kvs_trouble *trouble)
{
	struct kvs_client *k = client;
	uint64_t begin;
	int more = 1;

	start(k, plan, trouble);
	begin = k->now;
	while (!k->failed && more) {
		for (uint32_t i = 0; i < k->n; i++)
			ask(k, &k->connections[i]);
		turn(k);
		more = plan->ns ? k->now - begin < plan->ns : wants_more(k);
	}
	finish(k);
	k->counts.ns += k->now - begin;
	return k->failed;
}

int kvs_client_bye(struct kvs_client *client, struct kvs_trouble *trouble)
{
	const struct kvs_plan none = { 0 };

	start(client, &none, trouble);
	for (uint32_t i = 0; i < client->n && !client->failed; i++) {
		struct connection *c = &client->connections[i];
		struct flight bye = { .opcode = KVS_BYE };

		while (!kvs_queue_ready(&client->end, &c->requests) &&
		       !client->failed)
			turn(client);
		if (!client->failed)
			client->failed = post_request(client, c, &bye);
	}
	finish(client);
	return client->failed;
}
