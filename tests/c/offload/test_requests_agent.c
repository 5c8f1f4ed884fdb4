/*
 * The role AGENT (docs/local-interface.md 3.8): the connections that may take
 * it, the requests that it reserves, and the legs that it may use.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "support/players.h"

enum {
	OWN_UID = 1000, /* of the worker */
	AGENT_UID = 990,
	OTHER_UID = 1001,
	OWNER = 1, /* connection that opened the leg */
	OTHER = 2, /* connections that use no leg */
	ANOTHER = 3,
};

static struct player owner, other, another;

static void begin(struct scene *s, int agent_only)
{
	scene_begin(s, OWNER, agent_only ? AGENT_UID : OWN_UID, agent_only);
	owner = player_make(OWNER, 100 + OWNER, OWN_UID);
	other = player_make(OTHER, 100 + OTHER,
			    agent_only ? AGENT_UID : OWN_UID);
	another = player_make(ANOTHER, 100 + ANOTHER, 0);
}

/* --- the role --------------------------------------------------------------- */

/* RFC 5042 R6.5-1 */
static void test_users_that_may_be_the_agent(void **state)
{
	static const struct {
		int agent_only;
		uint32_t uid, status;
	} rows[] = {
		{ 0, OWN_UID, 0 },	 { 0, 0, 0 },
		{ 0, AGENT_UID, EPERM }, { 0, OTHER_UID, EPERM },
		{ 1, AGENT_UID, 0 },	 { 1, 0, 0 },
		{ 1, OWN_UID, EPERM },	 { 1, OTHER_UID, EPERM },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct scene s;

		begin(&s, rows[i].agent_only);
		other.client.uid = rows[i].uid;
		assert_int_equal(ask_agent(&s, &other), rows[i].status);
		if (rows[i].status)
			player_says(&other, "or root");
		assert_int_equal(s.requests->agents, !rows[i].status);
		scene_end(&s);
	}
}

/* Until its last connection ends, no other process becomes the agent. */
/* RFC 5042 A6.5b */
static void test_one_process_is_the_agent(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, 0);
	assert_int_equal(ask_agent(&s, &other), 0);
	assert_int_equal(ask_agent(&s, &other), 0);
	assert_int_equal(s.requests->agents, 1);
	assert_int_equal(ask_agent(&s, &another), EBUSY);
	player_says(&another, "process 102 is the agent");
	requests_leave(s.requests, &another.client);
	assert_int_equal(ask_agent(&s, &another), EBUSY);
	/* another connection of the same process */
	owner.client.pid = other.client.pid;
	assert_int_equal(ask_agent(&s, &owner), 0);
	requests_leave(s.requests, &other.client);
	assert_int_equal(ask_agent(&s, &another), EBUSY);
	requests_leave(s.requests, &owner.client);
	assert_int_equal(s.requests->agents, 0);
	assert_int_equal(ask_agent(&s, &another), 0);
	scene_end(&s);
}

/* --- requests of the agent ---------------------------------------------------- */

/* The requests that the agent alone may send. The status is that of an accepted
 * request, which may be refused for another reason. */
static unsigned request_of_agent(const struct scene *s, unsigned i,
				 struct srdma_ctl_msg *m, uint32_t *status)
{
	const uint32_t leg = srdma_relay_leg_id(s->pair.side[0].leg);
	const uint32_t qpn = s->pair.side[0].qp[0].qpn;
	const struct {
		struct srdma_ctl_msg m;
		uint32_t status;
	} rows[] = {
		{ { .kind = SRDMA_CTL_KEYS, .keys.qp.qpn = qpn }, EISCONN },
		{ { .kind = SRDMA_CTL_KEY,
		    .secret = { .qpn = qpn, .secret_len = 16, .peer_qpn = 1 } },
		  EISCONN },
		{ { .kind = SRDMA_CTL_REKEY, .rekey.qpn = qpn }, 0 },
		{ { .kind = SRDMA_CTL_ROTATE, .rotate.leg = leg }, 0 },
		{ { .kind = SRDMA_CTL_PROVE, .prove.qpn = qpn }, 0 },
		{ { .kind = SRDMA_CTL_LIFE,
		    .life = { .qpn = qpn, .seconds = 100 } },
		  0 },
		{ { .kind = SRDMA_CTL_KEEP, .keep = { .n = 1, .len = 1 } }, 0 },
		{ { .kind = SRDMA_CTL_ADOPT }, 0 },
		{ { .kind = SRDMA_CTL_END, .end = { .qpn = qpn } }, EINVAL },
		{ { .kind = SRDMA_CTL_EXPIRE, .qpn = qpn }, 0 },
	};

	if (i == sizeof(rows) / sizeof(*rows))
		return 0;
	*m = rows[i].m;
	if (m->kind == SRDMA_CTL_KEEP)
		for (int n = 0; n < 4; n++)
			m->keep.qpns[n] = (uint8_t)(qpn >> (24 - 8 * n));
	*status = rows[i].status;
	return 1;
}

static int needs_role(const struct srdma_ctl_msg *m)
{
	return m->kind == SRDMA_CTL_KEEP || m->kind == SRDMA_CTL_ADOPT;
}

/* Every request of the list is refused, and nothing changes. */
static void refused(struct scene *s, struct player *p)
{
	struct srdma_ctl_msg m;
	uint32_t status;

	for (unsigned i = 0; request_of_agent(s, i, &m, &status); i++) {
		assert_int_equal(ask(s, p, &m), EPERM);
		player_says(p, needs_role(&m)
				       ? "without the role AGENT"
				       : "from the agent of this worker only");
	}
	assert_int_equal(pair_state(&s->pair, 0, 0, NULL), SRDMA_QP_RTS);
}

/* Every request of the list is accepted but those of the role. */
static void accepted(struct scene *s, struct player *p, int has_role)
{
	struct srdma_ctl_msg m;
	uint32_t status;

	for (unsigned i = 0; request_of_agent(s, i, &m, &status); i++)
		assert_int_equal(ask(s, p, &m),
				 needs_role(&m) && !has_role ? EPERM : status);
	assert_int_equal(pair_state(&s->pair, 0, 0, NULL), SRDMA_QP_ERR);
}

static void test_requests_without_an_agent(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, 0);
	accepted(&s, &owner, 0);
	scene_end(&s);
}

/* RFC 5042 R3-1 */
static void test_requests_reserved_by_an_agent(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, 0);
	assert_int_equal(ask_agent(&s, &other), 0);
	refused(&s, &owner);
	refused(&s, &another); /* root has no privilege here */
	/* they are free again when the agent has ended */
	requests_leave(s.requests, &other.client);
	accepted(&s, &owner, 0);
	scene_end(&s);
}

static void test_requests_reserved_by_the_option(void **state)
{
	struct scene s;

	(void)state;
	begin(&s, 1);
	refused(&s, &owner);
	refused(&s, &other);
	assert_int_equal(ask_agent(&s, &other), 0);
	refused(&s, &owner);
	requests_leave(s.requests, &other.client);
	refused(&s, &owner);
	scene_end(&s);
}

/* The agent uses legs without ATTACH, and QPs of any leg. */
static void test_agent_uses_every_leg(void **state)
{
	for (int agent_only = 0; agent_only < 2; agent_only++) {
		struct srdma_ctl_msg wait = { .kind = SRDMA_CTL_WAIT };
		struct scene s;

		(void)state;
		begin(&s, agent_only);
		wait.qpn = s.pair.side[0].qp[0].qpn;
		assert_int_equal(ask(&s, &other, &wait), EPERM);
		assert_int_equal(ask_agent(&s, &other), 0);
		assert_int_equal(ask(&s, &other, &wait), 0);
		accepted(&s, &other, 1);
		scene_end(&s);
	}
}

/* A later connection with the number of the agent's has no rights of it, and
 * the end of the agent ends no leg. */
static void test_rights_end_with_the_connection(void **state)
{
	struct srdma_ctl_msg wait = { .kind = SRDMA_CTL_WAIT };
	struct scene s;

	(void)state;
	begin(&s, 0);
	wait.qpn = s.pair.side[0].qp[0].qpn;
	assert_int_equal(ask_agent(&s, &other), 0);
	requests_leave(s.requests, &other.client);
	assert_int_equal(ask(&s, &owner, &wait), 0);
	other = player_make(OTHER, 100 + OTHER, OWN_UID);
	assert_int_equal(ask(&s, &other, &wait), EPERM);
	player_says(&other, "of this connection");
	scene_end(&s);
}

/* The requests of programs are theirs while there is an agent too. */
static void test_programs_keep_their_requests(void **state)
{
	struct scene s;
	const struct srdma_ctl_msg *m;
	struct srdma_ctl_msg rows[5];

	(void)state;
	begin(&s, 1);
	assert_int_equal(ask_agent(&s, &other), 0);
	memset(rows, 0, sizeof(rows));
	rows[0] = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_STATS };
	rows[1] = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_HELLO,
					  .version = SRDMA_CTL_VERSION };
	rows[2] = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_WAIT,
					  .qpn = s.pair.side[0].qp[0].qpn };
	rows[3] = (struct srdma_ctl_msg){
		.kind = SRDMA_CTL_INIT,
		.init = { .leg = srdma_relay_leg_id(s.pair.side[0].leg),
			  .qp = { .sq = 1, .rq = 1 } }
	};
	rows[4] = (struct srdma_ctl_msg){ .kind = SRDMA_CTL_DEREG_MR };
	rows[4].dereg_mr.leg = srdma_relay_leg_id(s.pair.side[0].leg);
	rows[4].dereg_mr.key = s.pair.side[0].key;
	for (m = rows; m < rows + 5; m++)
		assert_int_equal(ask(&s, &owner, m), 0);
	scene_end(&s);
}

/* --- KEEP, ADOPT ------------------------------------------------------------- */

static void test_agent_adopts_what_the_former_one_kept(void **state)
{
	struct srdma_ctl_msg keep = { .kind = SRDMA_CTL_KEEP };
	struct srdma_ctl_msg adopt = { .kind = SRDMA_CTL_ADOPT };
	const struct srdma_qp_info *own, *peer;
	const struct srdma_ctl_adopt_answer *a;
	struct scene s;

	(void)state;
	begin(&s, 0);
	own = &s.pair.side[0].qp[0];
	peer = &s.pair.side[1].qp[0];
	keep.keep.n = 2;
	keep.keep.len = 9;
	memcpy(keep.keep.data, "kept data", 9);
	for (int n = 0; n < 4; n++)
		keep.keep.qpns[4 + n] = (uint8_t)(own->qpn >> (24 - 8 * n));
	assert_int_equal(ask_agent(&s, &other), 0);
	assert_int_equal(ask(&s, &other, &keep), 0);
	requests_leave(s.requests, &other.client);
	assert_int_equal(ask_agent(&s, &another), 0);
	assert_int_equal(ask(&s, &another, &adopt), 0);
	a = &another.last.adopted;
	assert_int_equal(a->serial, 1);
	assert_int_equal(a->leg, srdma_relay_leg_id(s.pair.side[0].leg));
	assert_int_equal(a->n, 1);
	assert_int_equal(a->len, 9);
	assert_memory_equal(a->data, "kept data", 10);
	assert_int_equal(a->qps[0], 0);
	assert_int_equal(a->qps[1] << 16 | a->qps[2] << 8 | a->qps[3],
			 own->qpn);
	assert_int_equal(a->qps[4], 1); /* its place in KEEP */
	assert_int_equal(a->qps[5] << 16 | a->qps[6] << 8 | a->qps[7],
			 peer->qpn);
	assert_memory_equal(a->qps + 8, peer->eid, SRDMA_EID_LEN);
	adopt.after = 1;
	assert_int_equal(ask(&s, &another, &adopt), ENOENT);
	scene_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_users_that_may_be_the_agent),
		cmocka_unit_test(test_one_process_is_the_agent),
		cmocka_unit_test(test_requests_without_an_agent),
		cmocka_unit_test(test_requests_reserved_by_an_agent),
		cmocka_unit_test(test_requests_reserved_by_the_option),
		cmocka_unit_test(test_agent_uses_every_leg),
		cmocka_unit_test(test_rights_end_with_the_connection),
		cmocka_unit_test(test_programs_keep_their_requests),
		cmocka_unit_test(test_agent_adopts_what_the_former_one_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
