/*
 * Control requests (docs/local-interface.md 3) at a relay with slow DMA: responses
 * that wait for DMA, and requests that are refused because of their sender.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "memory/mr.h"
#include "support/inside.h"
#include "support/relay_pair.h"
#include "requests_impl.h"
#include "wire/wire.h"

enum {
	SLOW = 1000,
	LENGTH = 4096,
	OWNER = 1,
	USER = 2,
	OTHER = 3, /* uses no leg */
	WRITE_ID = 7,
	MAX_WAITING = 1024,
	REGIONS = 2, /* of the leg, after begin() */
};

struct player {
	struct client client; /* must be first: send() gets only this */
	unsigned answers;
	struct srdma_ctl_msg last;
};

/*
 * A WRITE from side 0 into a region of side 1, which gets the control requests.
 */
struct scene {
	struct pair pair;
	struct requests *requests;
	struct player player;
	uint32_t key;
	uint32_t tag;
};

static void take_answer(struct client *client, const struct answer *a)
{
	struct player *p = (struct player *)client;

	p->answers++;
	assert_int_equal(
		srdma_ctl_decode(&p->last, SRDMA_CTL_ANSWER, a->data, a->len),
		0);
}

static void requests_begin(struct scene *s)
{
	static const uint8_t suites[SRDMA_CTL_SUITES_LEN];
	const struct side *side = &s->pair.side[1];
	const struct requests_params params = {
		.relay = side->relay,
		.host = side->host,
		.wire = side->wire,
		.host_dev = "mem",
		.name = "b",
		.suites = suites,
		.workers = 5,
		.index = 3,
		.gid = { [10] = 0xff, 0xff, 10, 0, 0, 7 },
		.send = take_answer,
	};

	assert_int_equal(requests_create(&s->requests, &params), 0);
	legs_add(&s->requests->legs, OWNER, side->leg,
		 &(struct legs_opener){ .user = 0 });
	legs_attach(&s->requests->legs, USER, side->leg);
	s->player.client.number = USER;
}

static void post_write(struct scene *s)
{
	struct pair *p = &s->pair;
	const struct srdma_cap_params params = {
		.key = s->key,
		.length = LENGTH,
		.rights = SRDMA_MEMKEY_WRITE,
	};
	const struct srdma_desc d = {
		.opcode = SRDMA_DESC_WRITE,
		.id = WRITE_ID,
		.length = LENGTH,
		.local_addr = (uintptr_t)p->side[0].memory,
		.remote_addr = (uintptr_t)p->side[1].memory,
		.rkey = s->key,
		.capability = pair_install(p, 0, params),
	};

	pair_post(p, 0, d, NULL);
}

/* Starts the WRITE; its DMA takes SLOW turns. */
static void begin(struct scene *s)
{
	const struct pair_region region = {
		.len = LENGTH,
		.access = SRDMA_ACCESS_ALL | SRDMA_ACCESS_PROOF,
		.log2_block = 12,
		.depth = 48,
	};

	memset(s, 0, sizeof(*s));
	pair_defaults(&s->pair);
	s->pair.mode = SRDMA_MODE_MEM;
	pair_open(&s->pair);
	pair_connect(&s->pair, 0);
	s->key = pair_register(&s->pair, 1, region);
	requests_begin(s);
	s->pair.host[1].dma_polls = SLOW;
	post_write(s);
	pair_run(&s->pair, SLOW / 10);
	s->pair.host[1].dma_polls = 0;
}

static void end(struct scene *s)
{
	requests_destroy(s->requests);
	pair_close(&s->pair);
}

static void ask(struct scene *s, const struct srdma_ctl_msg *m)
{
	struct message message = { .nfds = 0 };
	int len = srdma_ctl_encode(message.data, SRDMA_CTL_REQUEST, m);

	assert_true(len > 0);
	message.len = (size_t)len;
	assert_int_equal(
		requests_handle(s->requests, &s->player.client, &message), 0);
}

static void expect_refusal(struct scene *s, uint32_t status, const char *text)
{
	assert_int_equal(s->player.answers, 1);
	assert_int_equal(s->player.last.status, status);
	assert_non_null(strstr(s->player.last.text, text));
	s->player.answers = 0;
}

static void ask_revoke(struct scene *s, uint64_t offset, uint64_t length)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REVOKE, .tag = ++s->tag };

	m.revoke.leg = srdma_relay_leg_id(s->pair.side[1].leg);
	m.revoke.range.key = s->key;
	m.revoke.range.offset = offset;
	m.revoke.range.length = length;
	ask(s, &m);
}

static void ask_withdraw(struct scene *s)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_WITHDRAW,
				   .tag = ++s->tag };

	m.dereg_mr.leg = srdma_relay_leg_id(s->pair.side[1].leg);
	m.dereg_mr.key = s->key;
	ask(s, &m);
}

static void ask_dereg(struct scene *s)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_DEREG_MR,
				   .tag = ++s->tag };

	m.dereg_mr.leg = srdma_relay_leg_id(s->pair.side[1].leg);
	m.dereg_mr.key = s->key;
	ask(s, &m);
}

/* Runs until the DMA has ended, polling the waiting requests every turn. */
static void finish_dma(struct scene *s)
{
	for (int i = 0; i < 2 * SLOW; i++) {
		pair_run(&s->pair, 1);
		requests_poll(s->requests);
	}
	assert_int_equal(requests_poll(s->requests), 0);
}

#define WAITS(s, count)                                                        \
	do {                                                                   \
		assert_int_equal((s)->player.client.waiting, count);           \
		assert_int_equal(requests_poll((s)->requests), count);         \
		assert_int_equal((s)->player.answers, 0);                      \
	} while (0)

static void test_hello_has_process_and_gid(void **state)
{
	const struct srdma_ctl_msg m = { .kind = SRDMA_CTL_HELLO,
					 .version = SRDMA_CTL_VERSION };
	const struct srdma_ctl_hello_answer *a;
	struct scene s;

	(void)state;
	begin(&s);
	finish_dma(&s);
	ask(&s, &m);
	a = &s.player.last.hello;
	assert_int_equal(s.player.last.status, 0);
	assert_int_equal(a->threads, 5);
	assert_int_equal(a->thread, 3);
	assert_memory_equal(a->gid, s.requests->p.gid, sizeof(a->gid));
	end(&s);
}

/* RFC 5042 R6.2.2-2 */
static void test_revoke_waits_for_dma(void **state)
{
	static const struct {
		uint64_t offset, length;
	} ranges[] = { { 0, 0 }, { 0, LENGTH } };
	struct scene s;

	(void)state;
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		begin(&s);
		ask_revoke(&s, ranges[i].offset, ranges[i].length);
		WAITS(&s, 1);
		finish_dma(&s);
		assert_int_equal(s.player.answers, 1);
		assert_int_equal(s.player.last.kind, SRDMA_CTL_REVOKE);
		assert_int_equal(s.player.last.tag, s.tag);
		assert_int_equal(s.player.last.status, 0);
		assert_int_equal(s.player.client.waiting, 0);
		pair_expect(&s.pair, 0, WRITE_ID, SRDMA_REASON_NONE);
		end(&s);
	}
}

/* Without DMA in progress the response is immediate. */
static void test_revoke_without_dma_is_immediate(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	finish_dma(&s);
	ask_revoke(&s, 0, 0);
	assert_int_equal(s.player.answers, 1);
	assert_int_equal(s.player.last.status, 0);
	end(&s);
}

/* RFC 5042 R6.2.2-1, R6.2.2-2 */
static void test_withdraw_waits_for_dma(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	ask_withdraw(&s);
	WAITS(&s, 1);
	finish_dma(&s);
	assert_int_equal(s.player.answers, 1);
	assert_int_equal(s.player.last.kind, SRDMA_CTL_WITHDRAW);
	assert_int_equal(s.player.last.tag, s.tag);
	assert_int_equal(s.player.last.status, 0);
	pair_expect(&s.pair, 0, WRITE_ID, SRDMA_REASON_NONE);
	s.player.answers = 0;
	ask_withdraw(&s); /* nothing is under way */
	assert_int_equal(s.player.answers, 1);
	assert_int_equal(s.player.last.status, 0);
	s.player.answers = 0;
	s.key ^= 1;
	ask_withdraw(&s);
	expect_refusal(&s, ENOENT, "no region of this key");
	end(&s);
}

/* RFC 5042 R6.2.2-2 */
static void test_dereg_waits_for_dma(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	ask_dereg(&s);
	WAITS(&s, 1);
	finish_dma(&s);
	assert_int_equal(s.player.answers, 1);
	assert_int_equal(s.player.last.kind, SRDMA_CTL_DEREG_MR);
	assert_int_equal(s.player.last.status, 0);
	end(&s);
}

/* RFC 5042 R6.2.2-2 */
static void test_replace_waits_for_dma(void **state)
{
	const struct pair_region region = { .len = LENGTH,
					    .access = SRDMA_ACCESS_ALL };
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REPLACE };
	struct srdma_mr *mr;
	struct scene s;

	(void)state;
	for (int ends = 0; ends < 2; ends++) {
		begin(&s);
		m.replace.leg = srdma_relay_leg_id(s.pair.side[1].leg);
		m.replace.key = pair_register(&s.pair, 1, region);
		m.replace.other = pair_register(&s.pair, 1, region);
		mr = srdma_mr_find(&s.pair.side[1].relay->env.mrs,
				   m.replace.key);
		mr->dmas++;
		ask(&s, &m);
		assert_int_equal(requests_poll(s.requests), 1);
		assert_int_equal(s.player.answers, 0);
		if (ends) /* the other region */
			assert_int_equal(
				srdma_relay_mr_dereg(s.pair.side[1].relay,
						     s.pair.side[1].leg,
						     m.replace.other),
				0);
		mr->dmas--;
		requests_poll(s.requests);
		assert_int_equal(s.player.answers, 1);
		assert_int_equal(s.player.last.kind, SRDMA_CTL_REPLACE);
		assert_int_equal(s.player.last.status, ends ? ENOENT : 0);
		assert_int_equal(s.pair.side[1].leg->mrs, REGIONS + !ends);
		end(&s);
	}
}

/* A client whose connection ended sends the request again over its next one. */
static void test_repeated_dereg_waits_for_dma(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	ask_dereg(&s);
	ask_dereg(&s);
	WAITS(&s, 2);
	finish_dma(&s);
	assert_int_equal(s.player.answers, 2);
	assert_int_equal(s.player.last.status, 0);
	assert_int_equal(s.player.client.waiting, 0);
	s.player.answers = 0;
	ask_dereg(&s);
	expect_refusal(&s, ENOENT, "no region of this key");
	end(&s);
}

/* A region is deregistered while its revocation waits: both get a response. */
static void test_revoke_and_dereg_are_both_answered(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	ask_revoke(&s, 0, 0);
	ask_dereg(&s);
	WAITS(&s, 2);
	finish_dma(&s);
	assert_int_equal(s.player.answers, 2);
	assert_int_equal(s.player.last.status, 0);
	end(&s);
}

static void test_revoke_fails_if_leg_ends(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	ask_revoke(&s, 0, 0);
	srdma_relay_leg_close(s.pair.side[1].leg);
	assert_int_equal(requests_poll(s.requests), 0);
	assert_int_equal(s.player.answers, 1);
	assert_int_equal(s.player.last.status, ECONNRESET);
	assert_non_null(strstr(s.player.last.text, "the leg ended"));
	finish_dma(&s);
	end(&s);
}

/*
 * After the client has left no response is sent, and only DEREG_MR continues.
 */
static void test_client_leaves_while_waiting(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	ask_revoke(&s, 0, 0);
	requests_leave(s.requests, &s.player.client);
	assert_int_equal(requests_poll(s.requests), 0);
	end(&s);

	begin(&s);
	ask_dereg(&s);
	requests_leave(s.requests, &s.player.client);
	assert_int_equal(requests_poll(s.requests), 1);
	finish_dma(&s);
	assert_int_equal(s.player.answers, 0);
	end(&s);
}

/* Each connection repeats the request, and ends. One item of each object is
 * left, which the relay must be polled for. */
static void test_repeats_of_clients_that_left(void **state)
{
	struct srdma_ctl_msg destroy = { .kind = SRDMA_CTL_DESTROY };
	struct scene s;

	(void)state;
	begin(&s);
	destroy.qpn = s.pair.side[1].qp[0].qpn;
	for (int i = 0; i < 3; i++) {
		ask_dereg(&s);
		ask(&s, &destroy);
		ask(&s, &destroy);
		assert_int_equal(s.player.client.waiting, 3);
		requests_leave(s.requests, &s.player.client);
		s.player.client.waiting = 0;
		legs_attach(&s.requests->legs, USER, s.pair.side[1].leg);
		assert_int_equal(requests_poll(s.requests), 2);
	}
	finish_dma(&s);
	assert_int_equal(s.player.answers, 0);
	end(&s);
}

/*
 * Fills in request i of those that name a leg or a QP, valid for a client of
 * that leg. Returns 0 after the last one.
 */
static unsigned request_of_user(const struct scene *s, unsigned i,
				struct srdma_ctl_msg *m)
{
	const uint32_t leg = srdma_relay_leg_id(s->pair.side[1].leg);
	const uint32_t qpn = s->pair.side[1].qp[0].qpn;
	const struct srdma_ctl_msg messages[] = {
		{ .kind = SRDMA_CTL_DEREG_MR,
		  .dereg_mr = { .leg = leg, .key = s->key } },
		{ .kind = SRDMA_CTL_WITHDRAW,
		  .dereg_mr = { .leg = leg, .key = s->key } },
		{ .kind = SRDMA_CTL_CAP,
		  .cap = { .leg = leg,
			   .cap = { .key = s->key,
				    .length = LENGTH,
				    .rights = SRDMA_MEMKEY_WRITE } } },
		{ .kind = SRDMA_CTL_REVOKE,
		  .revoke = { .leg = leg, .range = { .key = s->key } } },
		{ .kind = SRDMA_CTL_ROTATE, .rotate = { .leg = leg } },
		{ .kind = SRDMA_CTL_WAIT, .qpn = qpn },
		{ .kind = SRDMA_CTL_EXPIRE, .qpn = qpn },
		{ .kind = SRDMA_CTL_LIFE,
		  .life = { .qpn = qpn, .seconds = 1 } },
		{ .kind = SRDMA_CTL_MODIFY,
		  .modify = { .qpn = qpn, .fields = 1 } },
		{ .kind = SRDMA_CTL_DESTROY, .qpn = qpn },
	};

	if (i == sizeof(messages) / sizeof(*messages))
		return 0;
	*m = messages[i];
	return 1;
}

/*
 * Requests for a leg or its QPs are accepted only from the connection that
 * opened the leg and from those that attached to it.
 */
/* RFC 5042 R3-1, R2.3.4-1 */
static void test_leg_of_other_clients_is_refused(void **state)
{
	struct srdma_ctl_msg m;
	struct scene s;

	(void)state;
	begin(&s);
	finish_dma(&s);
	s.player.client.number = OTHER;
	for (unsigned i = 0; request_of_user(&s, i, &m); i++) {
		ask(&s, &m);
		expect_refusal(&s, EPERM, "of this connection");
	}
	assert_int_equal(pair_state(&s.pair, 1, 0, NULL), SRDMA_QP_RTS);
	end(&s);
}

/* review A20 */
static void test_wrong_token_attaches_no_leg(void **state)
{
	const struct srdma_ctl_msg attach = { .kind = SRDMA_CTL_ATTACH,
					      .token = "sixteen bytes.." };
	struct scene s;

	(void)state;
	begin(&s);
	s.player.client.number = OTHER;
	ask(&s, &attach);
	expect_refusal(&s, EPERM, "no leg has this token");
	ask_revoke(&s, 0, 0);
	expect_refusal(&s, EPERM, "of this connection");
	finish_dma(&s);
	end(&s);
}

/* The leg ends with the connection that opened it, not with another one. */
static void test_leg_ends_with_its_owner(void **state)
{
	struct client owner = { .number = OWNER };
	struct scene s;
	uint32_t leg;

	(void)state;
	begin(&s);
	finish_dma(&s);
	leg = srdma_relay_leg_id(s.pair.side[1].leg);
	requests_leave(s.requests, &s.player.client);
	assert_non_null(srdma_relay_leg_by_id(s.pair.side[1].relay, leg));
	requests_leave(s.requests, &owner);
	assert_null(srdma_relay_leg_by_id(s.pair.side[1].relay, leg));
	end(&s);
}

static void test_pending_requests_are_limited(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	for (int i = 0; i < MAX_WAITING; i++)
		ask_revoke(&s, 0, 0);
	WAITS(&s, MAX_WAITING);
	ask_revoke(&s, 0, 0);
	expect_refusal(&s, EBUSY, "wait for some responses");
	finish_dma(&s);
	assert_int_equal(s.player.answers, MAX_WAITING);
	ask_revoke(&s, 0, 0);
	assert_int_equal(s.player.last.status, 0);
	end(&s);
}

/* A RESET that waits is refused when a newer request of the QP came: it must not
 * end the QP that REINIT makes. */
static void test_newer_request_cancels_a_reset(void **state)
{
	struct scene s;
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESET };
	uint32_t qpn, reason;

	(void)state;
	begin(&s);
	qpn = s.pair.side[1].qp[0].qpn;
	m.reset.qpn = qpn;
	for (int posted = 1; posted >= 0; posted--) {
		m.reset.posted = (uint32_t)posted;
		ask(&s, &m);
		pair_wait_ms(&s.pair, 2000);
	}
	assert_int_equal(requests_poll(s.requests), 0);
	assert_int_equal(s.player.answers, 2);
	s.player.answers = 0;
	m.reset.posted = 1;
	ask(&s, &m);
	WAITS(&s, 1);
	m = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_REINIT };
	m.reinit.qpn = qpn;
	m.reinit.qp = (struct srdma_qp_params){ .sq = 16, .rq = 16 };
	ask(&s, &m);
	assert_int_equal(s.player.last.status, 0);
	s.player.answers = 0;
	requests_poll(s.requests);
	expect_refusal(&s, ECANCELED, "a newer RESET or REINIT of this QP");
	WAITS(&s, 0);
	assert_int_equal(srdma_relay_qp_state(s.pair.side[1].relay,
					      s.pair.side[1].leg, qpn, &reason),
			 SRDMA_QP_INIT);
	end(&s);
}

/* One answer is due for each. */
static void test_second_reset_of_a_qp_takes_the_place(void **state)
{
	struct scene s;
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESET,
				   .reset.posted = 1000 };

	(void)state;
	begin(&s);
	m.reset.qpn = s.pair.side[1].qp[0].qpn;
	ask(&s, &m);
	WAITS(&s, 1);
	ask(&s, &m);
	requests_poll(s.requests);
	expect_refusal(&s, ECANCELED, "a newer RESET or REINIT of this QP");
	WAITS(&s, 1);
	pair_wait_ms(&s.pair, 5000);
	requests_poll(s.requests);
	expect_refusal(&s, ETIMEDOUT, "repeat RESET, or end the QP by DESTROY");
	WAITS(&s, 0);
	m.reset.posted = 1000000;
	ask(&s, &m);
	expect_refusal(&s, EINVAL, "1000000 descriptors");
	end(&s);
}

/* Only the shared-memory port takes descriptors, and only where they belong. */
static void test_unexpected_descriptors_are_refused(void **state)
{
	const struct srdma_port shm = { .kind = SRDMA_PORT_SHM };
	struct message message = { .nfds = 1, .fds = { -1 } };
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_STATS };
	struct scene s;

	(void)state;
	begin(&s);
	message.len =
		(size_t)srdma_ctl_encode(message.data, SRDMA_CTL_REQUEST, &m);
	requests_handle(s.requests, &s.player.client, &message);
	expect_refusal(&s, EPROTO, "STATS with 1 file descriptors");
	s.requests->p.host = &shm;
	requests_handle(s.requests, &s.player.client, &message);
	expect_refusal(&s, EPROTO, "STATS with 1 file descriptors");
	m.kind = SRDMA_CTL_OPEN;
	message.nfds = 2;
	message.len =
		(size_t)srdma_ctl_encode(message.data, SRDMA_CTL_REQUEST, &m);
	requests_handle(s.requests, &s.player.client, &message);
	expect_refusal(&s, EPROTO, "OPEN with 2 file descriptors");
	finish_dma(&s);
	end(&s);
}

/* --- a client that leaves while its region opens ---------------------------- */

static int opening(struct srdma_region *region)
{
	(void)region;
	return -EINPROGRESS;
}

/* REG_MR of a client that is attached to the leg, and which waits. Returns the
 * region. */
static struct srdma_mr *ask_region(struct scene *s, struct srdma_port_ops *ops)
{
	struct side *side = &s->pair.side[1];
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REG_MR, .tag = ++s->tag };
	struct srdma_mr_table *t = &side->relay->env.mrs;
	struct srdma_mr *mr = NULL;

	*ops = *side->host->ops;
	ops->region_ready = opening;
	side->host->ops = ops;
	m.reg_mr.leg = srdma_relay_leg_id(side->leg);
	m.reg_mr.mr.region.addr = (uintptr_t)side->memory;
	m.reg_mr.mr.region.length = LENGTH;
	m.reg_mr.mr.region.access = SRDMA_ACCESS_LOCAL_WRITE;
	ask(s, &m);
	assert_int_equal(s->player.answers, 0);
	assert_int_equal(side->leg->mrs, REGIONS + 1);
	for (int i = 0; !mr && i < SRDMA_MR_BUCKETS; i++)
		for (mr = t->bucket[i];
		     mr && mr->access != SRDMA_ACCESS_LOCAL_WRITE;
		     mr = mr->next)
			;
	assert_non_null(mr);
	return mr;
}

static void test_region_of_a_client_that_leaves_is_freed(void **state)
{
	struct srdma_port_ops ops;
	struct scene s;

	(void)state;
	begin(&s);
	ask_region(&s, &ops);
	requests_leave(s.requests, &s.player.client);
	assert_int_equal(s.pair.side[1].leg->mrs, REGIONS);
	assert_int_equal(requests_poll(s.requests), 0);
	end(&s);
}

static void test_region_is_freed_after_its_dma(void **state)
{
	struct srdma_port_ops ops;
	struct srdma_mr *mr;
	struct scene s;

	(void)state;
	begin(&s);
	mr = ask_region(&s, &ops);
	mr->dmas++; /* of a peer that guessed the key */
	requests_leave(s.requests, &s.player.client);
	assert_int_equal(requests_poll(s.requests), 1);
	assert_int_equal(s.pair.side[1].leg->mrs, REGIONS + 1);
	mr->dmas--;
	requests_poll(s.requests);
	assert_int_equal(s.pair.side[1].leg->mrs, REGIONS);
	assert_int_equal(requests_poll(s.requests), 0);
	assert_int_equal(s.player.answers, 0);
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hello_has_process_and_gid),
		cmocka_unit_test(test_revoke_waits_for_dma),
		cmocka_unit_test(test_revoke_without_dma_is_immediate),
		cmocka_unit_test(test_withdraw_waits_for_dma),
		cmocka_unit_test(test_dereg_waits_for_dma),
		cmocka_unit_test(test_replace_waits_for_dma),
		cmocka_unit_test(test_repeated_dereg_waits_for_dma),
		cmocka_unit_test(test_revoke_and_dereg_are_both_answered),
		cmocka_unit_test(test_revoke_fails_if_leg_ends),
		cmocka_unit_test(test_client_leaves_while_waiting),
		cmocka_unit_test(test_repeats_of_clients_that_left),
		cmocka_unit_test(test_leg_of_other_clients_is_refused),
		cmocka_unit_test(test_wrong_token_attaches_no_leg),
		cmocka_unit_test(test_leg_ends_with_its_owner),
		cmocka_unit_test(test_pending_requests_are_limited),
		cmocka_unit_test(test_newer_request_cancels_a_reset),
		cmocka_unit_test(test_second_reset_of_a_qp_takes_the_place),
		cmocka_unit_test(test_unexpected_descriptors_are_refused),
		cmocka_unit_test(test_region_of_a_client_that_leaves_is_freed),
		cmocka_unit_test(test_region_is_freed_after_its_dma),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
