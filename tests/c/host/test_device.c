/* Devices and PDs of libsrdma at a worker that answers wrongly or refuses
 * (local-interface.md 3). tests/e2e/library has the tests with real workers. */
#include "srdma/srdma.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "host/objects.h"
#include "support/fake_worker.h"
#include "support/says.h"

static void open_pd(const struct fake_worker *w, struct srdma_device **d,
		    struct srdma_pd **pd)
{
	assert_int_equal(srdma_open_device(d, w->path, NULL), 0);
	assert_int_equal(srdma_alloc_pd(pd, *d, NULL), 0);
}

static void close_pd(struct srdma_device *d, struct srdma_pd *pd)
{
	assert_int_equal(srdma_dealloc_pd(pd), 0);
	assert_int_equal(srdma_close_device(d), 0);
}

/* --- HELLO --------------------------------------------------------------- */

static enum fake_action wrong_hello(struct fake_worker *w,
				    struct srdma_ctl_msg *m,
				    struct srdma_socket_fds *fds)
{
	(void)fds;
	switch (w->calls++) {
	case 0:
		m->hello.version = 2;
		break;
	case 1:
		m->hello.thread = 1;
		break;
	case 2:
		m->hello.threads = 0;
		break;
	case 3:
		m->hello.host_kind = 9;
		break;
	default:
		return fake_refuse(m, EPROTONOSUPPORT, "another version");
	}
	return FAKE_ANSWER;
}

static void test_hello_that_is_refused(void **state)
{
	static const struct {
		int rc;
		const char *says;
	} want[] = {
		{ -EPROTONOSUPPORT, "control version 2" },
		{ -EINVAL, "worker process 1" },
		{ -EPROTO, "no worker process" },
		{ -ENOTSUP, "legs of kind 9" },
		{ -EPROTONOSUPPORT, "another version" },
	};
	struct fake_worker *w = *state;
	struct srdma_device *d;

	w->hook = wrong_hello;
	for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++) {
		assert_int_equal(srdma_open_device(&d, w->path, NULL),
				 want[i].rc);
		assert_null(d);
		says(want[i].says);
	}
}

static void test_names_of_a_device(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_device_attr attr;
	struct srdma_device *d;
	char longer[200];

	unsetenv("SRDMA_WORKER");
	unsetenv("SRDMA_AGENT");
	assert_int_equal(srdma_open_device(&d, NULL, NULL), -ENXIO);
	memset(longer, '/', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(srdma_open_device(&d, w->path, longer), -ENAMETOOLONG);
	setenv("SRDMA_AGENT", longer, 1);
	assert_int_equal(srdma_open_device(&d, w->path, NULL), -ENAMETOOLONG);
	unsetenv("SRDMA_AGENT");
	setenv("SRDMA_WORKER", w->path, 1);
	assert_int_equal(srdma_open_device(&d, NULL, NULL), 0);
	unsetenv("SRDMA_WORKER");
	srdma_query_device(d, &attr);
	assert_string_equal(attr.name, "fake");
	assert_int_equal(attr.processes, 1);
	assert_int_equal(attr.allow_unprotected, 0);
	assert_memory_equal(attr.suites, "\1\2\3\0", 4);
	assert_memory_equal(attr.gid + 10, "\xff\xff\12\0\0\7", 6);
	assert_int_equal(srdma_close_device(d), 0);
}

/* A program may change its folder after srdma_open_device(). */
static void test_relative_path_of_a_worker(void **state)
{
	static const char longer[] =
		"a-folder-whose-name-makes-the-path-of-the-socket-too-long-"
		"for-the-structure-of-an-address-of-a-Unix-socket";
	struct fake_worker *w = *state;
	char before[PATH_MAX];
	struct srdma_device *d;
	struct srdma_pd *pd;

	assert_non_null(getcwd(before, sizeof(before)));
	assert_int_equal(chdir(w->folder), 0);
	assert_int_equal(symlink("worker", "alias"), 0);
	assert_int_equal(srdma_open_device(&d, "./alias", NULL), 0);
	unlink("alias");
	assert_int_equal(chdir("/"), 0);
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), 0);
	assert_string_equal(pd->path, w->path);
	close_pd(d, pd);
	assert_int_equal(chdir(w->folder), 0);
	/* its whole path fits into no address: so it stays relative */
	assert_int_equal(mkdir(longer, 0700), 0);
	assert_int_equal(chdir(longer), 0);
	assert_int_equal(link("../worker", "worker"), 0);
	assert_int_equal(srdma_open_device(&d, "./worker", NULL), 0);
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), 0);
	assert_string_equal(pd->path, "./worker");
	close_pd(d, pd);
	unlink("worker");
	assert_int_equal(chdir(before), 0);
	assert_int_equal(chdir(w->folder), 0);
	assert_int_equal(rmdir(longer), 0);
	assert_int_equal(chdir(before), 0);
}

static void test_reasons(void **state)
{
	(void)state;
	assert_string_equal(srdma_reason_name(SRDMA_REASON_BAD_RKEY),
			    "BAD_RKEY");
	assert_string_not_equal(srdma_reason_text(SRDMA_REASON_BAD_RKEY), "");
	assert_string_equal(srdma_reason_name(31), "");
	assert_string_equal(srdma_reason_text(UINT32_MAX), "");
}

/* --- tokens -------------------------------------------------------------- */

static void put(uint8_t *at, uint64_t value, size_t len)
{
	for (size_t i = len; i-- > 0; value >>= 8)
		at[i] = (uint8_t)value;
}

static void test_head_of_a_token(void **state)
{
	uint8_t token[SRDMA_CAP_MIN] = "sC\1";
	struct srdma_cap_info info;

	(void)state;
	put(token + 4, 0x01020304, 4);	/* rkey */
	put(token + 8, 0x100000, 8);	/* start */
	put(token + 16, 0x104000, 8);	/* end */
	put(token + 24, 0x1000, 8);	/* lo */
	put(token + 32, 0x4000, 8);	/* hi */
	put(token + 56, 0x70000000, 4); /* expiry */
	token[62] = 6;			/* write, atomic */
	assert_int_equal(srdma_query_cap(&info, token, sizeof(token)), 0);
	assert_int_equal(info.rkey, 0x01020304);
	assert_int_equal(info.remote_addr, 0x101000);
	assert_int_equal(info.length, 0x3000);
	assert_int_equal(info.offset, 0x1000);
	assert_int_equal(info.access, SRDMA_ACCESS_REMOTE_WRITE |
					      SRDMA_ACCESS_REMOTE_ATOMIC);
	assert_int_equal(info.expires, 0x70000000);
	assert_int_equal(info.sealed, 0);
	token[3] = 1;
	assert_int_equal(srdma_query_cap(&info, token, sizeof(token)), 0);
	assert_int_equal(info.sealed, 1);

	assert_int_equal(srdma_query_cap(&info, token, sizeof(token) - 1),
			 -EPROTO);
	assert_int_equal(srdma_query_cap(&info, token, SRDMA_CAP_MAX + 1),
			 -EPROTO);
	put(token + 32, 0x4001, 8); /* hi behind the end */
	assert_int_equal(srdma_query_cap(&info, token, sizeof(token)), -EPROTO);
	put(token + 32, 0x1000, 8); /* an empty range */
	assert_int_equal(srdma_query_cap(&info, token, sizeof(token)), -EPROTO);
	put(token + 16, 0x100000, 8); /* an empty region */
	assert_int_equal(srdma_query_cap(&info, token, sizeof(token)), -EPROTO);
	token[2] = 2; /* another version */
	assert_int_equal(srdma_query_cap(&info, token, sizeof(token)), -EPROTO);
}

/* --- PD ------------------------------------------------------------------ */

static enum fake_action wrong_open(struct fake_worker *w,
				   struct srdma_ctl_msg *m,
				   struct srdma_socket_fds *fds)
{
	int first = fds->n ? fds->fd[0] : -1;

	if (m->kind != SRDMA_CTL_OPEN)
		return FAKE_ANSWER;
	switch (w->calls++) {
	case 0:
		srdma_socket_close_fds(fds);
		break;
	case 1: /* the doorbell in the place of the eventfd */
		fds->fd[0] = fds->fd[1];
		fds->fd[1] = first;
		break;
	default:
		return fake_refuse(m, EDQUOT, "no more legs");
	}
	return FAKE_ANSWER;
}

static void test_leg_that_cannot_be_used(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_device *d;
	struct srdma_pd *pd;

	assert_int_equal(srdma_open_device(&d, w->path, NULL), 0);
	w->hook = wrong_open;
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), -EPROTO);
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), -EPROTO);
	says("descriptors of a leg");
	assert_int_equal(srdma_alloc_pd(&pd, d, NULL), -EDQUOT);
	assert_null(pd);
	assert_int_equal(srdma_close_device(d), 0);
}

/* --- calls that are repeated --------------------------------------------- */

/* Refuses DEREG_MR and DESTROY: first with EBUSY, then as unknown. */
static enum fake_action busy(struct fake_worker *w, struct srdma_ctl_msg *m,
			     struct srdma_socket_fds *fds)
{
	(void)fds;
	if (m->kind == SRDMA_CTL_DEREG_MR || m->kind == SRDMA_CTL_DESTROY)
		return fake_refuse(m, w->calls++ ? ENOENT : EBUSY, "text");
	return FAKE_ANSWER;
}

static void test_end_of_a_region(void **state)
{
	struct fake_worker *w = *state;
	const struct srdma_mr_attr attr = { .length = 5000 };
	struct srdma_mr_info info;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_mr *mr;

	open_pd(w, &d, &pd);
	assert_int_equal(srdma_alloc_mr(&mr, pd, &attr), 0);
	srdma_query_mr(mr, &info);
	assert_int_equal(info.key, FAKE_KEY);
	w->hook = busy;
	assert_int_equal(srdma_dereg_mr(mr), -EBUSY);
	memset(info.addr, 1, info.length); /* it is still there */
	assert_int_equal(srdma_dealloc_pd(pd), -EBUSY);
	assert_int_equal(srdma_dereg_mr(mr), 0);
	close_pd(d, pd);
}

static void test_end_of_a_qp(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_qp_query query;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_qp *qp[2];

	open_pd(w, &d, &pd);
	assert_int_equal(srdma_create_qp(&qp[0], pd, NULL), 0);
	assert_int_equal(srdma_create_qp(&qp[1], pd, NULL), 0);
	srdma_query_qp(qp[0], &query);
	assert_int_equal(query.qp_num, FAKE_QPN);
	assert_int_equal(query.status, SRDMA_QP_STATUS_INIT);
	assert_int_equal(srdma_destroy_qp(qp[0]), 0);
	w->hook = busy;
	assert_int_equal(srdma_destroy_qp(qp[1]), -EBUSY);
	assert_int_equal(srdma_destroy_qp(qp[1]), 0);
	close_pd(d, pd);
}

static enum fake_action reclaimed(struct fake_worker *w,
				  struct srdma_ctl_msg *m,
				  struct srdma_socket_fds *fds)
{
	(void)fds;
	if (m->kind != SRDMA_CTL_DESTROY)
		return FAKE_ANSWER;
	w->calls++;
	return fake_refuse(m, ENOENT, "the QP does not exist, or no longer");
}

/* The worker freed the QP after RECLAIMED (local-interface.md 3.10). */
static void test_end_of_a_qp_that_was_reclaimed(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_qp *qp;

	open_pd(w, &d, &pd);
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), 0);
	w->hook = reclaimed;
	assert_int_equal(srdma_destroy_qp(qp), 0);
	assert_int_equal(w->calls, 1);
	close_pd(d, pd);
}

static enum fake_action qpn_zero(struct fake_worker *w, struct srdma_ctl_msg *m,
				 struct srdma_socket_fds *fds)
{
	(void)fds;
	if (m->kind == SRDMA_CTL_INIT)
		m->qp.qp.qpn = 0;
	w->calls += m->kind == SRDMA_CTL_DESTROY;
	return FAKE_ANSWER;
}

static void test_qp_that_cannot_be_used(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_qp *qp;

	open_pd(w, &d, &pd);
	w->hook = qpn_zero;
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), -EINVAL);
	assert_null(qp);
	assert_int_equal(w->calls, 1); /* it was destroyed at the worker */
	close_pd(d, pd);
}

/* --- end of the leg ------------------------------------------------------ */

static enum fake_action silent_init(struct fake_worker *w,
				    struct srdma_ctl_msg *m,
				    struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	return m->kind == SRDMA_CTL_INIT ? FAKE_SILENCE : FAKE_ANSWER;
}

/* The worker may make the QP later: so the leg ends. */
static void test_qp_that_times_out(void **state)
{
	struct fake_worker *w = *state;
	const struct srdma_mr_attr attr = { .length = 64 };
	const struct srdma_lasting_control_params here = { .agent = NULL };
	struct srdma_lasting_control *usual;
	struct srdma_control *shorter;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_mr *mr;
	struct srdma_qp *qp;
	struct srdma_wc wc;

	open_pd(w, &d, &pd);
	assert_int_equal(srdma_alloc_mr(&mr, pd, &attr), 0);
	assert_int_equal(srdma_control_connect(&shorter, w->path, 100), 0);
	usual = pd->control;
	assert_int_equal(
		srdma_lasting_control_create(&pd->control, shorter, &here), 0);
	w->hook = silent_init;
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), -ETIMEDOUT);
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), -ENOTCONN);
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, 0), -ENOTCONN);
	assert_int_equal(srdma_dereg_mr(mr), 0);
	srdma_lasting_control_close(usual);
	/* its epoll entry went with the descriptor */
	close_pd(d, pd);
}

static uint32_t gone_status;

/* The leg ended alone: ATTACH has no such token. */
static enum fake_action no_leg(struct fake_worker *w, struct srdma_ctl_msg *m,
			       struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	return m->kind == SRDMA_CTL_ATTACH
		       ? fake_refuse(m, EPERM, "no such token")
		       : fake_refuse(m, gone_status, "no such leg");
}

static void test_leg_that_ended_alone(void **state)
{
	static const uint32_t statuses[] = { EPERM, ECONNRESET };
	struct fake_worker *w = *state;
	const struct srdma_mr_attr attr = { .length = 64 };
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_mr *mr;
	struct srdma_qp *qp;
	struct srdma_wc wc;

	assert_int_equal(srdma_open_device(&d, w->path, NULL), 0);
	for (int i = 0; i < 2; i++) {
		w->hook = NULL;
		gone_status = statuses[i];
		assert_int_equal(srdma_alloc_pd(&pd, d, NULL), 0);
		assert_int_equal(srdma_create_qp(&qp, pd, NULL), 0);
		assert_int_equal(srdma_alloc_mr(&mr, pd, &attr), 0);
		w->hook = no_leg;
		assert_int_equal(srdma_revoke_caps(mr, 0, 0), -ENOTCONN);
		says("the leg at the worker");
		assert_int_equal(srdma_wait_cq(pd, 1, &wc, -1), 1);
		assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
		assert_int_equal(srdma_wait_cq(pd, 1, &wc, -1), -ENOTCONN);
		assert_int_equal(srdma_dereg_mr(mr), 0);
		assert_int_equal(srdma_destroy_qp(qp), 0);
		assert_int_equal(srdma_dealloc_pd(pd), 0);
	}
	assert_int_equal(srdma_close_device(d), 0);
}

/* Waits of this length until one returns something else than 0. */
static int wait_for(struct srdma_pd *pd, struct srdma_wc *wc, int timeout_ms)
{
	int r = 0;

	for (int ms = 0; !r && ms < 10000; ms += timeout_ms)
		r = srdma_wait_cq(pd, 1, wc, timeout_ms);
	return r;
}

/* A program that only waits notices it too. */
static void test_wait_at_a_leg_that_ended_alone(void **state)
{
	static const int timeouts[] = { -1, 10000, 300 };
	struct fake_worker *w = *state;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_qp *qp;
	struct srdma_wc wc;

	gone_status = EPERM;
	for (int i = 0; i < 3; i++) {
		w->hook = NULL;
		open_pd(w, &d, &pd);
		assert_int_equal(srdma_create_qp(&qp, pd, NULL), 0);
		w->hook = no_leg;
		alarm(20); /* ends a test that waits without a limit */
		assert_int_equal(timeouts[i] < 0
					 ? srdma_wait_cq(pd, 1, &wc, -1)
					 : wait_for(pd, &wc, timeouts[i]),
				 1);
		assert_int_equal(wc.opcode, SRDMA_WC_QP_EVENT);
		assert_int_equal(wc.vendor_err, SRDMA_REASON_WORKER_GONE);
		assert_int_equal(srdma_wait_cq(pd, 1, &wc, timeouts[i]),
				 -ENOTCONN);
		says("the leg");
		alarm(0);
		assert_int_equal(srdma_destroy_qp(qp), 0);
		close_pd(d, pd);
	}
}

static enum fake_action silent_attach(struct fake_worker *w,
				      struct srdma_ctl_msg *m,
				      struct srdma_socket_fds *fds)
{
	(void)fds;
	if (m->kind != SRDMA_CTL_ATTACH)
		return FAKE_ANSWER;
	w->calls++;
	return FAKE_SILENCE;
}

/* A worker that does not tell whether the leg lives does not prolong a wait. */
static void test_wait_at_a_silent_worker(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_wc wc;
	int64_t begin;

	open_pd(w, &d, &pd);
	w->hook = silent_attach;
	begin = srdma_socket_deadline(0);
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, 1500), 0);
	assert_true(srdma_socket_deadline(0) - begin >= 1500);
	assert_true(srdma_socket_deadline(0) - begin < 5000);
	assert_int_equal(w->calls, 1);
	close_pd(d, pd);
}

/* A refusal that is not the end of the leg is returned. */
static enum fake_action no_probe(struct fake_worker *w, struct srdma_ctl_msg *m,
				 struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	return m->kind == SRDMA_CTL_REG_MR
		       ? fake_refuse(m, EPERM, "no permission to trace")
		       : FAKE_ANSWER;
}

static void test_refusal_of_a_living_leg(void **state)
{
	struct fake_worker *w = *state;
	const struct srdma_mr_attr attr = { .length = 64 };
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_mr *mr;
	struct srdma_qp *qp;

	open_pd(w, &d, &pd);
	w->hook = no_probe;
	assert_int_equal(srdma_alloc_mr(&mr, pd, &attr), -EPERM);
	says("no permission to trace");
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), 0);
	assert_int_equal(srdma_destroy_qp(qp), 0);
	close_pd(d, pd);
}

/* --- waiting, closing ---------------------------------------------------- */

static struct srdma_device *used;
static int close_rc;

static enum fake_action close_meanwhile(struct fake_worker *w,
					struct srdma_ctl_msg *m,
					struct srdma_socket_fds *fds)
{
	(void)w;
	(void)fds;
	if (m->kind == SRDMA_CTL_OPEN && !close_rc)
		close_rc = atomic_load(&used->users) ? -EBUSY : -1;
	return FAKE_ANSWER;
}

static void test_waiting_and_closing(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_pd *pd;
	struct srdma_wc wc;

	assert_int_equal(srdma_open_device(&used, w->path, NULL), 0);
	w->hook = close_meanwhile;
	assert_int_equal(srdma_alloc_pd(&pd, used, NULL), 0);
	assert_int_equal(close_rc, -EBUSY); /* while OPEN was under way */
	assert_int_equal(srdma_wait_cq(pd, 0, &wc, -1), 0);
	assert_int_equal(srdma_wait_cq(pd, -1, &wc, -1), -EINVAL);
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, 0), 0);
	assert_int_equal(pd->armed, 0);
	srdma_req_notify_cq(pd);
	assert_int_equal(srdma_wait_cq(pd, 1, &wc, 0), 0);
	assert_int_equal(pd->armed, 1); /* as the program requested */
	close_pd(used, pd);
}

/* --- posting ------------------------------------------------------------- */

static void test_inline_data_without_an_address(void **state)
{
	struct fake_worker *w = *state;
	struct srdma_send_wr wr = { .opcode = SRDMA_WR_SEND,
				    .flags = SRDMA_SEND_INLINE };
	struct srdma_device *d;
	struct srdma_pd *pd;
	struct srdma_qp *qp;

	open_pd(w, &d, &pd);
	assert_int_equal(srdma_create_qp(&qp, pd, NULL), 0);
	assert_int_equal(srdma_post_send(qp, &wr, NULL), 0); /* empty */
	wr.length = 1;
	assert_int_equal(srdma_post_send(qp, &wr, NULL), -EINVAL);
	assert_int_equal(srdma_destroy_qp(qp), 0);
	close_pd(d, pd);
}

#define each(test)                                                             \
	cmocka_unit_test_setup_teardown(test, fake_worker_setup,               \
					fake_worker_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		each(test_hello_that_is_refused),
		each(test_names_of_a_device),
		each(test_relative_path_of_a_worker),
		cmocka_unit_test(test_reasons),
		cmocka_unit_test(test_head_of_a_token),
		each(test_leg_that_cannot_be_used),
		each(test_end_of_a_region),
		each(test_end_of_a_qp),
		each(test_end_of_a_qp_that_was_reclaimed),
		each(test_qp_that_cannot_be_used),
		each(test_waiting_and_closing),
		each(test_qp_that_times_out),
		each(test_leg_that_ended_alone),
		each(test_wait_at_a_leg_that_ended_alone),
		each(test_wait_at_a_silent_worker),
		each(test_refusal_of_a_living_leg),
		each(test_inline_data_without_an_address),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
