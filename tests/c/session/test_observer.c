#include "session/observer.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/stats.h"
#include "support/traffic.h"
#include "session/window.h"

static struct srdma_packet seen;

/* Parameters of an observer of what end 0 sends, whose session has *s. */
static struct srdma_observer_params
observer_params(const struct srdma_session_params *s)
{
	struct srdma_observer_params o = {
		.suite = s->suite,
		.level = s->level,
		.mode = s->mode,
		.tag_len = s->tag_len,
		.secret_len = s->secret_len,
		.direction = 0,
		.pn = s->tx_pn,
		.flow.receiver.qpn = s->peer_qpn,
		.flow.sender.qpn = s->local_qpn,
	};

	memcpy(o.flow.receiver.eid, s->peer_eid, SRDMA_EID_LEN);
	memcpy(o.flow.sender.eid, s->local_eid, SRDMA_EID_LEN);
	memcpy(o.flow.generation, s->generation, SRDMA_GENERATION_LEN);
	memcpy(o.secret, s->tx_secret, sizeof(o.secret));
	return o;
}

static struct srdma_observer *observer_of(const struct protection *p)
{
	const struct srdma_session_params s = pair_params(p, 0);
	const struct srdma_observer_params o = observer_params(&s);
	struct srdma_observer *made;

	assert_int_equal(srdma_observer_create(&made, &o), 0);
	return made;
}

static int observe(struct srdma_observer *o, int len)
{
	assert_true(len > 0);
	return srdma_observer_open(o, &seen, out, (size_t)len, plain);
}

static void test_every_protection_is_verified(void **state)
{
	struct protection p;

	(void)state;
	for (unsigned i = 0; protection_at(i, &p); i++) {
		struct pair pair;
		struct srdma_observer *o = observer_of(&p);
		int len;

		assert_int_equal(pair_create(&pair, &p), 0);
		len = send(pair.end[0], 0, 100);
		out[20] ^= 1; /* in the tag */
		assert_int_equal(observe(o, len), -SRDMA_REFUSED_TAG);
		out[20] ^= 1;
		assert_int_equal(observe(o, len), 0);
		assert_memory_equal(plain, text, 100);
		assert_int_equal(seen.pn, PAIR_FIRST_PN);
		assert_int_equal(observe(o, len), 1);
		srdma_observer_destroy(o);
		pair_destroy(&pair);
	}
	srdma_observer_destroy(NULL);
}

/* Begins the next epoch of s, with a new secret that the observer is given too,
 * or by the chain. */
static void next_epoch(struct srdma_session *s, struct srdma_observer *o,
		       int renewed)
{
	if (renewed) {
		assert_int_equal(srdma_session_renew(s, SRDMA_TX, text, 0), 0);
		assert_int_equal(srdma_observer_renew(o, text), 0);
		assert_int_equal(srdma_observer_renew(o, text), -EBUSY);
	}
	assert_int_equal(
		srdma_session_advance(s, 1, srdma_session_next_pn(s) - 1), 1);
}

/* Every second epoch has a new secret. */
static void follow_epochs(uint8_t mode)
{
	struct protection p = gcm();
	struct srdma_session_params params;
	struct srdma_observer *o;
	struct srdma_session *s;

	p.mode = mode;
	o = observer_of(&p);
	params = pair_params(&p, 0);
	params.rekey_packets = 2;
	assert_int_equal(srdma_session_create(&s, &params), 0);
	for (uint32_t epoch = 0; epoch < 6; epoch++) {
		for (int i = 0; i < 2; i++)
			assert_int_equal(observe(o, send(s, 2 * epoch + i, 8)),
					 0);
		assert_int_equal(srdma_observer_epoch(o), epoch);
		next_epoch(s, o, epoch % 2);
	}
	srdma_observer_destroy(o);
	srdma_session_destroy(s);
}

static void test_epochs_are_followed(void **state)
{
	(void)state;
	assert_int_equal(pair_open(8), 0);
	follow_epochs(SRDMA_MODE_BASIC);
	follow_epochs(SRDMA_MODE_PD);
	follow_epochs(SRDMA_MODE_PD | SRDMA_MODE_MEM);
	pair_close();
}

static void test_forged_epoch_is_not_followed(void **state)
{
	const struct protection p = gcm();
	struct srdma_observer *o = observer_of(&p);
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	len = send(pair.end[0], 0, 8);
	out[8] ^= 4; /* epoch 1 */
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_TAG);
	assert_int_equal(srdma_observer_epoch(o), 0);
	out[8] ^= 4;
	assert_int_equal(observe(o, len), 0);
	srdma_observer_destroy(o);
	pair_destroy(&pair);
}

/* A packet of the epoch before the current one, as the wire reorders it. */
static void test_late_packet_of_the_epoch_before(void **state)
{
	const struct protection p = gcm();
	struct srdma_observer *o = observer_of(&p);
	uint8_t late[SRDMA_MAX_PACKET];
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	len = send(pair.end[0], 0, 8);
	memcpy(late, out, (size_t)len);
	for (int i = 0; i < 2; i++) {
		next_epoch(pair.end[0], o, 1);
		assert_int_equal(observe(o, send(pair.end[0], 1, 8)), 0);
		/* one epoch late it verifies, two epochs late not */
		assert_int_equal(
			srdma_observer_open(o, &seen, late, (size_t)len, plain),
			i ? -SRDMA_REFUSED_EPOCH : 0);
	}
	srdma_observer_destroy(o);
	pair_destroy(&pair);
}

/* The capture begins in epoch 3, at a number and a request id of more than 24
 * bits. */
static void test_a_late_observer_seeks(void **state)
{
	const struct protection p = gcm();
	struct srdma_session_params params = pair_params(&p, 0);
	struct srdma_observer *o = observer_of(&p);
	struct srdma_session *s;
	int len;

	(void)state;
	params.tx_pn = (UINT64_C(5) << 24) + 3;
	params.rekey_packets = 1;
	assert_int_equal(srdma_session_create(&s, &params), 0);
	for (int epoch = 0; epoch < 3; epoch++) {
		send(s, UINT64_C(3) << 24, 8);
		assert_int_equal(srdma_session_advance(
					 s, 1, srdma_session_next_pn(s) - 1),
				 1);
	}
	len = send(s, UINT64_C(3) << 24, 8);
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_EPOCH);
	for (int epoch = 0; epoch < 3; epoch++)
		assert_int_equal(srdma_observer_step(o), 0);
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_TAG);
	srdma_observer_seek(o, UINT64_C(5) << 24, UINT64_C(3) << 24);
	assert_int_equal(observe(o, len), 0);
	assert_int_equal(seen.request_id, UINT64_C(3) << 24);
	srdma_observer_destroy(o);
	srdma_session_destroy(s);
}

/* An ack names a request of the other direction, which may be far from that of
 * the ack before. */
static void test_acks_name_requests_that_were_heard(void **state)
{
	const struct protection p = gcm();
	struct srdma_observer *o = observer_of(&p), *other = observer_of(&p);
	struct srdma_packet ack = { .opcode = SRDMA_OP_ACKNOWLEDGE };
	const uint64_t id = (UINT64_C(1) << 24) + PAIR_NEXT_ID;
	struct pair pair;
	int len;

	(void)state;
	sample_ack(&ack, 3);
	ack.request_id = id;
	ack.ack.request_id = (uint32_t)id;
	assert_int_equal(pair_create(&pair, &p), 0);
	len = srdma_session_seal(pair.end[0], &ack, NULL, out, sizeof(out));
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_TAG);
	srdma_observer_seek(other, PAIR_FIRST_PN, id);
	assert_int_equal(srdma_observer_requests(other), id);
	srdma_observer_hear(o, srdma_observer_requests(other));
	assert_int_equal(observe(o, len), 0);
	assert_int_equal(seen.request_id, id);
	srdma_observer_hear(o, 0); /* does not go back */
	assert_int_equal(observe(o, len), 1);
	srdma_observer_destroy(o);
	srdma_observer_destroy(other);
	pair_destroy(&pair);
}

static void test_numbers_out_of_range(void **state)
{
	const struct protection p = gcm();
	struct srdma_observer *o = observer_of(&p);
	struct pair pair;
	int len;

	(void)state;
	assert_int_equal(pair_create(&pair, &p), 0);
	len = send(pair.end[0], 0, 8);
	srdma_observer_seek(o, SRDMA_NUMBER_END - 1, 0);
	out[9] = 0;
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_PN_RANGE);
	srdma_observer_seek(o, 1 << 23, SRDMA_NUMBER_END - 1);
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_REQUEST_ID);
	out[7] ^= 1; /* DestQP */
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_UNKNOWN_QP);
	assert_int_equal(observe(o, 12), -SRDMA_REFUSED_SHORT);
	srdma_observer_destroy(o);
	pair_destroy(&pair);
}

static void test_the_last_epoch_has_no_successor(void **state)
{
	const struct protection p = gcm();
	const struct srdma_session_params s = pair_params(&p, 0);
	struct srdma_observer_params params = observer_params(&s);
	struct srdma_observer *o;
	struct pair pair;
	int len;

	(void)state;
	params.epoch = UINT32_MAX;
	assert_int_equal(srdma_observer_create(&o, &params), 0);
	assert_int_equal(srdma_observer_epoch(o), UINT32_MAX);
	assert_int_equal(srdma_observer_step(o), -EINVAL);
	assert_int_equal(pair_create(&pair, &p), 0);
	len = send(pair.end[0], 0, 8); /* bits 0, which follow 3 */
	assert_int_equal(observe(o, len), -SRDMA_REFUSED_EPOCH);
	srdma_observer_destroy(o);
	pair_destroy(&pair);
}

static void test_illegal_params_are_refused(void **state)
{
	const struct protection p = gcm();
	const struct srdma_session_params s = pair_params(&p, 0);
	const struct srdma_observer_params good = observer_params(&s);
	struct srdma_observer_params bad[10];
	const int want[10] = {
		-ENOTSUP, -ENOTSUP, -ENOTSUP, -ENOTSUP, -EINVAL,
		-EINVAL,  -EINVAL,  -EINVAL,  -EINVAL,	-ENOTSUP
	};

	(void)state;
	for (int i = 0; i < 10; i++)
		bad[i] = good;
	bad[0].suite = 0;
	bad[1].suite = 0xff;
	bad[2].level = SRDMA_LEVEL_NONE;
	bad[3].level = SRDMA_LEVEL_PACKET;
	bad[4].tag_len = 12;
	bad[5].secret_len = 32;
	bad[6].mode = SRDMA_MODES;
	bad[7].direction = 2;
	bad[8].pn = SRDMA_NUMBER_END;
	bad[9].level = 255;
	for (int i = 0; i < 10; i++) {
		struct srdma_observer *o = (struct srdma_observer *)text;

		assert_int_equal(srdma_observer_create(&o, &bad[i]), want[i]);
		assert_null(o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_protection_is_verified),
		cmocka_unit_test(test_epochs_are_followed),
		cmocka_unit_test(test_forged_epoch_is_not_followed),
		cmocka_unit_test(test_late_packet_of_the_epoch_before),
		cmocka_unit_test(test_a_late_observer_seeks),
		cmocka_unit_test(test_acks_name_requests_that_were_heard),
		cmocka_unit_test(test_numbers_out_of_range),
		cmocka_unit_test(test_the_last_epoch_has_no_successor),
		cmocka_unit_test(test_illegal_params_are_refused),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
