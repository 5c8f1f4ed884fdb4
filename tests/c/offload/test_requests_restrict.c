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
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/time.h"
#include "log.h"
#include "support/players.h"

enum {
	UID = 1000,
	PLAYERS = 4,
	OWNER = 9,
	RING = 64,
	PAGE = 4096,
	ROUNDS = 800
};

/* Connections of one process, the agent; `agent` is its first one. */
static struct player agent, player[PLAYERS];

static struct player of_agent(unsigned connection)
{
	return player_make(connection, 100, UID);
}

static const struct srdma_ctl_restrict many = { 10,	   10,	    10, 10,
						10 * PAGE, "uid 7", 0,	"" };

static uint32_t restrict_as(struct scene *s, struct player *p,
			    const struct srdma_ctl_restrict *limits)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESTRICT };

	m.restrict_ = *limits;
	return ask(s, p, &m);
}

/* Makes a restricted connection of player i. Returns the status of RESTRICT. */
static uint32_t restricted(struct scene *s, int i,
			   const struct srdma_ctl_restrict *limits)
{
	player[i] = of_agent((unsigned)i);
	assert_int_equal(ask_agent(s, &player[i]), 0);
	return restrict_as(s, &player[i], limits);
}

static void leave(struct scene *s, int i)
{
	requests_leave(s->requests, &player[i].client);
}

static void begin(struct scene *s)
{
	scene_begin(s, OWNER, UID, 0);
	memset(player, 0, sizeof(player));
	agent = of_agent(OWNER + 1);
	assert_int_equal(ask_agent(s, &agent), 0);
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
	assert_int_equal(open_leg(s, &player[i]), 0);
	return player[i].last.opened;
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
	player[0] = of_agent(0);
	assert_int_equal(restrict_as(&s, &player[0], &many), EPERM);
	player_says(&player[0], "without the role AGENT for all legs");
	assert_int_equal(ask(&s, &player[0],
			     &(struct srdma_ctl_msg){
				     .kind = SRDMA_CTL_AGENT,
				     .agent.flags = SRDMA_CTL_AGENT_ATTACHED }),
			 0);
	assert_int_equal(restrict_as(&s, &player[0], &many), EPERM);
	assert_false(requests_restrict_is(player[0].client.account));
	scene_end(&s);
}

static void test_role_ends(void **state)
{
	const struct srdma_ctl_msg adopt = { .kind = SRDMA_CTL_ADOPT };
	struct srdma_ctl_msg wait = { .kind = SRDMA_CTL_WAIT };
	struct scene s;

	(void)state;
	begin(&s);
	wait.qpn = s.pair.side[0].qp[0].qpn;
	player[0] = of_agent(0);
	assert_int_equal(ask_agent(&s, &player[0]), 0);
	player[0].client.pidfd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	assert_int_equal(restrict_as(&s, &player[0], &many), 0);
	/* the process of the connection is not the program's */
	assert_int_equal(player[0].client.pidfd, -1);
	assert_int_equal(s.requests->agents, 1);
	assert_int_equal(ask(&s, &player[0], &wait), EPERM);
	assert_int_equal(ask(&s, &agent, &wait), 0);
	assert_int_equal(ask(&s, &agent, &adopt), ENOENT);
	scene_end(&s);
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
	player_says(&player[0], "without an account");
	player[0].client.waiting = 1;
	assert_int_equal(restrict_as(&s, &player[0], &many), EISCONN);
	player[0].client.waiting = 0;
	assert_int_equal(open_leg(&s, &player[0]), 0);
	memcpy(m.token, player[0].last.opened.token, sizeof(m.token));
	assert_int_equal(restrict_as(&s, &player[0], &many), EISCONN);
	player_says(&player[0], "is in use");
	/* a leg of another connection, too */
	player[1] = of_agent(1);
	assert_int_equal(ask_agent(&s, &player[1]), 0);
	assert_int_equal(ask(&s, &player[1], &m), 0);
	assert_int_equal(restrict_as(&s, &player[1], &many), EISCONN);
	/* until that has ended */
	leave(&s, 0);
	assert_int_equal(restrict_as(&s, &player[1], &many), 0);
	scene_end(&s);
}

/* The agent compares it with the user of the program that gave it the token. */
static void test_attach_names_the_opener(void **state)
{
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	assert_int_equal(open_leg(&s, &player[0]), 0);
	assert_int_equal(attach(&s, &agent, player[0].last.opened.token), 0);
	assert_string_equal(agent.last.attached.account, many.account);
	player[1] = of_agent(1);
	player[1].client.uid = 4242;
	assert_int_equal(open_leg(&s, &player[1]), 0);
	assert_int_equal(attach(&s, &agent, player[1].last.opened.token), 0);
	assert_int_equal(agent.last.attached.leg, player[1].last.opened.leg);
	assert_int_equal(agent.last.attached.user, 4242);
	assert_string_equal(agent.last.attached.account, "");
	scene_end(&s);
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
			requests_leave(s.requests, &agent.client);
		for (size_t i = 0; i < sizeof(kinds); i++) {
			struct srdma_ctl_msg m = { .kind = kinds[i] };

			assert_int_equal(ask(&s, &player[0], &m), EPERM);
			player_says(&player[0], "on a restricted connection");
			player_says(&player[0], srdma_ctl_name(kinds[i]));
		}
		assert_int_equal(make_qp(&s, &player[0], leg), 0);
		scene_end(&s);
	}
}

/* RFC 5042 R6.5-1 */
static void test_requests_of_programs(void **state)
{
	struct scene s;
	struct srdma_ctl_open_answer leg;
	uint32_t qpn, key;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	leg = leg_of(&s, 0);
	assert_int_equal(make_qp(&s, &player[0], leg.leg), 0);
	qpn = player[0].last.qp.qp.qpn;
	assert_int_equal(make_region(&s, &player[0], leg.leg, PAGE), 0);
	key = player[0].last.key;
	{
		const struct srdma_ctl_msg rows[] = {
			{ .kind = SRDMA_CTL_HELLO,
			  .version = SRDMA_CTL_VERSION },
			{ .kind = SRDMA_CTL_STATS },
			{ .kind = SRDMA_CTL_WITHDRAW,
			  .dereg_mr = { leg.leg, key } },
			{ .kind = SRDMA_CTL_DEREG_MR,
			  .dereg_mr = { leg.leg, key } },
			{ .kind = SRDMA_CTL_DESTROY, .qpn = qpn },
		};

		for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
			assert_int_equal(ask(&s, &player[0], &rows[i]), 0);
	}
	scene_end(&s);
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
	player[3] = of_agent(3);
	leg = leg_of(&s, 0);
	plain = leg_of(&s, 3);
	assert_int_equal(make_qp(&s, &player[0], leg.leg), 0);
	destroy.qpn = player[0].last.qp.qp.qpn;
	assert_int_equal(attach(&s, &player[1], leg.token), EPERM);
	player_says(&player[1], "no leg has this token");
	assert_int_equal(attach(&s, &player[1], plain.token), EPERM);
	assert_int_equal(make_qp(&s, &player[1], leg.leg), EPERM);
	assert_int_equal(make_region(&s, &player[1], leg.leg, PAGE), EPERM);
	assert_int_equal(ask(&s, &player[1], &destroy), EPERM);
	/* the same account, by its token */
	assert_int_equal(make_qp(&s, &player[2], leg.leg), EPERM);
	assert_int_equal(attach(&s, &player[2], leg.token), 0);
	assert_int_equal(make_qp(&s, &player[2], leg.leg), 0);
	scene_end(&s);
}

/* Only over shared memory is there another kind of memory. */
/* RFC 5042 A6.5a */
static void test_memory_is_a_memfd(void **state)
{
	struct srdma_port shm;
	struct srdma_usage use;
	struct srdma_leg *leg;
	struct scene s;
	uint32_t id;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	id = leg_of(&s, 0).leg;
	assert_int_equal(make_region(&s, &player[0], id, PAGE), 0);
	leg = srdma_relay_leg_by_id(s.pair.side[0].relay, id);
	assert_non_null(leg);
	shm = *s.pair.side[0].host;
	shm.kind = SRDMA_PORT_SHM;
	s.requests->p.host = &shm;
	assert_int_equal(make_region(&s, &player[0], id, PAGE), EPERM);
	player_says(&player[0], "registers memfds only");
	srdma_account_usage(player[0].client.account, SRDMA_RES_REGIONS, &use);
	assert_int_equal(use.used, 1);
	player[3] = of_agent(3);
	legs_attach(&s.requests->legs, 3, leg);
	assert_int_equal(make_region(&s, &player[3], id, PAGE), 0);
	scene_end(&s);
}

/* --- limits ------------------------------------------------------------------ */

/* review A41 */
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
	player_says(&player[2], "uid 7 has 2 of at most 2 control connections");
	leave(&s, 2);
	assert_int_equal(restricted(&s, 2, &other), 0);
	leave(&s, 0);
	assert_int_equal(restricted(&s, 3, &two), 0);
	scene_end(&s);
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
		assert_int_equal(open_leg(&s, &player[i]), EDQUOT);
		player_says(&player[i], "uid 7 has 2 of at most 2 legs");
	}
	leave(&s, 0);
	pair_run(&s.pair, 3); /* the leg is charged until it is freed */
	assert_int_equal(open_leg(&s, &player[1]), 0);
	scene_end(&s);
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
		assert_int_equal(make_qp(&s, &player[i], leg[i]), 0);
	}
	destroy.qpn = player[0].last.qp.qp.qpn;
	assert_int_equal(make_qp(&s, &player[1], leg[1]), EDQUOT);
	player_says(&player[1], "uid 7 has 2 of at most 2 QPs");
	assert_int_equal(ask(&s, &player[0], &destroy), 0);
	assert_int_equal(make_qp(&s, &player[1], leg[1]), 0);
	scene_end(&s);
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
		assert_int_equal(make_region(&s, &player[i], leg[i], 1), 0);
	}
	dereg.dereg_mr.leg = leg[0];
	dereg.dereg_mr.key = player[0].last.key;
	assert_int_equal(make_region(&s, &player[1], leg[1], 1), EDQUOT);
	player_says(&player[1], "uid 7 has 2 of at most 2 regions");
	assert_int_equal(ask(&s, &player[0], &dereg), 0);
	assert_int_equal(make_region(&s, &player[1], leg[1], 1), 0);
	scene_end(&s);
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
	assert_int_equal(make_region(&s, &player[0], leg, 3 * PAGE + 1),
			 EDQUOT);
	player_says(&player[0], "of at most 12288 bytes of registered memory");
	assert_int_equal(make_region(&s, &player[0], leg, UINT64_MAX), EINVAL);
	assert_int_equal(make_region(&s, &player[0], leg, 2 * PAGE), 0);
	dereg.dereg_mr.leg = leg;
	dereg.dereg_mr.key = player[0].last.key;
	assert_int_equal(make_region(&s, &player[0], leg, PAGE + 1), EDQUOT);
	assert_int_equal(
		make_region(&s, &player[0], leg, UINT64_MAX - 2 * PAGE + 1),
		EINVAL);
	assert_int_equal(make_region(&s, &player[0], leg, PAGE), 0);
	assert_int_equal(make_region(&s, &player[0], leg, 1), EDQUOT);
	assert_int_equal(ask(&s, &player[0], &dereg), 0);
	assert_int_equal(make_region(&s, &player[0], leg, 2 * PAGE), 0);
	/* a later limit is lower than what is used */
	some.bytes = PAGE;
	assert_int_equal(restricted(&s, 1, &some), 0);
	assert_int_equal(make_region(&s, &player[0], leg, 1), EDQUOT);
	scene_end(&s);
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
	for (int round = 0; round < ROUNDS; round++) {
		assert_int_equal(restricted(&s, 0, &one), 0);
		assert_int_equal(restricted(&s, 1, &other), 0);
		leg_of(&s, 0);
		leg_of(&s, 1);
		assert_int_equal(open_leg(&s, &player[0]), EDQUOT);
		assert_int_equal(open_leg(&s, &agent), 0);
		leave(&s, 0);
		leave(&s, 1);
		requests_leave(s.requests, &agent.client);
		assert_int_equal(ask_agent(&s, &agent), 0);
		pair_run(&s.pair, 3);
	}
	scene_end(&s);
}

static const struct srdma_account *next_program(struct scene *s)
{
	struct srdma_ledger *l = srdma_relay_ledger(s->pair.side[0].relay);
	const struct srdma_account *a = srdma_ledger_next(l, 0);

	while (a && !requests_restrict_is(a))
		a = srdma_ledger_next(l, srdma_account_serial(a));
	return a;
}

/* --- legs that outlive their connection -------------------------------------- */

enum { KEEP_S = 30, MS_PER_S = 1000 };

static void begin_kept(struct scene *s, struct srdma_ctl_restrict *kept)
{
	begin(s);
	*kept = many;
	kept->keep = KEEP_S;
	assert_int_equal(restricted(s, 0, kept), 0);
}

static struct srdma_leg *living(struct scene *s, uint32_t leg)
{
	return srdma_relay_leg_by_id(s->pair.side[0].relay, leg);
}

/* A new leg of player i, to which its host has connected. */
static struct srdma_ctl_open_answer connected_leg_of(struct scene *s, int i)
{
	const struct srdma_ctl_open_answer leg = leg_of(s, i);

	pair_run(&s->pair, 1);
	return leg;
}

/* Waits until shortly before (-1) or after (1) the end of the time. */
static void wait_near_end(struct scene *s, int side)
{
	pair_wait_ms(&s->pair, (uint64_t)(KEEP_S * MS_PER_S + 10 * side));
	requests_poll(s->requests);
}

static void test_leg_waits_for_its_program(void **state)
{
	struct srdma_ctl_restrict kept;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	leg = connected_leg_of(&s, 0);
	assert_true(requests_timer(s.requests) == UINT64_MAX);
	leave(&s, 0);
	assert_true(requests_timer(s.requests) ==
		    srdma_relay_now(s.pair.side[0].relay) +
			    KEEP_S * SRDMA_SECOND);
	wait_near_end(&s, -1);
	assert_non_null(living(&s, leg.leg));
	/* its next owner */
	assert_int_equal(restricted(&s, 1, &kept), 0);
	assert_int_equal(attach(&s, &player[1], leg.token), 0);
	assert_int_equal(make_qp(&s, &player[1], leg.leg), 0);
	assert_true(requests_timer(s.requests) == UINT64_MAX);
	wait_near_end(&s, 1);
	assert_non_null(living(&s, leg.leg));
	leave(&s, 1);
	assert_non_null(living(&s, leg.leg));
	wait_near_end(&s, 1);
	assert_null(living(&s, leg.leg));
	assert_true(requests_timer(s.requests) == UINT64_MAX);
	scene_end(&s);
}

/* The worker sees the end of a connection after the program's next one. */
static void test_last_connection_of_a_program_owns_its_leg(void **state)
{
	struct srdma_ctl_restrict kept, brief;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	leg = connected_leg_of(&s, 0);
	assert_int_equal(restricted(&s, 1, &kept), 0);
	assert_int_equal(attach(&s, &player[1], leg.token), 0);
	leave(&s, 0);
	assert_true(requests_timer(s.requests) == UINT64_MAX);
	wait_near_end(&s, 1);
	assert_non_null(living(&s, leg.leg));
	leave(&s, 1);
	assert_true(requests_timer(s.requests) != UINT64_MAX);
	/* the keep of the owner is that of the leg */
	brief = kept;
	brief.keep = 0;
	assert_int_equal(restricted(&s, 2, &brief), 0);
	assert_int_equal(attach(&s, &player[2], leg.token), 0);
	assert_non_null(living(&s, leg.leg));
	leave(&s, 2);
	assert_null(living(&s, leg.leg));
	scene_end(&s);
}

static void test_leg_that_is_not_kept_stays_with_its_opener(void **state)
{
	struct srdma_ctl_restrict kept = many;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(restricted(&s, 0, &many), 0);
	leg = connected_leg_of(&s, 0);
	kept.keep = KEEP_S;
	assert_int_equal(restricted(&s, 1, &kept), 0);
	assert_int_equal(attach(&s, &player[1], leg.token), 0);
	leave(&s, 1);
	assert_non_null(living(&s, leg.leg));
	leave(&s, 0);
	assert_null(living(&s, leg.leg));
	scene_end(&s);
}

/* Failed attempts to connect a leg would fill the limit of the account. */
static void test_leg_without_a_host_does_not_wait(void **state)
{
	struct srdma_ctl_restrict kept;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	leg = leg_of(&s, 0);
	leave(&s, 0);
	assert_null(living(&s, leg.leg));
	assert_true(requests_timer(s.requests) == UINT64_MAX);
	scene_end(&s);
}

/* The agent, which attaches too, and a program with another account. */
static void test_other_connections_do_not_own_a_leg(void **state)
{
	struct srdma_ctl_restrict kept, other;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	leg = connected_leg_of(&s, 0);
	assert_int_equal(attach(&s, &agent, leg.token), 0);
	leave(&s, 0);
	assert_true(requests_timer(s.requests) != UINT64_MAX);
	assert_int_equal(attach(&s, &agent, leg.token), 0);
	other = kept;
	strcpy(other.account, "uid 8");
	assert_int_equal(restricted(&s, 2, &other), 0);
	assert_int_equal(attach(&s, &player[2], leg.token), EPERM);
	wait_near_end(&s, -1);
	assert_non_null(living(&s, leg.leg));
	requests_leave(s.requests, &agent.client); /* adds no time */
	pair_wait_ms(&s.pair, 20);
	requests_poll(s.requests);
	assert_null(living(&s, leg.leg));
	scene_end(&s);
}

/* The program may notice the end of its connection before the worker does. */
static void test_program_that_was_back_before(void **state)
{
	struct srdma_ctl_restrict kept;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	leg = connected_leg_of(&s, 0);
	for (unsigned i = 1; i <= 2; i++) {
		assert_int_equal(restricted(&s, i, &kept), 0);
		assert_int_equal(attach(&s, &player[i], leg.token), 0);
	}
	leave(&s, 2); /* the owner lives */
	assert_true(requests_timer(s.requests) == UINT64_MAX);
	leave(&s, 0);
	wait_near_end(&s, 1);
	assert_non_null(living(&s, leg.leg));
	assert_int_equal(make_qp(&s, &player[1], leg.leg), 0);
	leave(&s, 1);
	wait_near_end(&s, 1);
	assert_null(living(&s, leg.leg));
	scene_end(&s);
}

/* A leg without an owner is charged to its account, whose place stays taken. */
static void test_account_of_a_leg_that_waits(void **state)
{
	struct srdma_ctl_restrict kept, other;
	struct srdma_ctl_open_answer leg;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	kept.legs = 1;
	leg = connected_leg_of(&s, 0);
	leave(&s, 0);
	other = kept;
	strcpy(other.account, "uid 8");
	assert_int_equal(restricted(&s, 1, &other), 0);
	connected_leg_of(&s, 1);
	assert_int_equal(restricted(&s, 2, &kept), 0);
	assert_int_equal(open_leg(&s, &player[2]), EDQUOT);
	player_says(&player[2], "uid 7 has 1 of at most 1 legs");
	wait_near_end(&s, 1);
	pair_run(&s.pair, 3);
	assert_int_equal(open_leg(&s, &player[2]), 0);
	assert_null(living(&s, leg.leg));
	leave(&s, 1);
	leave(&s, 2);
	wait_near_end(&s, 1);
	pair_run(&s.pair, 3);
	assert_null(next_program(&s));
	scene_end(&s);
}

/* A leg that ended is not kept, whether its connection ends before or after. */
static void test_end_of_a_leg_that_waits(void **state)
{
	struct srdma_ctl_restrict kept;
	struct scene s;

	(void)state;
	begin_kept(&s, &kept);
	for (int first = 0; first < 2; first++) {
		struct srdma_ctl_open_answer leg = connected_leg_of(&s, 0);

		if (first)
			leave(&s, 0);
		srdma_relay_leg_close(living(&s, leg.leg));
		if (!first)
			leave(&s, 0);
		requests_poll(s.requests);
		assert_true(requests_timer(s.requests) == UINT64_MAX);
		assert_int_equal(restricted(&s, 0, &kept), 0);
	}
	scene_end(&s);
}

/* Over shared memory nothing else shows that the program lives. */
static void test_leg_over_shared_memory_does_not_wait(void **state)
{
	struct srdma_ctl_restrict kept = many;
	struct srdma_ctl_open_answer leg;
	struct srdma_port shm;
	struct scene s;

	(void)state;
	begin(&s);
	kept.keep = SRDMA_CTL_KEEP_LEGS_MAX;
	shm = *s.pair.side[0].host;
	shm.kind = SRDMA_PORT_SHM;
	s.requests->p.host = &shm;
	assert_int_equal(restricted(&s, 0, &kept), 0);
	s.requests->p.host = s.pair.side[0].host;
	leg = connected_leg_of(&s, 0);
	leave(&s, 0);
	assert_null(living(&s, leg.leg));
	kept.keep++;
	assert_int_equal(restricted(&s, 0, &kept), EINVAL);
	player_says(&player[0], "legs kept for 301 s: give at most 300");
	scene_end(&s);
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
		cmocka_unit_test(test_leg_waits_for_its_program),
		cmocka_unit_test(
			test_last_connection_of_a_program_owns_its_leg),
		cmocka_unit_test(
			test_leg_that_is_not_kept_stays_with_its_opener),
		cmocka_unit_test(test_leg_without_a_host_does_not_wait),
		cmocka_unit_test(test_other_connections_do_not_own_a_leg),
		cmocka_unit_test(test_program_that_was_back_before),
		cmocka_unit_test(test_account_of_a_leg_that_waits),
		cmocka_unit_test(test_end_of_a_leg_that_waits),
		cmocka_unit_test(test_leg_over_shared_memory_does_not_wait),
	};

	log_set_level(LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
