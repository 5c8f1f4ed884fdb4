/*
 * QUOTA, USAGE and QPS (docs/local-interface.md 3.10), and the accounts of
 * control connections.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "log.h"
#include "support/players.h"

enum { UID = 1000, OWNER = 9, RING = 64 };

/* Players: the agent, and programs of two processes. */
static struct player agent, one, two;

static uint32_t join(struct scene *s, struct player *p)
{
	struct answer refusal;
	int rc = requests_join(s->requests, &p->client, &refusal);

	memset(&p->last, 0, sizeof(p->last));
	if (rc == 0)
		return 0;
	assert_int_equal(srdma_ctl_decode(&p->last, SRDMA_CTL_ANSWER,
					  refusal.data, refusal.len),
			 0);
	assert_int_equal(p->last.kind, SRDMA_CTL_HELLO);
	assert_int_equal(p->last.tag, 0);
	assert_int_equal(p->last.status, -rc);
	return p->last.status;
}

static void begin(struct scene *s)
{
	scene_begin(s, OWNER, UID, 0);
	agent = player_make(0, 100, UID);
	one = player_make(1, 101, UID);
	two = player_make(2, 102, UID);
	assert_int_equal(join(s, &agent), 0);
	assert_int_equal(join(s, &one), 0);
	assert_int_equal(join(s, &two), 0);
	assert_int_equal(ask_agent(s, &agent), 0);
}

static struct srdma_ctl_msg quota(uint32_t kind, const char *name)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_QUOTA,
				   .quota.kind = kind };

	snprintf(m.quota.name, sizeof(m.quota.name), "%s", name);
	memset(m.quota.quotas, 0xff, SRDMA_RESOURCES * SRDMA_CTL_QUOTA_LEN);
	return m;
}

static void set(struct srdma_ctl_msg *m, enum srdma_resource r,
		uint64_t minimum, uint64_t limit)
{
	srdma_store64(m->quota.quotas + r * SRDMA_CTL_QUOTA_LEN, minimum);
	srdma_store64(m->quota.quotas + r * SRDMA_CTL_QUOTA_LEN + 8, limit);
}

static uint32_t open_leg(struct scene *s, struct player *p)
{
	return ask(s, p,
		   &(struct srdma_ctl_msg){ .kind = SRDMA_CTL_OPEN,
					    .open.ring = RING });
}

/* The account with this name is the player's last answer. */
static const uint8_t *usage_of(struct scene *s, const char *name,
			       enum srdma_resource r)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_USAGE };

	do {
		assert_int_equal(ask(s, &agent, &m), 0);
		m.after = agent.last.usage.serial;
	} while (strcmp(agent.last.usage.name, name) != 0);
	return agent.last.usage.usages + r * SRDMA_CTL_USAGE_LEN;
}

/* --- rights ---------------------------------------------------------------- */

static void test_quota_is_the_agents(void **state)
{
	struct srdma_ctl_msg m = quota(SRDMA_ACCOUNT_PROCESS, "");
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(ask(&s, &one, &m), EPERM);
	player_says(&one, "QUOTA without the role AGENT");
	/* Nor for an agent of some legs only. */
	assert_int_equal(ask(&s, &two,
			     &(struct srdma_ctl_msg){
				     .kind = SRDMA_CTL_AGENT,
				     .agent.flags = SRDMA_CTL_AGENT_ATTACHED }),
			 EBUSY);
	two.client.pid = agent.client.pid;
	assert_int_equal(ask(&s, &two,
			     &(struct srdma_ctl_msg){
				     .kind = SRDMA_CTL_AGENT,
				     .agent.flags = SRDMA_CTL_AGENT_ATTACHED }),
			 0);
	assert_int_equal(ask(&s, &two, &m), EPERM);
	scene_end(&s);
}

/* Clients of another PID namespace have no PID here. They are not merged. */
static void test_clients_without_a_pid_have_accounts_of_their_own(void **state)
{
	struct player far[2];
	struct scene s;

	(void)state;
	begin(&s);
	for (unsigned i = 0; i < 2; i++) {
		far[i] = player_make(7 + i, 0, UID);
		assert_int_equal(join(&s, &far[i]), 0);
	}
	assert_ptr_not_equal(far[0].client.account, far[1].client.account);
	assert_string_equal(srdma_account_name(far[1].client.account),
			    "connection 8 of user 1000");
	scene_end(&s);
}

/* --- QUOTA ----------------------------------------------------------------- */

static void test_illegal_quotas(void **state)
{
	struct srdma_ctl_msg m;
	struct scene s;

	(void)state;
	begin(&s);
	m = quota(0, "a");
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	player_says(&agent, "kind 0 for \"a\"");
	m = quota(SRDMA_ACCOUNT_KINDS, "a");
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	m = quota(SRDMA_ACCOUNT_PROCESS, "a");
	m.quota.flags = 2;
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	player_says(&agent, "flags 0x2");
	m = quota(SRDMA_ACCOUNT_GROUP, "a");
	set(&m, SRDMA_RES_QPS, 1, 2);
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	player_says(&agent, "has no minima");
	m = quota(SRDMA_ACCOUNT_PROCESS, "a");
	set(&m, SRDMA_RES_QPS, 3, 2);
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	m = quota(SRDMA_ACCOUNT_PROCESS, "a");
	set(&m, SRDMA_RESOURCES, 0, 1);
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	player_says(&agent, "this worker has 13");
	set(&m, SRDMA_RESOURCES, UINT64_MAX, 1);
	assert_int_equal(ask(&s, &agent, &m), EINVAL);
	for (int i = 0; i < SRDMA_LEDGER_QUOTAS; i++) {
		char name[16];

		snprintf(name, sizeof(name), "%d", i);
		m = quota(SRDMA_ACCOUNT_IDENTITY, name);
		assert_int_equal(ask(&s, &agent, &m), 0);
	}
	m = quota(SRDMA_ACCOUNT_IDENTITY, "more");
	assert_int_equal(ask(&s, &agent, &m), EDQUOT);
	player_says(&agent, "limit of 1024 quotas");
	scene_end(&s);
}

/* RFC 5042 R3-4 */
static void test_a_quota_holds_for_its_account(void **state)
{
	struct srdma_ctl_msg m =
		quota(SRDMA_ACCOUNT_PROCESS, "process 101 of user 1000");
	struct scene s;

	(void)state;
	begin(&s);
	set(&m, SRDMA_RES_LEGS, 0, 1);
	m.quota.revision = 1;
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(open_leg(&s, &one), 0);
	assert_int_equal(open_leg(&s, &one), EDQUOT);
	player_says(&one, "process 101 of user 1000 has 1 of at most 1 legs");
	assert_int_equal(open_leg(&s, &two), 0);
	assert_int_equal(open_leg(&s, &two), 0);
	/* Another policy without it. */
	m = quota(SRDMA_ACCOUNT_IDENTITY, "spiffe://x/a");
	m.quota.revision = 2;
	m.quota.flags = SRDMA_CTL_QUOTA_LAST;
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(open_leg(&s, &one), 0);
	scene_end(&s);
}

/* The message of an agent that knows connections and legs only. */
static void test_an_older_agent_leaves_the_resources_it_lacks(void **state)
{
	struct srdma_ctl_msg m =
		quota(SRDMA_ACCOUNT_PROCESS, "process 101 of user 1000");
	struct srdma_ctl_msg kind = quota(SRDMA_ACCOUNT_PROCESS, "");
	const uint8_t *usage;
	struct scene s;

	(void)state;
	begin(&s);
	set(&kind, SRDMA_RES_QPS, 2, 9);
	assert_int_equal(ask(&s, &agent, &kind), 0);
	set(&m, SRDMA_RES_LEGS, 1, 1);
	for (int r = SRDMA_RES_QPS; r < SRDMA_RESOURCES; r++)
		set(&m, (enum srdma_resource)r, 0, 0);
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(open_leg(&s, &one), 0); /* it charges records too */
	assert_int_equal(open_leg(&s, &one), EDQUOT);
	usage = usage_of(&s, "process 101 of user 1000", SRDMA_RES_QPS);
	assert_int_equal(srdma_load64(usage + 8), 2);
	assert_int_equal(srdma_load64(usage + 16), 9);
	scene_end(&s);
}

static void test_a_limit_of_zero_permits_nothing(void **state)
{
	struct srdma_ctl_msg m =
		quota(SRDMA_ACCOUNT_PROCESS, "process 101 of user 1000");
	struct scene s;

	(void)state;
	begin(&s);
	set(&m, SRDMA_RES_LEGS, UINT64_MAX, 0);
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(open_leg(&s, &one), EDQUOT);
	player_says(&one, "has 0 of at most 0 legs");
	scene_end(&s);
}

/* Nothing is given for a resource that the worker lacks. */
static void test_a_newer_agent_without_a_value_is_accepted(void **state)
{
	struct srdma_ctl_msg m = quota(SRDMA_ACCOUNT_PROCESS, "");
	struct scene s;

	(void)state;
	begin(&s);
	memset(m.quota.quotas, 0xff, sizeof(m.quota.quotas));
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(open_leg(&s, &one), 0);
	scene_end(&s);
}

/* The processes of a user are a group (A41: by the number of processes). */
static void test_a_limit_of_a_user_counts_all_its_processes(void **state)
{
	struct srdma_ctl_msg m = quota(SRDMA_ACCOUNT_GROUP, "user 1000");
	struct player other = player_make(3, 103, 2000);
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(join(&s, &other), 0);
	set(&m, SRDMA_RES_LEGS, 0, 2);
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(open_leg(&s, &one), 0);
	assert_int_equal(open_leg(&s, &two), 0);
	assert_int_equal(open_leg(&s, &two), EDQUOT);
	player_says(&two, "user 1000 has 2 of at most 2 legs");
	for (int i = 0; i < 3; i++)
		assert_int_equal(open_leg(&s, &other), 0);
	scene_end(&s);
}

/* --- connections ----------------------------------------------------------- */

static void test_connections_beyond_the_limit_get_a_text(void **state)
{
	struct srdma_ctl_msg m = quota(SRDMA_ACCOUNT_PROCESS, "");
	struct player more = player_make(3, 101, UID),
		      last = player_make(4, 101, UID),
		      other = player_make(5, 105, UID);
	struct scene s;

	(void)state;
	begin(&s);
	set(&m, SRDMA_RES_CONNECTIONS, 0, 2);
	assert_int_equal(ask(&s, &agent, &m), 0);
	assert_int_equal(join(&s, &more), 0);
	assert_int_equal(join(&s, &last), EDQUOT);
	player_says(&last, "process 101 of user 1000 has 2 of at most 2 "
			   "control connections");
	assert_null(last.client.account);
	assert_int_equal(join(&s, &other), 0);
	requests_leave(s.requests, &one.client);
	assert_int_equal(join(&s, &last), 0);
	scene_end(&s);
}

static void test_restrict_moves_the_connection_to_its_account(void **state)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESTRICT,
				   .restrict_ = { 2, 2, 2, 2, 4096, "uid 7", 0,
						  "host h" } };
	struct player moved = player_make(3, 100, UID);
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(join(&s, &moved), 0);
	assert_int_equal(ask_agent(&s, &moved), 0);
	assert_int_equal(srdma_load64(usage_of(&s, "process 100 of user 1000",
					       SRDMA_RES_CONNECTIONS)),
			 2);
	assert_int_equal(ask(&s, &moved, &m), 0);
	assert_int_equal(srdma_load64(usage_of(&s, "process 100 of user 1000",
					       SRDMA_RES_CONNECTIONS)),
			 1);
	assert_int_equal(
		srdma_load64(usage_of(&s, "host h", SRDMA_RES_CONNECTIONS)), 1);
	assert_int_equal(
		srdma_load64(usage_of(&s, "uid 7", SRDMA_RES_CONNECTIONS)), 1);
	assert_string_equal(agent.last.usage.group, "host h");
	assert_int_equal(agent.last.usage.kind, SRDMA_ACCOUNT_PROGRAM);
	scene_end(&s);
}

/* The root of a host can name any number of users. */
static void test_a_group_bounds_all_its_programs(void **state)
{
	struct srdma_ctl_msg limit = quota(SRDMA_ACCOUNT_GROUP, "host h");
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESTRICT,
				   .restrict_ = { 9, 9, 9, 9, 4096, "", 0,
						  "host h" } };
	struct player p[4];
	struct scene s;

	(void)state;
	begin(&s);
	set(&limit, SRDMA_RES_CONNECTIONS, 0, 2);
	assert_int_equal(ask(&s, &agent, &limit), 0);
	for (unsigned i = 0; i < 4; i++) {
		p[i] = player_make(3 + i, 100, UID);
		assert_int_equal(join(&s, &p[i]), 0);
		assert_int_equal(ask_agent(&s, &p[i]), 0);
		snprintf(m.restrict_.account, sizeof(m.restrict_.account),
			 "user %u of host h", i);
		if (i == 3)
			strcpy(m.restrict_.group, "host other");
		assert_int_equal(ask(&s, &p[i], &m), i == 2 ? EDQUOT : 0);
		if (i == 2)
			player_says(&p[i], "host h has 2 of at most 2 control");
	}
	scene_end(&s);
}

/* --- USAGE and QPS --------------------------------------------------------- */

static void test_usage_ends_with_the_last_account(void **state)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_USAGE };
	unsigned n = 0;
	struct scene s;

	(void)state;
	begin(&s);
	while (ask(&s, &agent, &m) == 0) {
		assert_true(agent.last.usage.serial > m.after);
		m.after = agent.last.usage.serial;
		n++;
	}
	assert_int_equal(agent.last.status, ENOENT);
	/* Three processes and their user; the peer, and the leg of the scene.
	 */
	assert_int_equal(n, 6);
	scene_end(&s);
}

static void test_usage_counts_refusals(void **state)
{
	struct srdma_ctl_msg m = quota(SRDMA_ACCOUNT_PROCESS, "");
	const char *name = "process 101 of user 1000";
	const uint8_t *at;
	struct scene s;

	(void)state;
	begin(&s);
	set(&m, SRDMA_RES_LEGS, 1, 1);
	m.quota.idle = 5;
	assert_int_equal(ask(&s, &agent, &m), 0);
	open_leg(&s, &one);
	open_leg(&s, &one);
	open_leg(&s, &one);
	at = usage_of(&s, name, SRDMA_RES_LEGS);
	assert_int_equal(srdma_load64(at), 1);
	assert_int_equal(srdma_load64(at + 8), 1);
	assert_int_equal(srdma_load64(at + 16), 1);
	assert_int_equal(srdma_load64(at + 24), 2);
	assert_int_equal(agent.last.usage.idle, 5);
	assert_string_equal(agent.last.usage.group, "user 1000");
	scene_end(&s);
}

/* QPs that `p` sees, by QPS. */
static unsigned count_qps(struct scene *s, struct player *p)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_QPS };
	unsigned n = 0;

	while (ask(s, p, &m) == 0) {
		m.after = p->last.qps.next;
		n += p->last.qps.qpn != 0;
	}
	assert_int_equal(p->last.status, ENOENT);
	return n;
}

/* A connection of this account: a program of another user. */
static void restrict_to(struct scene *s, struct player *p, const char *account)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_RESTRICT,
				   .restrict_ = { .connections = 9,
						  .legs = 9,
						  .qps = 9,
						  .regions = 9,
						  .bytes = 1 << 20 } };

	*p = player_make(3, 100, UID);
	assert_int_equal(join(s, p), 0);
	assert_int_equal(ask_agent(s, p), 0);
	strcpy(m.restrict_.account, account);
	assert_int_equal(ask(s, p, &m), 0);
}

static void test_a_restricted_connection_sees_no_other_account(void **state)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_USAGE };
	struct player stranger;
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(ask(&s, &one, &m), 0);
	restrict_to(&s, &stranger, "uid 7");
	assert_int_equal(ask(&s, &stranger, &m), EPERM);
	player_says(&stranger, "USAGE on a restricted connection");
	scene_end(&s);
}

static void test_qps_are_those_that_a_connection_may_see(void **state)
{
	struct player stranger;
	struct srdma_ctl_msg init = { .kind = SRDMA_CTL_INIT,
				      .init.qp = { .sq = 1, .rq = 1 } };
	struct scene s;

	(void)state;
	begin(&s);
	assert_int_equal(open_leg(&s, &one), 0);
	init.init.leg = one.last.opened.leg;
	assert_int_equal(ask(&s, &one, &init), 0);
	assert_int_equal(ask(&s, &one, &init), 0);
	restrict_to(&s, &stranger, "uid 7");
	assert_int_equal(count_qps(&s, &stranger), 0);
	assert_int_equal(open_leg(&s, &stranger), 0);
	init.init.leg = stranger.last.opened.leg;
	assert_int_equal(ask(&s, &stranger, &init), 0);
	assert_int_equal(count_qps(&s, &stranger), 1);
	assert_int_equal(count_qps(&s, &two), 4);
	assert_int_equal(count_qps(&s, &agent), 4);
	scene_end(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quota_is_the_agents),
		cmocka_unit_test(test_illegal_quotas),
		cmocka_unit_test(
			test_an_older_agent_leaves_the_resources_it_lacks),
		cmocka_unit_test(test_a_limit_of_zero_permits_nothing),
		cmocka_unit_test(
			test_a_newer_agent_without_a_value_is_accepted),
		cmocka_unit_test(test_a_quota_holds_for_its_account),
		cmocka_unit_test(
			test_a_limit_of_a_user_counts_all_its_processes),
		cmocka_unit_test(test_connections_beyond_the_limit_get_a_text),
		cmocka_unit_test(
			test_restrict_moves_the_connection_to_its_account),
		cmocka_unit_test(test_a_group_bounds_all_its_programs),
		cmocka_unit_test(
			test_clients_without_a_pid_have_accounts_of_their_own),
		cmocka_unit_test(test_usage_ends_with_the_last_account),
		cmocka_unit_test(test_usage_counts_refusals),
		cmocka_unit_test(
			test_a_restricted_connection_sees_no_other_account),
		cmocka_unit_test(test_qps_are_those_that_a_connection_may_see),
	};

	log_set_level(LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
