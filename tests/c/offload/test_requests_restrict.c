/*
 * Restricted connections (docs/local-interface.md 3.9): RESTRICT, the requests
 * that they may not send, and the limits of their accounts.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "log.h"
#include "requests_impl.h"
#include "support/relay_pair.h"

enum { UID = 1000, PLAYERS = 4, OWNER = 9, RING = 64, PAGE = 4096 };

struct player {
	struct client client; /* must be first: send() gets only this */
	struct srdma_ctl_msg last;
};

/* Side 0 of the pair gets the requests. The agent's first connection stays. */
struct scene {
	struct pair pair;
	struct requests *requests;
	struct player agent, player[PLAYERS];
};

static void take_answer(struct client *client, const struct answer *a)
{
	struct player *p = (struct player *)client;

	assert_int_equal(
		srdma_ctl_decode(&p->last, SRDMA_CTL_ANSWER, a->data, a->len),
		0);
}

/* Connections of one process, the agent. */
static struct player player(unsigned number)
{
	return (struct player){ .client = { .number = number,
					    .pid = 100,
					    .pidfd = -1,
					    .uid = UID } };
}

/* Returns the status of the answer. */
static uint32_t ask(struct scene *s, struct player *p,
		    const struct srdma_ctl_msg *m)
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

static void says(const struct player *p, const char *text)
{
	if (!strstr(p->last.text, text))
		fail_msg("\"%s\" is not in \"%s\"", text, p->last.text);
}

static const struct srdma_ctl_restrict many = { 10, 10,	       10,
						10, 10 * PAGE, "uid 7" };

static uint32_t restrict_as(struct scene *s, struct player *p,
			    const struct srdma_ctl_restrict *limits)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESTRICT };

	m.restrict_ = *limits;
	return ask(s, p, &m);
}

static uint32_t ask_agent(struct scene *s, struct player *p)
{
	return ask(s, p, &(struct srdma_ctl_msg){ .kind = SRDMA_CTL_AGENT });
}

/* Makes a restricted connection of player i. Returns the status of RESTRICT. */
static uint32_t restricted(struct scene *s, int i,
			   const struct srdma_ctl_restrict *limits)
{
	s->player[i] = player((unsigned)i);
	assert_int_equal(ask_agent(s, &s->player[i]), 0);
	return restrict_as(s, &s->player[i], limits);
}

static void leave(struct scene *s, int i)
{
	requests_leave(s->requests, &s->player[i].client);
}

static void begin(struct scene *s)
{
	static const uint8_t suites[SRDMA_CTL_SUITES_LEN];
	const struct side *side = &s->pair.side[0];
	struct requests_params params = {
		.host_dev = "mem",
		.name = "a",
		.suites = suites,
		.send = take_answer,
		.agent_uid = UID,
	};

	memset(s, 0, sizeof(*s));
	pair_defaults(&s->pair);
	pair_open(&s->pair);
	pair_connect(&s->pair, 0);
	params.relay = side->relay;
	params.host = side->host;
	params.wire = side->wire;
	assert_int_equal(requests_create(&s->requests, &params), 0);
	assert_int_equal(legs_add(&s->requests->legs, side->leg,
				  &(struct legs_opener){ .connection = OWNER }),
			 0);
	s->agent = player(OWNER + 1);
	assert_int_equal(ask_agent(s, &s->agent), 0);
}

static void end(struct scene *s)
{
	requests_destroy(s->requests);
	pair_close(&s->pair);
}

static uint32_t open_leg(struct scene *s, struct player *p)
{
	return ask(s, p,
		   &(struct srdma_ctl_msg){ .kind = SRDMA_CTL_OPEN,
					    .open.ring = RING });
}

/* The leg and token of a new leg of player i. */
static struct srdma_ctl_open_answer leg_of(struct scene *s, int i)
{
	assert_int_equal(open_leg(s, &s->player[i]), 0);
	return s->player[i].last.opened;
}

static uint32_t make_qp(struct scene *s, struct player *p, uint32_t leg)
{
	return ask(
		s, p,
		&(struct srdma_ctl_msg){
			.kind = SRDMA_CTL_INIT,
			.init = { .leg = leg, .qp = { .sq = 1, .rq = 1 } } });
}

static uint32_t make_region(struct scene *s, struct player *p, uint32_t leg,
			    uint64_t length)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_REG_MR };

	m.reg_mr.leg = leg;
	m.reg_mr.mr.region.addr = (uintptr_t)s->pair.side[0].memory;
	m.reg_mr.mr.region.length = length;
	return ask(s, p, &m);
}

static uint32_t attach(struct scene *s, struct player *p,
		       const uint8_t token[SRDMA_TOKEN_LEN])
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_ATTACH };

	memcpy(m.token, token, sizeof(m.token));
	return ask(s, p, &m);
}

/* --- RESTRICT ---------------------------------------------------------------- */

static void test_role_is_needed(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	s.player[0] = player(0);
	assert_int_equal(restrict_as(&s, &s.player[0], &many), EPERM);
	says(&s.player[0], "without the role AGENT for all legs");
	assert_int_equal(ask(&s, &s.player[0],
			     &(struct srdma_ctl_msg){
				     .kind = SRDMA_CTL_AGENT,
				     .agent.flags = SRDMA_CTL_AGENT_ATTACHED }),
			 0);
	assert_int_equal(restrict_as(&s, &s.player[0], &many), EPERM);
	assert_null(s.player[0].client.account);
	end(&s);
}

static void test_role_ends(void **state)
{
	const struct srdma_ctl_msg adopt = { .kind = SRDMA_CTL_ADOPT };
	struct srdma_ctl_msg wait = { .kind = SRDMA_CTL_WAIT };
	struct scene s;

	(void)state;
	begin(&s);
	wait.qpn = s.pair.side[0].qp[0].qpn;
	s.player[0] = player(0);
	assert_int_equal(ask_agent(&s, &s.player[0]), 0);
	s.player[0].client.pidfd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(restrict_as(&s, &s.player[0], &many), 0);
	/* the process of the connection is not the program's */
	assert_int_equal(s.player[0].client.pidfd, -1);
	assert_int_equal(s.requests->agents, 1);
	assert_int_equal(ask(&s, &s.player[0], &wait), EPERM);
	assert_int_equal(ask(&s, &s.agent, &wait), 0);
	assert_int_equal(ask(&s, &s.agent, &adopt), ENOENT);
	end(&s);
}

static void test_illegal_restrictions(void **state)
{
	struct srdma_ctl_restrict none = many;
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_ATTACH };
	struct scene s;

	(void)state;
	begin(&s);
	memset(none.account, 0, sizeof(none.account));
	assert_int_equal(restricted(&s, 0, &none), EINVAL);
	says(&s.player[0], "without an account");
	s.player[0].client.waiting = 1;
	assert_int_equal(restrict_as(&s, &s.player[0], &many), EISCONN);
	s.player[0].client.waiting = 0;
	assert_int_equal(open_leg(&s, &s.player[0]), 0);
	memcpy(m.token, s.player[0].last.opened.token, sizeof(m.token));
	assert_int_equal(restrict_as(&s, &s.player[0], &many), EISCONN);
	says(&s.player[0], "is in use");
	/* a leg of another connection, too */
	s.player[1] = player(1);
	assert_int_equal(ask_agent(&s, &s.player[1]), 0);
	assert_int_equal(ask(&s, &s.player[1], &m), 0);
	assert_int_equal(restrict_as(&s, &s.player[1], &many), EISCONN);
	/* until that has ended */
	leave(&s, 0);
	assert_int_equal(restrict_as(&s, &s.player[1], &many), 0);
	end(&s);
}

/* The agent compares it with the user of the program that gave it the token. */
static void test_attach_names_the_opener(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	assert_int_equal(open_leg(&s, &s.player[0]), 0);
	assert_int_equal(attach(&s, &s.agent, s.player[0].last.opened.token),
			 0);
	assert_string_equal(s.agent.last.attached.account, many.account);
	s.player[1] = player(1);
	s.player[1].client.uid = 4242;
	assert_int_equal(open_leg(&s, &s.player[1]), 0);
	assert_int_equal(attach(&s, &s.agent, s.player[1].last.opened.token),
			 0);
	assert_int_equal(s.agent.last.attached.leg,
			 s.player[1].last.opened.leg);
	assert_int_equal(s.agent.last.attached.user, 4242);
	assert_string_equal(s.agent.last.attached.account, "");
	end(&s);
}

/* --- requests ---------------------------------------------------------------- */

/* Each kind of the agent, with the role vacant too. */
static void test_requests_of_the_agent(void **state)
{
	static const uint8_t kinds[] = {
		SRDMA_CTL_KEYS,	  SRDMA_CTL_KEY,   SRDMA_CTL_REKEY,
		SRDMA_CTL_ROTATE, SRDMA_CTL_PROVE, SRDMA_CTL_LIFE,
		SRDMA_CTL_KEEP,	  SRDMA_CTL_ADOPT, SRDMA_CTL_END,
		SRDMA_CTL_EXPIRE, SRDMA_CTL_AGENT, SRDMA_CTL_RESTRICT,
	};

	(void)state;
	for (int vacant = 0; vacant < 2; vacant++) {
		struct scene s;
		uint32_t leg;

		begin(&s);
		assert_int_equal(restricted(&s, 0, &many), 0);
		leg = leg_of(&s, 0).leg;
		if (vacant)
			requests_leave(s.requests, &s.agent.client);
		for (size_t i = 0; i < sizeof(kinds); i++) {
			struct srdma_ctl_msg m = { .kind = kinds[i] };

			assert_int_equal(ask(&s, &s.player[0], &m), EPERM);
			says(&s.player[0], "on a restricted connection");
			says(&s.player[0], srdma_ctl_name(kinds[i]));
		}
		assert_int_equal(make_qp(&s, &s.player[0], leg), 0);
		end(&s);
	}
}

static void test_requests_of_programs(void **state)
{
	struct scene s;
	struct srdma_ctl_open_answer leg;
	uint32_t qpn, key;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	leg = leg_of(&s, 0);
	assert_int_equal(make_qp(&s, &s.player[0], leg.leg), 0);
	qpn = s.player[0].last.qp.qp.qpn;
	assert_int_equal(make_region(&s, &s.player[0], leg.leg, PAGE), 0);
	key = s.player[0].last.key;
	{
		const struct srdma_ctl_msg rows[] = {
			{ .kind = SRDMA_CTL_HELLO,
			  .version = SRDMA_CTL_VERSION },
			{ .kind = SRDMA_CTL_STATS },
			{ .kind = SRDMA_CTL_DEREG_MR,
			  .dereg_mr = { leg.leg, key } },
			{ .kind = SRDMA_CTL_DESTROY, .qpn = qpn },
		};

		for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
			assert_int_equal(ask(&s, &s.player[0], &rows[i]), 0);
	}
	end(&s);
}

/* Legs of other accounts, and of connections without one, are out of reach. */
static void test_legs_of_others(void **state)
{
	struct srdma_ctl_restrict other = many;
	struct srdma_ctl_open_answer leg, plain;
	struct srdma_ctl_msg destroy = { .kind = SRDMA_CTL_DESTROY };
	struct scene s;

	(void)state;
	begin(&s);
	strcpy(other.account, "uid 8");
	assert_int_equal(restricted(&s, 0, &many), 0);
	assert_int_equal(restricted(&s, 1, &other), 0);
	assert_int_equal(restricted(&s, 2, &many), 0);
	s.player[3] = player(3);
	leg = leg_of(&s, 0);
	plain = leg_of(&s, 3);
	assert_int_equal(make_qp(&s, &s.player[0], leg.leg), 0);
	destroy.qpn = s.player[0].last.qp.qp.qpn;
	assert_int_equal(attach(&s, &s.player[1], leg.token), EPERM);
	says(&s.player[1], "no leg has this token");
	assert_int_equal(attach(&s, &s.player[1], plain.token), EPERM);
	assert_int_equal(make_qp(&s, &s.player[1], leg.leg), EPERM);
	assert_int_equal(make_region(&s, &s.player[1], leg.leg, PAGE), EPERM);
	assert_int_equal(ask(&s, &s.player[1], &destroy), EPERM);
	/* the same account, by its token */
	assert_int_equal(make_qp(&s, &s.player[2], leg.leg), EPERM);
	assert_int_equal(attach(&s, &s.player[2], leg.token), 0);
	assert_int_equal(make_qp(&s, &s.player[2], leg.leg), 0);
	end(&s);
}

/* Only over shared memory is there another kind of memory. */
static void test_memory_is_a_memfd(void **state)
{
	struct srdma_port shm;
	struct srdma_leg *leg;
	struct scene s;
	uint32_t id;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	id = leg_of(&s, 0).leg;
	assert_int_equal(make_region(&s, &s.player[0], id, PAGE), 0);
	leg = srdma_relay_leg_by_id(s.pair.side[0].relay, id);
	assert_non_null(leg);
	shm = *s.pair.side[0].host;
	shm.kind = SRDMA_PORT_SHM;
	s.requests->p.host = &shm;
	assert_int_equal(make_region(&s, &s.player[0], id, PAGE), EPERM);
	says(&s.player[0], "registers memfds only");
	assert_int_equal(srdma_relay_leg_memory(leg).regions, 1);
	s.player[3] = player(3);
	legs_attach(&s.requests->legs, 3, leg);
	assert_int_equal(make_region(&s, &s.player[3], id, PAGE), 0);
	end(&s);
}

/* --- limits ------------------------------------------------------------------ */

static void test_limit_of_connections(void **state)
{
	struct srdma_ctl_restrict two = many, other = many;
	struct scene s;

	(void)state;
	begin(&s);
	two.connections = other.connections = 2;
	strcpy(other.account, "uid 8");
	assert_int_equal(restricted(&s, 0, &two), 0);
	assert_int_equal(restricted(&s, 1, &two), 0);
	assert_int_equal(restricted(&s, 2, &two), EDQUOT);
	says(&s.player[2], "uid 7 has its limit of 2 connections");
	leave(&s, 2);
	assert_int_equal(restricted(&s, 2, &other), 0);
	leave(&s, 0);
	assert_int_equal(restricted(&s, 3, &two), 0);
	end(&s);
}

/* Legs of all connections of the account count, while they live. */
static void test_limit_of_legs(void **state)
{
	struct srdma_ctl_restrict two = many;
	struct scene s;

	(void)state;
	begin(&s);
	two.legs = 2;
	assert_int_equal(restricted(&s, 0, &two), 0);
	assert_int_equal(restricted(&s, 1, &two), 0);
	leg_of(&s, 0);
	leg_of(&s, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(open_leg(&s, &s.player[i]), EDQUOT);
		says(&s.player[i], "uid 7 has its limit of 2 legs");
	}
	leave(&s, 0);
	assert_int_equal(open_leg(&s, &s.player[1]), 0);
	end(&s);
}

static void test_limit_of_qps(void **state)
{
	struct srdma_ctl_msg destroy = { .kind = SRDMA_CTL_DESTROY };
	struct srdma_ctl_restrict two = many;
	struct scene s;
	uint32_t leg[2];

	(void)state;
	begin(&s);
	two.qps = 2;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(restricted(&s, i, &two), 0);
		leg[i] = leg_of(&s, i).leg;
		assert_int_equal(make_qp(&s, &s.player[i], leg[i]), 0);
	}
	destroy.qpn = s.player[0].last.qp.qp.qpn;
	assert_int_equal(make_qp(&s, &s.player[1], leg[1]), EDQUOT);
	says(&s.player[1], "uid 7 has its limit of 2 QPs");
	assert_int_equal(ask(&s, &s.player[0], &destroy), 0);
	assert_int_equal(make_qp(&s, &s.player[1], leg[1]), 0);
	end(&s);
}

static void test_limit_of_regions(void **state)
{
	struct srdma_ctl_msg dereg = { .kind = SRDMA_CTL_DEREG_MR };
	struct srdma_ctl_restrict two = many;
	struct scene s;
	uint32_t leg[2];

	(void)state;
	begin(&s);
	two.regions = 2;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(restricted(&s, i, &two), 0);
		leg[i] = leg_of(&s, i).leg;
		assert_int_equal(make_region(&s, &s.player[i], leg[i], 1), 0);
	}
	dereg.dereg_mr.leg = leg[0];
	dereg.dereg_mr.key = s.player[0].last.key;
	assert_int_equal(make_region(&s, &s.player[1], leg[1], 1), EDQUOT);
	says(&s.player[1], "uid 7 has its limit of 2 regions");
	assert_int_equal(ask(&s, &s.player[0], &dereg), 0);
	assert_int_equal(make_region(&s, &s.player[1], leg[1], 1), 0);
	end(&s);
}

static void test_limit_of_bytes(void **state)
{
	struct srdma_ctl_restrict some = many;
	struct srdma_ctl_msg dereg = { .kind = SRDMA_CTL_DEREG_MR };
	struct scene s;
	uint32_t leg;

	(void)state;
	begin(&s);
	some.bytes = 3 * PAGE;
	assert_int_equal(restricted(&s, 0, &some), 0);
	leg = leg_of(&s, 0).leg;
	assert_int_equal(make_region(&s, &s.player[0], leg, 3 * PAGE + 1),
			 EDQUOT);
	says(&s.player[0], "limit of 12288 bytes of registered memory");
	assert_int_equal(make_region(&s, &s.player[0], leg, UINT64_MAX),
			 EDQUOT);
	assert_int_equal(make_region(&s, &s.player[0], leg, 2 * PAGE), 0);
	dereg.dereg_mr.leg = leg;
	dereg.dereg_mr.key = s.player[0].last.key;
	assert_int_equal(make_region(&s, &s.player[0], leg, PAGE + 1), EDQUOT);
	assert_int_equal(
		make_region(&s, &s.player[0], leg, UINT64_MAX - 2 * PAGE + 1),
		EDQUOT);
	assert_int_equal(make_region(&s, &s.player[0], leg, PAGE), 0);
	assert_int_equal(make_region(&s, &s.player[0], leg, 1), EDQUOT);
	assert_int_equal(ask(&s, &s.player[0], &dereg), 0);
	assert_int_equal(make_region(&s, &s.player[0], leg, 2 * PAGE), 0);
	/* a later limit is lower than what is used */
	some.bytes = PAGE;
	assert_int_equal(restricted(&s, 1, &some), 0);
	assert_int_equal(make_region(&s, &s.player[0], leg, 1), EDQUOT);
	end(&s);
}

/* No other account is charged, and accounts end with their connections. */
static void test_accounts_are_apart(void **state)
{
	struct srdma_ctl_restrict one = many, other = many;
	struct scene s;

	(void)state;
	begin(&s);
	one.legs = other.legs = 1;
	strcpy(other.account, "container web");
	for (int round = 0; round < ACCOUNTS_MAX + 1; round++) {
		assert_int_equal(restricted(&s, 0, &one), 0);
		assert_int_equal(restricted(&s, 1, &other), 0);
		leg_of(&s, 0);
		leg_of(&s, 1);
		assert_int_equal(open_leg(&s, &s.player[0]), EDQUOT);
		assert_int_equal(open_leg(&s, &s.agent), 0);
		leave(&s, 0);
		leave(&s, 1);
		requests_leave(s.requests, &s.agent.client);
		assert_int_equal(ask_agent(&s, &s.agent), 0);
		pair_run(&s.pair, 3);
	}
	end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_role_is_needed),
		cmocka_unit_test(test_role_ends),
		cmocka_unit_test(test_illegal_restrictions),
		cmocka_unit_test(test_attach_names_the_opener),
		cmocka_unit_test(test_requests_of_the_agent),
		cmocka_unit_test(test_requests_of_programs),
		cmocka_unit_test(test_legs_of_others),
		cmocka_unit_test(test_memory_is_a_memfd),
		cmocka_unit_test(test_limit_of_connections),
		cmocka_unit_test(test_limit_of_legs),
		cmocka_unit_test(test_limit_of_qps),
		cmocka_unit_test(test_limit_of_regions),
		cmocka_unit_test(test_limit_of_bytes),
		cmocka_unit_test(test_accounts_are_apart),
	};

	log_set_level(LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
