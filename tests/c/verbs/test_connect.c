/* Keys for RC QPs (verbs/connect.c), with a worker and an agent of the test. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include <cmocka.h>

#include "host/connecting.h"
#include "support/shifted_clock.h"
#include "verbs/objects.h"
#include "verbs/private.h"
#include "verbs/ud.h"
#include "wire/reason.h"

static int begun, advanced, checked, flushed,
	watched; /* answers of the functions below */
static unsigned advances, checks, flushes;
static int watches;	/* of channels */
static int connections; /* that live */
static int permitted, waits;
static uint32_t reason; /* of the last loss */

static struct subject {
	struct verbs_root root;
	struct verbs_policy policy;
	struct verbs_pd pd;
	struct verbs_cq cq;
	struct verbs_qp qp;
} s;

static unsigned groups_left;

int ud_group_use(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN],
		 int attach)
{
	assert_ptr_equal(qp, &s.qp);
	assert_int_equal(gid[0], 0xff);
	assert_int_equal(attach, 0);
	assert_int_equal(pthread_mutex_trylock(&s.root.lock), EBUSY);
	return EDQUOT;
}

void ud_group_leave(struct verbs_qp *qp, const uint8_t gid[SRDMA_GID_LEN])
{
	assert_ptr_equal(qp, &s.qp);
	assert_int_equal(gid[0], 0xff);
	assert_int_equal(pthread_mutex_trylock(&s.root.lock), EBUSY);
	groups_left++;
}

const struct verbs_peer *verbs_policy_peer(const struct verbs_policy *p,
					   const uint8_t gid[16])
{
	(void)gid;
	return permitted ? &p->peers[0] : NULL;
}

int srdma_connection_begin(struct srdma_connection **connection,
			   struct srdma_pd *pd,
			   const struct srdma_settings_peer *peer,
			   const struct srdma_connection_attr *attr)
{
	(void)pd;
	(void)attr;
	assert_int_equal(peer->qp_num, 7);
	*connection = begun ? NULL : malloc(1);
	connections += !begun;
	return begun;
}

int srdma_connection_advance(struct srdma_connection *c)
{
	assert_non_null(c);
	advances++;
	return advanced;
}

int srdma_check_connection(struct srdma_connection *c)
{
	assert_non_null(c);
	checks++;
	return checked;
}

int srdma_connection_fd(const struct srdma_connection *c)
{
	(void)c;
	return 3;
}

void srdma_disconnect(struct srdma_connection *c)
{
	connections -= c != NULL;
	free(c);
}

int srdma_qp_flush(struct srdma_qp *qp, uint32_t why)
{
	(void)qp;
	assert_int_equal(why, SRDMA_REASON_WIRE_LOST);
	flushes++;
	return flushed;
}

void verbs_loss_event(struct verbs_qp *qp, uint32_t why)
{
	assert_ptr_equal(qp, &s.qp);
	reason = why;
}

int verbs_channel_watch(const struct verbs_cq *cq, int fd)
{
	(void)cq;
	assert_int_equal(fd, 3);
	watches += !watched;
	return watched;
}

void verbs_channel_unwatch(const struct verbs_cq *cq, int fd)
{
	assert_ptr_equal(cq, &s.cq);
	assert_int_equal(fd, 3);
	watches--;
}

int verbs_ud_look(struct verbs_root *root)
{
	(void)root;
	return waits;
}

struct verbs_qp *verbs_qp_find(const struct verbs_root *root, uint32_t qp_num)
{
	(void)root;
	return qp_num ? NULL : &s.qp;
}

void verbs_collect(struct verbs_root *root)
{
	(void)root;
}

/* --- a QP ---------------------------------------------------------------------------- */

static int begin(void **state)
{
	(void)state;
	memset(&s, 0, sizeof(s));
	begun = advanced = checked = flushed = watched = watches = 0;
	advances = checks = flushes = 0;
	permitted = 1;
	waits = 0;
	reason = 0;
	shift_clock(0);
	s.root.policy = &s.policy;
	s.qp.ibv.context = &s.root.ctx.context;
	s.qp.ibv.pd = &s.pd.ibv;
	s.qp.ibv.send_cq = s.qp.ibv.recv_cq = &s.cq.ibv;
	s.qp.attr.dest_qp_num = 7;
	s.root.qps[0] = &s.qp;
	return 0;
}

static int end(void **state)
{
	(void)state;
	srdma_disconnect(s.qp.connection);
	return connections;
}

/* A look after a time in which one is due. */
static void look(void)
{
	static int seconds;

	seconds += 2;
	shift_clock(seconds);
	verbs_connect_look(&s.root);
}

/* librdmacm asks whether the QP has keys. */
static int link_state(void)
{
	return srdma_private_link(&s.root.ctx.context, 0);
}

/* --- tests -------------------------------------------------------------------------- */

static void test_keys(void **state)
{
	(void)state;
	assert_int_equal(verbs_connect(&s.qp), 0);
	look();
	assert_true(s.qp.connecting);
	assert_int_equal(link_state(), 0);
	advanced = 1;
	look();
	assert_int_equal(link_state(), 1);
	assert_int_equal(srdma_private_link(&s.root.ctx.context, 1), -ENOENT);
	assert_false(s.qp.connecting);
	assert_int_equal(advances, 2);
	verbs_connect_look(&s.root); /* not due */
	assert_int_equal(checks, 0);
	look();
	assert_int_equal(checks, 1);
	assert_int_equal(flushes, 0);
	assert_int_equal(watches, 2);
}

/* A program that waits in the completion channel does not spin. */
static void test_connection_that_ends(void **state)
{
	(void)state;
	assert_int_equal(verbs_connect(&s.qp), 0);
	advanced = 1;
	look();
	checked = -ECONNRESET;
	look();
	assert_int_equal(watches, 0);
}

static void test_refused_connections(void **state)
{
	(void)state;
	permitted = 0;
	assert_int_equal(verbs_connect(&s.qp), EACCES);
	permitted = 1;
	begun = -ECONNREFUSED;
	assert_int_equal(verbs_connect(&s.qp), ECONNREFUSED);
	begun = 0;
	watched = ENOSPC;
	assert_int_equal(verbs_connect(&s.qp), ENOSPC);
	assert_null(s.qp.connection);
	assert_int_equal(connections, 0);
	assert_false(s.qp.connecting);
}

static void test_no_keys(void **state)
{
	(void)state;
	assert_int_equal(verbs_connect(&s.qp), 0);
	advanced = -ETIMEDOUT;
	look();
	assert_false(s.qp.connecting);
	assert_int_equal(reason, SRDMA_REASON_WIRE_LOST);
	assert_int_equal(watches, 0);
	look();
	assert_int_equal(flushes, 1);
	assert_int_equal(advances, 1);
	assert_int_equal(checks, 1);
}

/* The requests of the QP may have no time limit: its end is tried again. */
static void test_no_keys_and_a_worker_that_does_not_answer(void **state)
{
	(void)state;
	assert_int_equal(verbs_connect(&s.qp), 0);
	advanced = -EACCES;
	flushed = -ETIMEDOUT;
	look();
	look();
	assert_int_equal(flushes, 2);
	assert_int_equal(reason, 0);
	assert_int_equal(link_state(), -ENOTCONN);
	flushed = 0;
	look();
	assert_int_equal(reason, SRDMA_REASON_WIRE_LOST);
	look();
	assert_int_equal(flushes, 3);
	assert_int_equal(advances, 1);
}

/* librdmacm uses groups with the lock of the context. */
static void test_use_of_a_group(void **state)
{
	const uint8_t gid[SRDMA_GID_LEN] = { 0xff };

	(void)state;
	s.qp.ibv.context = &s.root.ctx.context;
	assert_int_equal(srdma_private_use_group(&s.qp.ibv, gid, 0), EDQUOT);
	groups_left = 0;
	srdma_private_leave_group(&s.qp.ibv, gid);
	assert_int_equal(groups_left, 1);
	assert_int_equal(pthread_mutex_trylock(&s.root.lock), 0);
	pthread_mutex_unlock(&s.root.lock);
}

#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_keys),
		TEST(test_connection_that_ends),
		TEST(test_refused_connections),
		TEST(test_no_keys),
		TEST(test_no_keys_and_a_worker_that_does_not_answer),
		TEST(test_use_of_a_group),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
