#include "support/players.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct player player_make(unsigned connection, int pid, uint32_t uid)
{
	return (struct player){ .client = { .number = connection,
					    .pid = pid,
					    .pidfd = -1,
					    .uid = uid } };
}

static void take_answer(struct client *client, const struct answer *a)
{
	struct player *p = (struct player *)client;

	assert_int_equal(
		srdma_ctl_decode(&p->last, SRDMA_CTL_ANSWER, a->data, a->len),
		0);
}

void scene_begin(struct scene *s, unsigned owner, uint32_t agent_uid,
		 int agent_only)
{
	static const uint8_t suites[SRDMA_CTL_SUITES_LEN];
	const struct side *side = &s->pair.side[0];
	struct requests_params params = {
		.host_dev = "mem",
		.name = "a",
		.suites = suites,
		.send = take_answer,
		.agent_uid = agent_uid,
		.agent_only = agent_only,
	};

	memset(s, 0, sizeof(*s));
	pair_defaults(&s->pair);
	pair_open(&s->pair);
	pair_connect(&s->pair, 0);
	params.relay = side->relay;
	params.host = side->host;
	params.wire = side->wire;
	assert_int_equal(requests_create(&s->requests, &params), 0);
	legs_add(&s->requests->legs, owner, side->leg,
		 &(struct legs_opener){ .user = 0 });
}

void scene_end(struct scene *s)
{
	requests_destroy(s->requests);
	pair_close(&s->pair);
}

uint32_t ask(struct scene *s, struct player *p, const struct srdma_ctl_msg *m)
{
	struct message message = { .nfds = 0 };
	int len = srdma_ctl_encode(message.data, SRDMA_CTL_REQUEST, m);

	assert_true(len > 0);
	message.len = (size_t)len;
	memset(&p->last, 0, sizeof(p->last));
	assert_int_equal(requests_handle(s->requests, &p->client, &message), 0);
	assert_int_equal(p->last.kind, m->kind);
	return p->last.status;
}

uint32_t ask_agent(struct scene *s, struct player *p)
{
	return ask(s, p, &(struct srdma_ctl_msg){ .kind = SRDMA_CTL_AGENT });
}

void player_says(const struct player *p, const char *part)
{
	if (!strstr(p->last.text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, p->last.text);
}
