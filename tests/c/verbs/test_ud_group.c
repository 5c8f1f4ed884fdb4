/* Multicast groups of a UD QP (verbs/ud_group.c), with an agent of the test. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "host/error.h"
#include "host/talk.h"
#include "ud_subject.h"

enum {
	QPN = 5,
	EVENTS = 8,
	AGAIN_MS = 1000,
	JOIN_MS = 10000,
	IN_USE_MS = 10000, /* a group, after a message */
};

static const uint8_t group[SRDMA_GID_LEN] = { 0xff, 7 };
static const uint8_t host[SRDMA_GID_LEN] = { 1 }, other[SRDMA_GID_LEN] = { 2 };
static struct srdma_agent_event events[EVENTS]; /* that the agent says next */
static unsigned n_events;
static unsigned opened, watched;
static int channels;		/* that live */
static int member;		/* of the last channel */
static int opens, watches;	/* -errno: the step fails */
static int64_t passes;		/* ms, with each look at a channel */
static void (*meanwhile)(void); /* what another thread does */

/* --- the agent --------------------------------------------------------------------- */

int srdma_talk_group(struct srdma_channel **out,
		     const struct srdma_talk_self *self,
		     const struct srdma_talk_group *what)
{
	assert_ptr_equal(self->agent, &s.device.agent);
	assert_string_equal(self->identity, "me");
	assert_int_equal(self->n_peers, 3);
	assert_string_equal(self->peers[2], "third");
	assert_int_equal(what->qp_num, QPN);
	assert_ptr_equal(what->token, s.leg.token);
	member = what->member;
	opened++;
	*out = NULL;
	if (opens)
		return srdma_error_set(opens, "no agent");
	*out = malloc(1);
	channels++;
	return 0;
}

int srdma_channel_next(struct srdma_channel *c, struct srdma_agent_event *e,
		       int64_t deadline)
{
	assert_non_null(c);
	assert_int_equal(deadline, 0);
	now += passes;
	if (!n_events)
		return -ETIMEDOUT;
	*e = events[0];
	memmove(events, events + 1, --n_events * sizeof(*events));
	return strcmp(e->event, "end") == 0
		       ? srdma_error_set(-ECONNRESET, "it has ended")
		       : 0;
}

int srdma_channel_error(const struct srdma_agent_event *e)
{
	return srdma_error_set(strcmp(e->code, "quota") == 0 ? -EDQUOT : -EPERM,
			       "%s", e->code);
}

int srdma_channel_fd(const struct srdma_channel *c)
{
	assert_non_null(c);
	return 3;
}

void verbs_loop_end(const struct verbs_root *root, struct srdma_channel *c)
{
	assert_ptr_equal(root, &s.root);
	channels -= c != NULL;
	free(c);
}

int verbs_loop_watch(const struct verbs_root *root, int fd)
{
	assert_ptr_equal(root, &s.root);
	assert_int_equal(fd, 3);
	watched++;
	return watches ? -srdma_error_set(watches, "no descriptor") : 0;
}

/* Other threads can take the lock while a call waits. */
int nanosleep(const struct timespec *pause, struct timespec *left)
{
	(void)pause;
	(void)left;
	assert_int_equal(pthread_mutex_trylock(&s.root.lock), 0);
	if (meanwhile)
		meanwhile();
	return pthread_mutex_unlock(&s.root.lock);
}

static struct srdma_agent_event *says(const char *event)
{
	struct srdma_agent_event *e = &events[n_events++];

	assert_true(n_events <= EVENTS);
	*e = (struct srdma_agent_event){ 0 };
	strcpy(e->event, event);
	return e;
}

/* The members at a GID: n QPNs from `first` on. */
static struct srdma_agent_event *says_members(const uint8_t *gid,
					      uint32_t first, unsigned n)
{
	struct srdma_agent_event *e = says("members");

	memcpy(e->gid, gid, sizeof(e->gid));
	for (unsigned i = 0; i < n; i++)
		srdma_store32(e->peer.data + 4 * i, first + i);
	e->peer.data_len = 4 * n;
	return e;
}

/* --- a QP -------------------------------------------------------------------------- */

static int begin(void **state)
{
	(void)state;
	begin_subject(QPN);
	n_events = opened = watched = 0;
	opens = watches = member = 0;
	passes = 1;
	meanwhile = NULL;
	s.policy = (struct verbs_policy){
		.identity = "me",
		.peers = { { .allowed = { "first", "second" }, .n = 2 },
			   { .allowed = { "third" }, .n = 1 } },
		.n = 2,
	};
	memcpy(s.root.attr.gid, host, sizeof(host));
	pthread_mutex_init(&s.root.lock, NULL);
	pthread_mutex_lock(&s.root.lock);
	return 0;
}

static int end(void **state)
{
	(void)state;
	ud_group_drop_all(&s.qp);
	assert_int_equal(channels, 0);
	pthread_mutex_unlock(&s.root.lock);
	return pthread_mutex_destroy(&s.root.lock);
}

static const struct ud_group *to(const char **why)
{
	return ud_group_to(&s.ud, group, why);
}

/* The members that messages go to. */
static void are_members(const uint8_t *gid, uint32_t first, unsigned n)
{
	const char *why;
	const struct ud_group *g = to(&why);

	assert_non_null(g);
	assert_int_equal(g->members.n, n);
	for (unsigned i = 0; i < n; i++) {
		const struct ud_copy *copy = &g->members.copies[i];

		assert_int_equal(copy->member->qp_num, first + i);
		assert_memory_equal(copy->gid, gid, SRDMA_GID_LEN);
	}
}

static void attach(void)
{
	says("joined");
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
}

/* --- tests -------------------------------------------------------------------------- */

/* The call returns when the agent has asked all hosts, without the QP itself. */
static void test_attach(void **state)
{
	(void)state;
	says_members(other, 20, 2);
	says_members(host, QPN, 1);
	attach();
	assert_int_equal(member, 1);
	assert_int_equal(watched, 1);
	assert_true(ud_group_attached(&s.qp, group));
	assert_false(ud_group_attached(&s.qp, other));
	are_members(other, 20, 2);
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0); /* again */
	assert_int_equal(ud_group_use(&s.qp, group, 0), 0);
	assert_int_equal(opened, 1);
	assert_int_equal(ud_group_detach(&s.qp, group), 0);
	assert_int_equal(channels, 0);
	assert_int_equal(ud_group_detach(&s.qp, group), EINVAL);
}

static void test_members_change(void **state)
{
	(void)state;
	says_members(other, 20, 3);
	attach();
	says_members(host, 30, 1);
	says_members(other, 0, 0);
	are_members(host, 30, 1);
	says_members(host, 30, 2);
	ud_group_look(&s.ud);
	are_members(host, 30, 2);
	says_members(host, QPN - 1, 3);
	assert_int_equal(to(&(const char *){ NULL })->members.n, 2);
}

/* As many as 64 hosts can have. */
static void test_many_members(void **state)
{
	const struct ud_members *m;
	uint8_t gid[SRDMA_GID_LEN] = { 3 };

	(void)state;
	attach();
	for (unsigned i = 0; i < 64; i++) {
		gid[1] = (uint8_t)i;
		says_members(gid, 100, 64);
		ud_group_look(&s.ud);
	}
	m = &to(&(const char *){ NULL })->members;
	assert_int_equal(m->n, UD_MEMBERS);
	assert_int_equal(m->left, 64 * 64 - UD_MEMBERS);
}

static void test_attach_that_is_refused(void **state)
{
	(void)state;
	strcpy(says("error")->code, "policy");
	assert_int_equal(ud_group_use(&s.qp, group, 1), EPERM);
	assert_false(ud_group_attached(&s.qp, group));
	assert_int_equal(channels, 0);
	opens = -ENOENT;
	assert_int_equal(ud_group_use(&s.qp, group, 1), ENOENT);
	opens = 0;
	watches = -EMFILE;
	assert_int_equal(ud_group_use(&s.qp, group, 1), EMFILE);
	watches = 0;
	says("end");
	assert_int_equal(ud_group_use(&s.qp, group, 1), ECONNRESET);
	assert_null(s.qp.groups);
}

static void test_agent_that_does_not_answer(void **state)
{
	const int64_t then = now;

	(void)state;
	passes = 100;
	assert_int_equal(ud_group_use(&s.qp, group, 1), ETIMEDOUT);
	assert_true(now - then >= JOIN_MS);
	assert_null(s.qp.groups);
}

static void go_to_reset(void)
{
	meanwhile = NULL;
	s.ud.ready = 0;
	ud_group_pause(&s.qp);
	ud_group_forget(&s.qp);
}

/* The QP goes to RESET while the call waits. */
static void test_other_thread_meanwhile(void **state)
{
	(void)state;
	meanwhile = go_to_reset;
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	assert_true(ud_group_attached(&s.qp, group));
	assert_int_equal(channels, 0);
}

/* The agent learns of the groups when the QP is in RTR. */
static void test_qp_in_reset(void **state)
{
	const char *why;

	(void)state;
	s.ud.ready = 0;
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	assert_null(to(&why)); /* RESET has failed: it is in RTS still */
	assert_int_equal(opened, 0);
	assert_true(ud_group_attached(&s.qp, group));
	s.ud.ready = 1;
	says_members(other, 20, 1);
	says("joined");
	ud_group_look(&s.ud);
	assert_int_equal(opened, 1);
	are_members(other, 20, 1);
	ud_group_pause(&s.qp);
	ud_group_forget(&s.qp);
	assert_int_equal(channels, 0);
	assert_true(ud_group_attached(&s.qp, group));
	assert_null(to(&why));
	assert_int_equal(opened, 2);
	assert_string_equal(why, "the agent has not told the members yet");
}

/* The worker may end while a message goes to one member after the other. */
static void test_qp_that_fails(void **state)
{
	const struct ud_group *g;
	const char *why;

	(void)state;
	says_members(other, 20, 2);
	attach();
	g = to(&why);
	assert_non_null(g);
	ud_group_pause(&s.qp);
	assert_int_equal(channels, 0);
	assert_int_equal(g->members.n, 2);
	assert_int_equal(g->members.copies[1].member->qp_num, 21);
	ud_group_forget(&s.qp);
	assert_int_equal(g->members.n, 0);
	assert_true(ud_group_attached(&s.qp, group));
}

/* Its first message begins to ask, and is dropped. */
static void test_qp_that_sends_only(void **state)
{
	const char *why;

	(void)state;
	assert_null(to(&why));
	assert_string_equal(why, "the agent has not told the members yet");
	assert_int_equal(member, 0);
	assert_false(ud_group_attached(&s.qp, group));
	assert_int_equal(ud_group_detach(&s.qp, group), EINVAL);
	says_members(other, 20, 1);
	are_members(other, 20, 1); /* it may send before `joined` */
	says("joined");
	assert_int_equal(ud_group_use(&s.qp, group, 0), 0);
	assert_int_equal(ud_group_use(&s.qp, group, 0), 0);
	assert_int_equal(opened, 1);
	attach(); /* a member has another channel */
	assert_int_equal(member, 1);
	assert_int_equal(opened, 2);
	assert_int_equal(channels, 1);
}

static void test_agent_that_refuses_a_sender(void **state)
{
	const char *why;

	(void)state;
	strcpy(says("error")->code, "no group");
	assert_null(to(&why));
	assert_string_equal(why, "no group");
	assert_null(to(&why));
	assert_int_equal(opened, 1); /* not again at once */
	now += AGAIN_MS;
	says("joined");
	assert_non_null(to(&why));
	assert_int_equal(opened, 2);
}

/* Messages go to the members that the former agent told, until another one has told
 * them. */
static void test_agent_that_starts_again(void **state)
{
	(void)state;
	says_members(other, 20, 2);
	attach();
	says("end");
	are_members(other, 20, 2);
	now += AGAIN_MS;
	are_members(other, 20, 2);
	assert_int_equal(opened, 2);
	says_members(host, 40, 1);
	says("joined");
	are_members(host, 40, 1);
}

static void test_identity_that_is_withdrawn(void **state)
{
	const char *why;

	(void)state;
	says_members(other, 20, 2);
	attach();
	strcpy(says("error")->code, "policy");
	assert_null(to(&why));
	assert_string_equal(why, "policy");
	assert_true(ud_group_attached(&s.qp, group));
}

static void test_illegal_members(void **state)
{
	static const struct {
		uint32_t first;
		size_t more;
	} cases[] = { { 0, 0 }, { 1 << 24, 0 }, { 7, 1 } };

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		attach();
		says_members(other, cases[i].first, 1)->peer.data_len +=
			cases[i].more;
		ud_group_look(&s.ud);
		assert_int_equal(channels, 0);
		ud_group_drop_all(&s.qp);
	}
}

static void test_unknown_event(void **state)
{
	(void)state;
	says("news");
	attach();
	assert_int_equal(channels, 1);
}

/* Of the groups that the QP only sends to, the one that was used least recently gives
 * way. */
static void test_too_many_groups(void **state)
{
	uint8_t gid[SRDMA_GID_LEN] = { 0xff, 8 };
	const char *why;

	(void)state;
	for (uint8_t i = 0; i < UD_GROUPS; i++) {
		gid[2] = i;
		now++;
		says("joined");
		if (i < 2)
			assert_non_null(ud_group_to(&s.ud, gid, &why));
		else
			assert_int_equal(ud_group_use(&s.qp, gid, 1), 0);
	}
	gid[2] = 0;
	now++;
	assert_non_null(ud_group_to(&s.ud, gid, &why));
	attach();
	assert_int_equal(channels, UD_GROUPS);
	says("joined");
	gid[2] = UD_GROUPS;
	assert_int_equal(ud_group_use(&s.qp, gid, 1), 0);
	gid[2]++;
	assert_int_equal(ud_group_use(&s.qp, gid, 1), ENOMEM);
	assert_null(ud_group_to(&s.ud, gid, &why));
	assert_string_equal(why, "the QP uses too many groups");
	assert_int_equal(channels, UD_GROUPS);
}

/* Messages to one group more than the QP can use do not open channels all the time. */
static void test_messages_to_too_many_groups(void **state)
{
	uint8_t gid[SRDMA_GID_LEN] = { 0xff, 8 };
	const char *why;

	(void)state;
	passes = 0;
	for (uint8_t round = 0; round < 10; round++)
		for (gid[2] = 0; gid[2] <= UD_GROUPS; gid[2]++) {
			now++;
			ud_group_to(&s.ud, gid, &why);
		}
	assert_int_equal(opened, UD_GROUPS);
	assert_string_equal(why, "the QP uses too many groups");
	now += IN_USE_MS - UD_GROUPS - 1;
	gid[2] = UD_GROUPS;
	assert_null(ud_group_to(&s.ud, gid, &why));
	assert_int_equal(opened, UD_GROUPS);
	now++;
	says("joined");
	assert_non_null(ud_group_to(&s.ud, gid, &why));
	assert_int_equal(opened, UD_GROUPS + 1);
	assert_int_equal(channels, UD_GROUPS);
	attach(); /* the program asks for it */
	assert_int_equal(channels, UD_GROUPS);
}

static void test_leaving(void **state)
{
	(void)state;
	ud_group_leave(&s.qp, group);
	says("joined");
	assert_int_equal(ud_group_use(&s.qp, group, 0), 0);
	assert_int_equal(channels, 1);
	ud_group_leave(&s.qp, group);
	assert_int_equal(channels, 0);
	assert_null(s.qp.groups);
	attach();
	ud_group_leave(&s.qp, group);
	assert_true(ud_group_attached(&s.qp, group));
}

/* The first call was in RESET. */
static void test_attach_again(void **state)
{
	(void)state;
	s.ud.ready = 0;
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	s.ud.ready = 1;
	strcpy(says("error")->code, "policy");
	assert_int_equal(ud_group_use(&s.qp, group, 1), EPERM);
	assert_true(ud_group_attached(&s.qp, group));
	assert_int_equal(opened, 1);
	now += AGAIN_MS;
	says_members(other, 20, 1);
	ud_group_look(&s.ud);
	passes = 100;
	assert_int_equal(ud_group_use(&s.qp, group, 1), EPERM);
	says("joined");
	ud_group_look(&s.ud);
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	go_to_reset();
	s.ud.ready = 1;
	assert_int_equal(ud_group_use(&s.qp, group, 1), ETIMEDOUT);
	assert_true(ud_group_attached(&s.qp, group));
	says("joined");
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	assert_int_equal(opened, 3);
}

/* --- lines on stderr ----------------------------------------------------------------- */

/* The text that `act` writes to stderr. */
static const char *stderr_of(void (*act)(void))
{
	static char text[1024];
	FILE *file = tmpfile();
	const int before = dup(STDERR_FILENO);

	assert_non_null(file);
	assert_int_equal(dup2(fileno(file), STDERR_FILENO), STDERR_FILENO);
	act();
	dup2(before, STDERR_FILENO);
	close(before);
	rewind(file);
	text[fread(text, 1, sizeof(text) - 1, file)] = 0;
	fclose(file);
	return text;
}

/* The agent refuses or ends the use for this reason. */
static void is_refused(const char *code)
{
	strcpy(says("error")->code, code);
	now += AGAIN_MS;
	ud_group_look(&s.ud);
}

static void refuse_for_two_reasons(void)
{
	is_refused("policy");
	is_refused("policy");
	is_refused("quota");
	is_refused("quota");
}

static void attach_in_vain(void)
{
	strcpy(says("error")->code, "policy");
	assert_int_equal(ud_group_use(&s.qp, group, 1), EPERM);
}

static void restart_agent(void)
{
	says("end");
	ud_group_look(&s.ud);
	now += AGAIN_MS;
	says("joined");
	ud_group_look(&s.ud);
}

static void agent_that_is_away(void)
{
	opens = -ECONNREFUSED;
	says("end");
	ud_group_look(&s.ud);
	now += AGAIN_MS;
	ud_group_look(&s.ud);
	now += AGAIN_MS;
	ud_group_look(&s.ud);
}

static const char two_lines[] =
	"srdma: UD QP 0x000005 is no member of ff07::: policy\n"
	"srdma: UD QP 0x000005 is no member of ff07::: quota\n";

/* The program has no other way to learn it. */
static void test_membership_that_is_lost(void **state)
{
	(void)state;
	attach();
	assert_string_equal(stderr_of(restart_agent), "");
	assert_string_equal(stderr_of(refuse_for_two_reasons), two_lines);
	assert_string_equal(stderr_of(agent_that_is_away),
			    "srdma: UD QP 0x000005 is no member of ff07::: "
			    "no agent\n");
}

static void test_membership_that_is_refused_later(void **state)
{
	(void)state;
	s.ud.ready = 0;
	assert_int_equal(ud_group_use(&s.qp, group, 1), 0);
	s.ud.ready = 1;
	assert_string_equal(stderr_of(refuse_for_two_reasons), two_lines);
}

/* The call, or the message that is dropped, tells it. */
static void test_failures_that_the_program_learns(void **state)
{
	(void)state;
	assert_string_equal(stderr_of(attach_in_vain), "");
	says("joined");
	assert_int_equal(ud_group_use(&s.qp, group, 0), 0);
	assert_string_equal(stderr_of(refuse_for_two_reasons), "");
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_attach),
		TEST(test_members_change),
		TEST(test_many_members),
		TEST(test_attach_that_is_refused),
		TEST(test_agent_that_does_not_answer),
		TEST(test_other_thread_meanwhile),
		TEST(test_qp_in_reset),
		TEST(test_qp_that_fails),
		TEST(test_qp_that_sends_only),
		TEST(test_agent_that_refuses_a_sender),
		TEST(test_agent_that_starts_again),
		TEST(test_identity_that_is_withdrawn),
		TEST(test_illegal_members),
		TEST(test_unknown_event),
		TEST(test_too_many_groups),
		TEST(test_messages_to_too_many_groups),
		TEST(test_leaving),
		TEST(test_attach_again),
		TEST(test_membership_that_is_lost),
		TEST(test_membership_that_is_refused_later),
		TEST(test_failures_that_the_program_learns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
