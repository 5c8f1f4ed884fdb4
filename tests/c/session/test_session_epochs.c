/*
 * Epochs of sessions (docs/protocol.md 3.5): when an epoch begins, which
 * packets are accepted during the change, and when keys are wiped.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/modes.h"
#include "session/session_state.h"
#include "wire/stats.h"

#define EVER UINT64_MAX /* every packet is acknowledged */

struct datagram {
	int len;
	uint8_t data[128];
};

static uint64_t next_id;

static struct datagram sealed(struct srdma_session *s)
{
	struct datagram d = { .len = send(s, next_id++, 8) };

	assert_in_range(d.len, 1, sizeof(d.data));
	memcpy(d.data, out, (size_t)d.len);
	return d;
}

static int opened(struct srdma_session *s, const struct datagram *d)
{
	memcpy(out, d->data, (size_t)d->len);
	return receive(s, d->len);
}

static void pass(struct srdma_session *from, struct srdma_session *to)
{
	struct datagram d = sealed(from);

	assert_int_equal(opened(to, &d), 0);
}

static uint64_t told(const struct srdma_session *peer)
{
	return srdma_session_highest(peer);
}

/* Makes the sender begin the next epoch at once, without an ack. */
static void step(struct srdma_session *s)
{
	s->rekey.packets = 0;
	s->due = 0;
	assert_int_equal(srdma_session_advance(s, 0, EVER), 1);
	s->rekey.packets = SRDMA_REKEY_PACKETS;
}

static void epochs_are(const struct srdma_session *s, uint32_t tx, uint32_t rx)
{
	assert_int_equal(srdma_session_epoch(s, SRDMA_TX), tx);
	assert_int_equal(srdma_session_epoch(s, SRDMA_RX), rx);
}

static struct pair open_gcm(unsigned mode, uint32_t window)
{
	const struct protection p = in_mode(gcm(), mode);
	struct pair pair;

	assert_int_equal(pair_open(8), 0);
	next_id = 0;
	for (uint8_t role = 0; role < 2; role++) {
		struct srdma_session_params s = pair_params(&p, role);

		s.window = window;
		assert_int_equal(srdma_session_create(&pair.end[role], &s), 0);
	}
	return pair;
}

static void close_pair(struct pair *pair)
{
	pair_destroy(pair);
	pair_close();
}

/* --- begin of an epoch ---------------------------------------------------- */

static void test_illegal_rekey_limits_are_refused(void **state)
{
	const struct protection p = gcm();
	const struct srdma_session_params good = pair_params(&p, 0);
	struct srdma_session_params bad;
	struct srdma_session *s;

	(void)state;
	for (int i = 0; i < 3; i++) {
		bad = good;
		bad.rekey_packets = SRDMA_REKEY_PACKETS + (i == 0);
		bad.rekey_bytes = SRDMA_REKEY_BYTES + (i == 1);
		bad.rekey_ns = SRDMA_REKEY_NS + (i == 2);
		assert_int_equal(srdma_session_create(&s, &bad), -EINVAL);
	}
}

/*
 * An epoch ends exactly at each of its limits (packets, bytes, ns), but only
 * after an ack of one of its packets.
 */
/* review A18 */
static void test_each_limit_begins_epoch(void **state)
{
	static const struct {
		uint64_t packets, bytes, ns;
		int until; /* packets of 8 bytes, one per 10 ns */
	} rows[] = {
		{ 5, 0, 0, 5 },	  { 0, 40, 0, 5 }, { 0, 33, 0, 5 },
		{ 0, 0, 50, 5 },  { 0, 0, 41, 5 }, { 1, 0, 0, 1 },
		{ 7, 24, 60, 3 }, { 0, 0, 10, 1 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct protection p = gcm();
		struct srdma_session_params params = pair_params(&p, 0);
		struct srdma_session *s;
		uint64_t now = 1000;

		params.rekey_packets = rows[i].packets;
		params.rekey_bytes = rows[i].bytes;
		params.rekey_ns = rows[i].ns;
		assert_int_equal(srdma_session_create(&s, &params), 0);
		for (uint32_t e = 0; e < 3; e++) {
			const uint64_t first = srdma_session_next_pn(s);

			for (int n = 0; n < rows[i].until; n++, now += 10) {
				if (n || !e)
					assert_int_equal(srdma_session_advance(
								 s, now, EVER),
							 0);
				sealed(s);
			}
			assert_int_equal(
				srdma_session_advance(s, now, first - 1),
				-EAGAIN);
			epochs_are(s, e, 0);
			sealed(s); /* still with the old key */
			assert_int_equal(srdma_session_advance(s, now, first),
					 1);
			epochs_are(s, e + 1, 0);
		}
		srdma_session_destroy(s);
	}
}

/* A session follows the peer's epochs one at a time, each after an ack. */
static void test_session_follows_peer_epochs(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];

	(void)state;
	pass(a, b);
	pass(b, a);
	assert_int_equal(srdma_session_advance(b, 0, told(a)), 0);
	for (uint32_t e = 1; e < 4; e++) {
		step(a);
		pass(a, b);
		epochs_are(b, 0, e);
	}
	for (uint32_t e = 1; e < 4; e++) {
		const uint64_t before = told(a);

		assert_int_equal(srdma_session_advance(b, 0, before), 1);
		epochs_are(b, e, 3);
		/* no packet of the new epoch is acknowledged */
		assert_int_equal(srdma_session_advance(b, 0, before),
				 e < 3 ? -EAGAIN : 0);
		pass(b, a);
		epochs_are(a, 3, e);
	}
	assert_int_equal(srdma_session_advance(b, 0, told(a)), 0);
	close_pair(&pair);
}

/*
 * A session without acks cannot begin the next epoch. It stops at the limit of
 * its key, whose last 8 packets only a NAK or CLOSE may use.
 */
static void test_silent_peer_stops_session(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *s = pair.end[0];
	struct srdma_packet last = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.ack = { .kind = SRDMA_ACK_CLOSE,
			 .reason = SRDMA_REASON_KEY_LIMIT }
	};

	(void)state;
	assert_int_equal(srdma_session_limit(s, 256, 1), 0);
	for (int n = 0; n < 248; n++) {
		assert_int_equal(srdma_session_advance(s, 0, 0),
				 n < 128 ? 0 : -EAGAIN);
		sealed(s);
	}
	for (int n = 0; n < 8; n++) {
		assert_int_equal(send(s, next_id, 8), -EKEYEXPIRED);
		assert_true(srdma_session_seal(s, &last, NULL, out,
					       sizeof(out)) > 0);
	}
	assert_int_equal(srdma_session_seal(s, &last, NULL, out, sizeof(out)),
			 -EKEYEXPIRED);
	assert_int_equal(srdma_session_next_pn(s), PAIR_FIRST_PN + 256);
	/* an ack permits the next epoch */
	assert_int_equal(srdma_session_advance(s, 0, PAIR_FIRST_PN), 1);
	sealed(s);
	close_pair(&pair);
}

/*
 * After half the permitted forgeries a session begins a new epoch, once, and
 * the peer follows. Forgeries of the old epoch then do not count any more.
 */
static void test_forgeries_begin_epoch(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];
	struct datagram d;

	(void)state;
	assert_int_equal(srdma_session_limit(b, 1000, 10), 0);
	pass(a, b);
	pass(b, a);
	for (int n = 1; n <= 5; n++) {
		assert_int_equal(srdma_session_advance(b, 0, told(a)), 0);
		d = sealed(a);
		d.data[20] ^= 1;
		assert_int_equal(opened(b, &d), -SRDMA_REFUSED_TAG);
	}
	assert_int_equal(srdma_session_advance(b, 0, told(a)), 1);
	pass(b, a);
	assert_int_equal(srdma_session_advance(b, 0, told(a)), 0);
	assert_int_equal(srdma_session_advance(a, 0, told(b)), 1);
	pass(a, b);
	epochs_are(b, 1, 1);
	assert_int_equal(srdma_session_advance(b, 0, told(a)), 0);
	/* while the old key lives */
	assert_int_equal(srdma_session_forgeries(b), 5);
	for (int n = 0; n < 9; n++) {
		d = sealed(a);
		d.data[20] ^= 1;
		assert_int_equal(opened(b, &d), -SRDMA_REFUSED_TAG);
		assert_int_equal(srdma_session_spent(b), 0);
	}
	assert_int_equal(opened(b, &d), -SRDMA_REFUSED_TAG);
	assert_int_equal(srdma_session_spent(b), 1);
	close_pair(&pair);
}

/* At the last epoch, sessions continue with the keys that they have. */
static void test_last_epoch(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];
	struct srdma_packet last = {
		.opcode = SRDMA_OP_ACKNOWLEDGE,
		.ack = { .kind = SRDMA_ACK_CLOSE,
			 .reason = SRDMA_REASON_KEY_LIMIT }
	};
	struct datagram d;

	(void)state;
	for (int i = 0; i < 2; i++)
		pair.end[i]->tx.epochs.number = pair.end[i]->rx.epochs.number =
			UINT32_MAX - 1;
	pass(a, b);
	step(a);
	pass(a, b);
	epochs_are(b, UINT32_MAX - 1, UINT32_MAX);
	d = sealed(a);
	/* as in epoch 2^32 */
	d.data[8] = (uint8_t)((d.data[8] & ~0x0c) | 0 << 2);
	assert_int_equal(opened(b, &d), -SRDMA_REFUSED_EPOCH);
	a->rekey.packets = 1;
	a->due = 0;
	assert_int_equal(srdma_session_advance(a, 0, EVER), 0);
	assert_int_equal(send(a, next_id, 8), -EKEYEXPIRED);
	for (int n = 0; n < 8; n++) {
		assert_int_equal(srdma_session_advance(a, 0, EVER), 0);
		assert_true(srdma_session_seal(a, &last, NULL, out,
					       sizeof(out)) > 0);
	}
	assert_int_equal(srdma_session_seal(a, &last, NULL, out, sizeof(out)),
			 -EKEYEXPIRED);
	epochs_are(a, UINT32_MAX, UINT32_MAX - 1);
	close_pair(&pair);
}

/* --- accepted packets ----------------------------------------------------- */

/*
 * Late packets of an epoch are accepted after the next epoch began, until the
 * window has passed the first verified packet of the next epoch. Then the old
 * key is wiped.
 */
static void check_reordering(unsigned mode, uint32_t window)
{
	struct pair pair = open_gcm(mode, window);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];
	const struct srdma_epoch_key *before =
		&b->rx.epochs.key[SRDMA_EPOCH_BEFORE];
	struct datagram old[3], d;
	uint64_t first;

	pass(a, b);
	for (int i = 0; i < 3; i++)
		old[i] = sealed(a);
	step(a);
	first = srdma_session_next_pn(a);
	d = sealed(a);
	pass(a, b);
	assert_int_equal(opened(b, &old[0]), 0);
	assert_int_equal(opened(b, &d), 0);
	assert_int_equal(opened(b, &old[0]), -SRDMA_REFUSED_REPLAY);
	epochs_are(b, 0, 1);
	/* the first verified packet was first + 1 */
	while (srdma_session_next_pn(a) < first + 1 + window)
		pass(a, b);
	assert_int_equal(before->live, 1);
	d = old[1];
	d.data[20] ^= 1;
	assert_int_equal(opened(b, &d), -SRDMA_REFUSED_REPLAY);
	pass(a, b);
	assert_int_equal(told(b), first + 1 + window);
	assert_int_equal(before->live, 0);
	for (size_t i = 0; i < sizeof(*before); i++)
		assert_int_equal(((const uint8_t *)before)[i], 0);
	assert_int_equal(opened(b, &old[2]), -SRDMA_REFUSED_REPLAY);
	close_pair(&pair);
}

static void test_reordering_at_epoch_change(void **state)
{
	(void)state;
	for (unsigned m = 0; m < MODES; m++) {
		check_reordering(m, 64);
		check_reordering(m, 1024);
	}
}

/*
 * Creates a second sender of the same direction, whose packet number and epoch
 * are ahead by these amounts.
 */
static struct srdma_session *twin(uint64_t numbers, uint32_t epochs)
{
	const struct protection p = gcm();
	struct srdma_session_params params = pair_params(&p, 0);
	struct srdma_session *s;

	params.tx_pn += numbers;
	assert_int_equal(srdma_session_create(&s, &params), 0);
	while (epochs--)
		step(s);
	return s;
}

/* Expects this result for a packet of such a sender. */
static void refused(struct srdma_session *to, uint64_t numbers, uint32_t epochs,
		    int why)
{
	struct srdma_session *s = twin(numbers, epochs);
	struct datagram d = sealed(s);

	assert_int_equal(opened(to, &d), why);
	srdma_session_destroy(s);
}

/*
 * A packet carries 2 bits of its epoch: an epoch that has the bits of an
 * accepted one fails at the tag. The packet numbers of an epoch must be above
 * those of earlier epochs.
 */
static void test_epochs_with_equal_bits(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];

	(void)state;
	for (int n = 0; n < 10; n++)
		sealed(a);
	pass(a, b); /* number 10 */
	refused(b, 20, 2, -SRDMA_REFUSED_EPOCH);
	/* these bits mean the previous epoch, which does not exist */
	refused(b, 20, 3, -SRDMA_REFUSED_EPOCH);
	refused(b, 20, 4, -SRDMA_REFUSED_TAG);
	refused(b, 20, 5, -SRDMA_REFUSED_TAG);
	refused(b, 9, 1, -SRDMA_REFUSED_EPOCH); /* not above the highest */
	step(a);
	pass(a, b);				 /* number 11 of epoch 1 */
	refused(b, 12, 0, -SRDMA_REFUSED_EPOCH); /* not below the first */
	refused(b, 12, 4, -SRDMA_REFUSED_EPOCH);
	refused(b, 12, 5, -SRDMA_REFUSED_TAG);
	refused(b, 12, 6, -SRDMA_REFUSED_TAG);
	refused(b, 9, 4, -SRDMA_REFUSED_TAG);
	epochs_are(b, 0, 1);
	refused(b, 9, 0, 0);
	refused(b, 12, 2, 0);
	epochs_are(b, 0, 2);
	close_pair(&pair);
}

/* Forged packets of the next epoch cost one derivation and change no state. */
static void check_forged(unsigned mode)
{
	struct pair pair = open_gcm(mode, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];
	const struct srdma_epoch_key *chain =
		&b->rx.epochs.key[SRDMA_EPOCH_CHAIN];
	const struct srdma_suite_ctx *made = NULL;
	uint64_t misses = 0;
	struct datagram d;

	pass(a, b);
	for (int n = 0; n < 5; n++) {
		const struct srdma_window window = b->window;

		d = sealed(a);
		d.data[8] ^= 0x04;
		assert_int_equal(opened(b, &d), -SRDMA_REFUSED_TAG);
		assert_memory_equal(&window, &b->window, sizeof(window));
		epochs_are(b, 0, 0);
		if (n) {
			assert_ptr_equal(made, b->rx.epochs.pd
						       ? chain->slot->keyed.ctx
						       : chain->own.ctx);
			assert_int_equal(counts().misses, misses);
		}
		made = b->rx.epochs.pd ? chain->slot->keyed.ctx
				       : chain->own.ctx;
		misses = counts().misses;
	}
	assert_int_equal(srdma_session_forgeries(b), 5);
	step(a);
	pass(a, b);
	epochs_are(b, 0, 1);
	close_pair(&pair);
}

/* review A24 */
static void test_forged_next_epoch_derives_once(void **state)
{
	(void)state;
	for (unsigned m = 0; m < MODES; m++)
		check_forged(m);
}

/* Failed tags of the next epoch still count when that epoch has begun. */
static void test_forgeries_count_before_epoch_begins(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];

	(void)state;
	assert_int_equal(srdma_session_limit(b, 1000, 100), 0);
	pass(a, b);
	for (int n = 0; n < 5; n++) {
		struct datagram d = sealed(a);

		d.data[8] ^= 0x04; /* epoch 1 */
		assert_int_equal(opened(b, &d), -SRDMA_REFUSED_TAG);
	}
	step(a);
	pass(a, b);
	epochs_are(b, 0, 1);
	assert_int_equal(srdma_session_forgeries(b), 5);
	close_pair(&pair);
}

/* Epoch changes in both directions, in every protection and mode. */
static void check_life(const struct protection *how)
{
	struct pair pair;

	next_id = 0;
	assert_int_equal(pair_create(&pair, how), 0);
	for (uint32_t e = 0; e < 6; e++) {
		for (int n = 0; n < 3; n++) {
			pass(pair.end[0], pair.end[1]);
			pass(pair.end[1], pair.end[0]);
		}
		step(pair.end[e % 2]);
		pass(pair.end[e % 2], pair.end[!(e % 2)]);
		assert_int_equal(
			srdma_session_advance(pair.end[!(e % 2)], 0, EVER), 1);
	}
	pass(pair.end[0], pair.end[1]);
	epochs_are(pair.end[1], 6, 6);
	pair_destroy(&pair);
}

static void test_epochs_in_every_protection_and_mode(void **state)
{
	(void)state;
	for_all(0, check_life);
	for_all(2, check_life);
}

/* --- new secrets ---------------------------------------------------------- */

static const uint8_t fresh[2][SRDMA_MAX_SECRET] = { "a new secret, S'",
						    "yet another one " };

/*
 * Gives the receiver (end 1) its new secret. In a mode with PD it derives from
 * a K_PD that replaces the newest.
 */
static int give_rx(struct pair *pair, int i)
{
	uint8_t group[SRDMA_GROUP_KEY_LEN] = { (uint8_t)(7 + i) };
	struct srdma_session *b = pair->end[1];

	if (!b->rx.epochs.pd)
		return srdma_session_renew(b, SRDMA_RX, fresh[i], 0);
	if (!srdma_session_renewing(b, SRDMA_RX))
		assert_int_equal(srdma_pdkeys_rotate(b->rx.epochs.pd, group),
				 0);
	return srdma_session_renew(b, SRDMA_RX, NULL, b->rx.epochs.pd->serial);
}

static int give_tx(struct pair *pair, int i)
{
	const struct srdma_session *b = pair->end[1];
	uint8_t secret[SRDMA_MAX_SECRET];

	if (!b->rx.epochs.pd)
		return srdma_session_renew(pair->end[0], SRDMA_TX, fresh[i], 0);
	assert_int_equal(srdma_pdkeys_secret(b->rx.epochs.pd, secret, 16,
					     &b->rx.epochs.flow),
			 0);
	return srdma_session_renew(pair->end[0], SRDMA_TX, secret, 0);
}

/*
 * The receiver gets a new secret while the sender advances along the chain;
 * then the sender gets it. A second new secret follows.
 */
static void check_renewal(unsigned mode)
{
	struct pair pair = open_gcm(mode, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];

	pass(a, b);
	assert_int_equal(give_rx(&pair, 0), 0);
	assert_int_equal(give_rx(&pair, 0), -EBUSY);
	assert_int_equal(srdma_session_renewing(b, SRDMA_RX), 1);
	for (uint32_t e = 1; e < 3; e++) {
		step(a);
		pass(a, b);
		epochs_are(b, 0, e);
		assert_int_equal(srdma_session_renewing(b, SRDMA_RX), 1);
	}
	assert_int_equal(give_tx(&pair, 0), 0);
	assert_int_equal(give_tx(&pair, 0), -EBUSY);
	assert_int_equal(srdma_session_renewing(a, SRDMA_TX), 1);
	pass(a, b); /* not acknowledged yet */
	assert_int_equal(srdma_session_advance(a, 0, 0), -EAGAIN);
	assert_int_equal(srdma_session_advance(a, 0, told(b)), 1);
	assert_int_equal(srdma_session_renewing(a, SRDMA_TX), 0);
	pass(a, b);
	epochs_are(b, 0, 3);
	assert_int_equal(srdma_session_renewing(b, SRDMA_RX), 0);
	step(a); /* the next secret of the new chain */
	pass(a, b);
	for (int n = 0; n < 70; n++)
		pass(a, b);
	assert_int_equal(give_rx(&pair, 1), 0);
	assert_int_equal(give_tx(&pair, 1), 0);
	assert_int_equal(srdma_session_advance(a, 0, told(b)), 1);
	pass(a, b);
	epochs_are(b, 0, 5);
	if (b->rx.epochs.pd) { /* the old K_PD lives as long as its epoch */
		assert_int_equal(b->rx.epochs.pd->users_before, 1);
		assert_int_equal(srdma_pdkeys_rotate(b->rx.epochs.pd, out),
				 -EBUSY);
		for (int n = 0; n < 70; n++)
			pass(a, b);
		assert_int_equal(b->rx.epochs.pd->users_before, 0);
	}
	close_pair(&pair);
}

static void test_new_secrets(void **state)
{
	(void)state;
	for (unsigned m = 0; m < MODES; m++)
		if (!modes[m].shared)
			check_renewal(m);
}

static void test_no_new_secret_for_group_or_level_none(void **state)
{
	const struct protection bare = none();
	struct pair pair = open_gcm(2, 64); /* trust group */

	(void)state;
	for (int direction = SRDMA_RX; direction <= SRDMA_TX; direction++)
		assert_int_equal(srdma_session_renew(pair.end[0], direction,
						     fresh[0], 0),
				 -EINVAL);
	close_pair(&pair);
	assert_int_equal(pair_create(&pair, &bare), 0);
	for (int direction = SRDMA_RX; direction <= SRDMA_TX; direction++)
		assert_int_equal(srdma_session_renew(pair.end[0], direction,
						     fresh[0], 0),
				 -EINVAL);
	pair.end[0]->rekey.packets = 1;
	for (next_id = 0; next_id < 5;) {
		assert_int_equal(srdma_session_advance(pair.end[0], 0, EVER),
				 0);
		pass(pair.end[0], pair.end[1]);
	}
	epochs_are(pair.end[1], 0, 0);
	assert_int_equal(srdma_session_secret_len(pair.end[0]), 0);
	pair_destroy(&pair);
}

/* --- wiping of keys ------------------------------------------------------- */

static uint32_t key_bytes(const struct srdma_session *s)
{
	struct srdma_session_state state;

	srdma_session_state(s, &state);
	return state.key_bytes;
}

/* Key bytes during an epoch change, with keys and secrets of 16 bytes. */
static void test_stored_key_bytes(void **state)
{
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];
	struct datagram d;

	(void)state;
	pass(a, b);
	assert_int_equal(key_bytes(b), 64);
	d = sealed(a);
	d.data[8] ^= 0x04;
	opened(b, &d);
	assert_int_equal(key_bytes(b), 64 + 32); /* the next key and its S */
	assert_int_equal(give_rx(&pair, 0), 0);
	assert_int_equal(key_bytes(b), 64 + 32 + 16);
	opened(b, &d);
	assert_int_equal(key_bytes(b), 64 + 32 + 32);
	step(a);
	pass(a, b);
	/* the former key, and the new secret without a key */
	assert_int_equal(key_bytes(b), 64 + 16 + 16);
	assert_int_equal(key_bytes(a), 64);
	for (int n = 0; n < 65; n++)
		pass(a, b);
	assert_int_equal(key_bytes(b), 64 + 16);
	close_pair(&pair);
}

/* A session without PD keeps no secret of a former epoch. */
/* review A27 */
static void test_former_secrets_are_wiped(void **state)
{
	const struct protection p = gcm();
	const struct srdma_session_params first = pair_params(&p, 0);
	struct pair pair = open_gcm(0, 64);
	struct srdma_session *a = pair.end[0], *b = pair.end[1];
	uint8_t second[16];

	(void)state;
	pass(a, b);
	assert_non_null(memmem(a, sizeof(*a), first.tx_secret, 16));
	assert_non_null(memmem(b, sizeof(*b), first.tx_secret, 16));
	step(a);
	assert_null(memmem(a, sizeof(*a), first.tx_secret, 16));
	memcpy(second, a->tx.epochs.key[SRDMA_EPOCH_NOW].secret, 16);
	pass(a, b);
	assert_null(memmem(b, sizeof(*b), first.tx_secret, 16));
	assert_non_null(memmem(b, sizeof(*b), second, 16));
	step(a);
	pass(a, b);
	assert_null(memmem(a, sizeof(*a), second, 16));
	assert_null(memmem(b, sizeof(*b), second, 16));
	close_pair(&pair);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_illegal_rekey_limits_are_refused),
		cmocka_unit_test(test_each_limit_begins_epoch),
		cmocka_unit_test(test_session_follows_peer_epochs),
		cmocka_unit_test(test_silent_peer_stops_session),
		cmocka_unit_test(test_forgeries_begin_epoch),
		cmocka_unit_test(test_last_epoch),
		cmocka_unit_test(test_reordering_at_epoch_change),
		cmocka_unit_test(test_epochs_with_equal_bits),
		cmocka_unit_test(test_forged_next_epoch_derives_once),
		cmocka_unit_test(test_forgeries_count_before_epoch_begins),
		cmocka_unit_test(test_epochs_in_every_protection_and_mode),
		cmocka_unit_test(test_new_secrets),
		cmocka_unit_test(test_no_new_secret_for_group_or_level_none),
		cmocka_unit_test(test_stored_key_bytes),
		cmocka_unit_test(test_former_secrets_are_wiped),
	};

	return cmocka_run_group_tests(tests, fill_text, NULL);
}
