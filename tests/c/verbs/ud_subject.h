/* A UD QP that is ready, and what it belongs to, for tests with a worker and an agent of
 * their own. */
#ifndef TESTS_C_VERBS_UD_SUBJECT_H
#define TESTS_C_VERBS_UD_SUBJECT_H

#include "ud_fakes.h"

static struct subject {
	struct verbs_root root;
	struct verbs_policy policy;
	struct srdma_device device;
	struct srdma_pd leg;
	struct verbs_pd pd;
	struct verbs_qp qp;
	struct verbs_ud ud;
} s;

static void begin_subject(uint32_t qp_num)
{
	reset_fakes();
	memset(&s, 0, sizeof(s));
	s.leg.device = &s.device;
	s.pd.pd = &s.leg;
	s.root.policy = &s.policy;
	s.qp.ibv.context = &s.root.ctx.context;
	s.qp.ibv.pd = &s.pd.ibv;
	s.qp.ibv.qp_num = qp_num;
	s.qp.ud = &s.ud;
	s.ud.qp = &s.qp;
	s.ud.root = &s.root;
	s.ud.ready = 1;
}

#endif
