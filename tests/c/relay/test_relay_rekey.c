/*
 * Epochs of QPs between two relays: new secrets, rotation of K_PD, and the
 * error if a needed epoch cannot begin (docs/protocol.md 3.5;
 * local-interface.md 3).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/inside.h"
#include "support/relay_pair.h"

enum { SECRET = 16 };

static struct srdma_qp *qp_of(struct pair *p, int side, int i)
{
	return srdma_relay_qp(p->side[side].relay, p->side[side].qp[i].qpn);
}

static uint32_t epoch(struct pair *p, int side, enum srdma_direction direction)
{
	return srdma_session_epoch(srdma_qp_session(qp_of(p, side, 0)),
				   direction);
}

static const struct srdma_stats *stats(struct pair *p, int side)
{
	return srdma_relay_stats(p->side[side].relay);
}

static void open_in(struct pair *p, uint8_t mode)
{
	p->mode = mode;
	pair_open(p);
	pair_connect(p, 0);
}

static void post_write(struct pair *p, int side, uint64_t id, uint32_t len)
{
	pair_post(p, side,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_WRITE,
			  .id = id,
			  .length = len,
			  .local_addr = (uintptr_t)p->side[side].memory,
			  .remote_addr = (uintptr_t)p->side[!side].memory },
		  NULL);
}

/* A WRITE from `side` succeeds and its bytes arrive. */
static void write_ok(struct pair *p, int side, uint32_t len)
{
	static uint8_t seed;

	memset(p->side[side].memory, ++seed, len);
	post_write(p, side, seed, len);
	pair_settle(p);
	pair_expect(p, side, seed, SRDMA_REASON_NONE);
	assert_memory_equal(p->side[0].memory, p->side[1].memory, len);
}

static int rekey(struct pair *p, int side, enum srdma_direction direction,
		 uint8_t byte)
{
	struct srdma_qp_rekey k = { .qpn = p->side[side].qp[0].qpn,
				    .direction = (uint8_t)direction,
				    .secret_len = SECRET };

	memset(k.secret, byte, SECRET);
	return srdma_relay_qp_rekey(p->side[side].relay, p->side[side].leg, &k);
}

/* --- new secrets ---------------------------------------------------------- */

/*
 * New secrets in both directions of a QP that sends nothing else: a PING begins
 * the epoch.
 */
static void test_idle_qp_takes_new_secrets(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	open_in(&p, SRDMA_MODE_BASIC);
	for (uint32_t n = 1; n <= 5; n++) {
		for (int side = 0; side < 2; side++) {
			struct srdma_qp_rekey k = {
				.qpn = p.side[side].qp[0].qpn
			};
			uint8_t byte = (uint8_t)(0x10 * n + (uint32_t)side);

			assert_int_equal(rekey(&p, !side, SRDMA_RX, byte), 0);
			/* query: 0 if no secret is waiting, else -EBUSY */
			assert_int_equal(
				srdma_relay_qp_rekey(p.side[side].relay,
						     p.side[side].leg, &k),
				side ? -EBUSY : 0);
			assert_int_equal(rekey(&p, side, SRDMA_TX, byte), 0);
		}
		pair_settle(&p);
		for (int side = 0; side < 2; side++) {
			assert_int_equal(epoch(&p, side, SRDMA_TX), n);
			assert_int_equal(epoch(&p, side, SRDMA_RX), n);
			assert_int_equal(stats(&p, side)->rekeys_sent, n);
			assert_int_equal(stats(&p, side)->rekeys_received, n);
			write_ok(&p, side, 10000);
		}
	}
	pair_close(&p);
}

/* --- K_PD ----------------------------------------------------------------- */

static uint32_t rotate(struct pair *p, int side, uint32_t age)
{
	uint32_t serial;

	assert_int_equal(srdma_relay_leg_rotate(p->side[side].relay,
						p->side[side].leg, age,
						&serial),
			 0);
	return serial;
}

/*
 * Does what the key exchange does in key mode pd: asks the receiver for a
 * secret (KEY) and installs it there (REKEY). Returns the result of that REKEY;
 * *k is then the REKEY for the sender.
 */
static int take_pd(struct pair *p, int receiver, int i,
		   struct srdma_qp_rekey *k)
{
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_secret key;
	int err;

	*k = (struct srdma_qp_rekey){ .direction = SRDMA_RX,
				      .secret_len = SECRET };
	pair_key(p, receiver, i, &key);
	assert_int_equal(srdma_relay_qp_secret(p->side[receiver].relay,
					       p->side[receiver].leg, &key,
					       &answer),
			 0);
	k->qpn = p->side[receiver].qp[i].qpn;
	err = srdma_relay_qp_rekey(p->side[receiver].relay,
				   p->side[receiver].leg, k);
	k->direction = SRDMA_TX;
	k->qpn = p->side[!receiver].qp[i].qpn;
	memcpy(k->secret, answer.secret, SECRET);
	return err;
}

static int give_pd(struct pair *p, int receiver, const struct srdma_qp_rekey *k)
{
	return srdma_relay_qp_rekey(p->side[!receiver].relay,
				    p->side[!receiver].leg, k);
}

static void renew_pd(struct pair *p, int receiver, int i)
{
	struct srdma_qp_rekey k;

	assert_int_equal(take_pd(p, receiver, i, &k), 0);
	assert_int_equal(give_pd(p, receiver, &k), 0);
}

/*
 * The leg gets a new K_PD. The old one is wiped as soon as no QP receives with
 * it, and not earlier.
 */
static void test_rotation_wipes_old_key_after_last_use(void **state)
{
	struct srdma_pdkeys *keys;
	uint8_t first[SRDMA_GROUP_KEY_LEN];
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.key_cache = 8;
	open_in(&p, SRDMA_MODE_PD);
	keys = &p.side[1].leg->keys;
	memcpy(first, keys->pd, sizeof(first));
	write_ok(&p, 0, 9000);
	/* the key is younger than the limit */
	assert_int_equal(rotate(&p, 1, 3600), 0);
	assert_int_equal(rotate(&p, 1, 0), 1);
	assert_memory_equal(keys->before, first, sizeof(first));
	assert_memory_not_equal(keys->pd, first, sizeof(first));
	/* the QP still uses the first key */
	assert_int_equal(rotate(&p, 1, 0), 1);
	write_ok(&p, 0, 9000);
	renew_pd(&p, 1, 0);
	pair_settle(&p);
	assert_int_equal(epoch(&p, 1, SRDMA_RX), 1);
	for (int n = 0; n < 70; n++) /* the window moves past the old epoch */
		write_ok(&p, 0, 8);
	for (size_t i = 0; i < sizeof(first); i++)
		assert_int_equal(keys->before[i], 0);
	assert_int_equal(rotate(&p, 1, 0), 2);
	pair_close(&p);
}

/*
 * An idle QP releases the old K_PD some time after the new epoch began,
 * although its window does not move.
 */
static void test_idle_qp_releases_old_key(void **state)
{
	struct pair p;

	(void)state;
	pair_defaults(&p);
	open_in(&p, SRDMA_MODE_PD);
	assert_int_equal(srdma_relay_leg_behind(p.side[1].leg), 0);
	assert_int_equal(rotate(&p, 1, 0), 1);
	assert_true(srdma_relay_leg_behind(p.side[1].leg) > 0);
	renew_pd(&p, 1, 0);
	pair_settle(&p);
	/* still in use, because late packets of the old epoch may arrive */
	assert_int_equal(rotate(&p, 1, 0), 1);
	assert_true(srdma_relay_leg_behind(p.side[1].leg) > 0);
	pair_wait_ms(&p, 2000);
	assert_int_equal(rotate(&p, 1, 3600), 1);
	assert_int_equal(srdma_relay_leg_behind(p.side[1].leg), 0);
	write_ok(&p, 0, 9000);
	assert_int_equal(rotate(&p, 1, 0), 2);
	pair_close(&p);
}

static enum srdma_mem_fate lose_close(void *ctx, struct srdma_mem_datagram *d)
{
	(void)ctx;
	return d->side ? SRDMA_MEM_DROP : SRDMA_MEM_PASS;
}

/* A QP that failed before it took up new secrets keeps the old K_PD until the
 * next ROTATE. It takes no packet then. */
static void test_failed_qp_releases_old_key(void **state)
{
	struct pair p;
	uint64_t refused;

	(void)state;
	pair_defaults(&p);
	open_in(&p, SRDMA_MODE_PD);
	assert_int_equal(rotate(&p, 1, 0), 1);
	p.wire.fate = lose_close; /* the peer does not learn of the error */
	assert_int_equal(srdma_relay_qp_expire(p.side[1].relay, p.side[1].leg,
					       p.side[1].qp[0].qpn),
			 0);
	assert_true(srdma_relay_leg_behind(p.side[1].leg) > 0);
	assert_int_equal(rotate(&p, 1, 3600), 1);
	assert_int_equal(srdma_relay_leg_behind(p.side[1].leg), 0);
	refused = pair_refused(&p, 1, SRDMA_REFUSED_QP_STATE);
	post_write(&p, 0, 1, 8);
	pair_settle(&p);
	assert_true(pair_refused(&p, 1, SRDMA_REFUSED_QP_STATE) > refused);
	assert_int_equal(rotate(&p, 1, 0), 2);
	pair_close(&p);
}

/* --- refusals and queries of REKEY ---------------------------------------- */

static int give(struct pair *p, struct srdma_qp_rekey k)
{
	k.qpn = p->side[0].qp[0].qpn;
	return srdma_relay_qp_rekey(p->side[0].relay, p->side[0].leg, &k);
}

static void test_rekey_query_reports_waiting_secret(void **state)
{
	struct srdma_qp_rekey asked = { 0 }, long_ = { .secret_len = SECRET },
			      full = { .secret = { 1 } },
			      beyond = { .direction = 3,
					 .secret_len = SECRET,
					 .secret = { 1 } };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	open_in(&p, SRDMA_MODE_BASIC);
	assert_int_equal(give(&p, asked), 0);
	assert_int_equal(give(&p, long_), -EINVAL);
	assert_int_equal(give(&p, full), -EINVAL);
	assert_int_equal(give(&p, beyond), -EINVAL);
	assert_int_equal(rekey(&p, 0, SRDMA_RX, 5), 0);
	assert_int_equal(give(&p, asked), -EBUSY);
	assert_int_equal(rekey(&p, 0, SRDMA_RX, 6), -EBUSY);
	assert_int_equal(rekey(&p, 1, SRDMA_TX, 5), 0);
	pair_settle(&p);
	assert_int_equal(give(&p, asked), 0);
	assert_int_equal(rekey(&p, 1, SRDMA_RX, 7), 0);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 7), 0);
	assert_int_equal(give(&p, asked), -EBUSY);
	pair_settle(&p);
	assert_int_equal(give(&p, asked), 0);
	write_ok(&p, 0, 5000);
	pair_close(&p);
}

static int is_taken_up(struct pair *p, int side)
{
	struct srdma_qp_rekey k = { .qpn = p->side[side].qp[0].qpn };

	return srdma_relay_qp_rekey(p->side[side].relay, p->side[side].leg, &k);
}

/*
 * Between REKEY at the receiver and REKEY at the sender, the sender's epochs
 * advance along the chain. If K_PD did not change, the next secret of the chain
 * equals the new one: the receiver takes the chain's epoch for the new secret,
 * and accepts the next REKEY while the sender still holds the first. The sender
 * refuses the second secret until the first one is in use.
 */
static void test_chain_advances_between_both_rekeys(void **state)
{
	(void)state;
	for (int rotated = 0; rotated < 2; rotated++) {
		struct srdma_qp_rekey first, second;
		struct pair p;

		pair_defaults(&p);
		p.rekey_packets = 4;
		open_in(&p, SRDMA_MODE_PD);
		if (rotated)
			rotate(&p, 1, 0);
		assert_int_equal(take_pd(&p, 1, 0, &first), 0);
		assert_int_equal(is_taken_up(&p, 1), -EBUSY);
		for (int n = 0; n < 4; n++)
			write_ok(&p, 0, 40000);
		assert_true(epoch(&p, 1, SRDMA_RX) > 1);
		assert_int_equal(is_taken_up(&p, 1), rotated ? -EBUSY : 0);
		if (rotated)
			assert_int_equal(take_pd(&p, 1, 0, &second), -EBUSY);
		else
			assert_int_equal(take_pd(&p, 1, 0, &second), 0);
		assert_int_equal(give_pd(&p, 1, &first), 0);
		assert_int_equal(give_pd(&p, 1, &second), -EBUSY);
		pair_settle(&p);
		if (rotated)
			assert_int_equal(take_pd(&p, 1, 0, &second), 0);
		assert_int_equal(give_pd(&p, 1, &second), 0);
		pair_settle(&p);
		assert_int_equal(is_taken_up(&p, 0), 0);
		assert_int_equal(is_taken_up(&p, 1), 0);
		write_ok(&p, 0, 40000);
		pair_close(&p);
	}
}

/*
 * An expired key fails both ends and the outstanding requests with KEY_LIMIT.
 */
static void test_expired_key_fails_both_ends(void **state)
{
	struct pair p;
	uint32_t why;

	(void)state;
	pair_defaults(&p);
	open_in(&p, SRDMA_MODE_BASIC);
	assert_int_equal(srdma_relay_qp_expire(p.side[0].relay, p.side[0].leg,
					       p.side[0].qp[0].qpn ^ 1),
			 -ENOENT);
	post_write(&p, 0, 1, 8);
	assert_int_equal(srdma_relay_qp_expire(p.side[0].relay, p.side[0].leg,
					       p.side[0].qp[0].qpn),
			 0);
	pair_settle(&p);
	pair_expect(&p, 0, 1, SRDMA_REASON_KEY_LIMIT);
	assert_int_equal(pair_state(&p, 0, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_KEY_LIMIT);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_PEER_ERROR);
	assert_int_equal(rekey(&p, 0, SRDMA_RX, 5), -ENOTCONN);
	pair_close(&p);
}

enum { ROUNDS = 12, SIZE = 9000 };

struct load {
	uint64_t random, posted[2], ended[2];
	uint32_t open[2][PAIR_MOST]; /* outstanding requests */
};

/* Loses one packet in 20. */
static enum srdma_mem_fate lose(void *ctx, struct srdma_mem_datagram *d)
{
	struct load *l = ctx;

	(void)d;
	l->random = l->random * UINT64_C(6364136223846793005) + 1;
	return (l->random >> 33) % 20 ? SRDMA_MEM_PASS : SRDMA_MEM_DROP;
}

/* All completed requests succeeded. */
static void look(struct pair *p, struct load *l, int side)
{
	struct srdma_record r;

	while (pair_record(p, side, &r)) {
		assert_int_equal(r.vendor_err, SRDMA_REASON_NONE);
		l->ended[side]++;
		for (int i = 0; i < PAIR_MOST; i++)
			l->open[side][i] -= p->side[side].qp[i].qpn == r.qpn;
	}
}

/* Keeps WRITEs outstanding on every QP of a side. */
static void work(struct pair *p, struct load *l, int side)
{
	look(p, l, side);
	for (int i = 0; i < PAIR_MOST; i++) {
		if (l->open[side][i] == 4)
			continue;
		l->open[side][i]++;
		pair_post(p, side,
			  (struct srdma_desc){
				  .opcode = SRDMA_DESC_WRITE,
				  .id = l->posted[side]++,
				  .qpn = p->side[side].qp[i].qpn,
				  .length = SIZE,
				  .local_addr = (uintptr_t)p->side[side].memory,
				  .remote_addr =
					  (uintptr_t)p->side[!side].memory },
			  NULL);
	}
}

/* Runs until no QP uses the old K_PD of the side. */
static void until_rotated(struct pair *p, struct load *l, int side)
{
	for (int n = 0; p->side[side].leg->keys.users_before; n++) {
		assert_in_range(n, 0, 100000);
		work(p, l, 0);
		work(p, l, 1);
		pair_run(p, 1);
	}
}

/* Rotates K_PD of both sides repeatedly, with 20 QPs under load. */
static void test_rotation_under_load(void **state)
{
	struct load l = { .random = 5 };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.mode = SRDMA_MODE_PD | SRDMA_MODE_MEM;
	p.depth = 16;
	p.key_cache = 16; /* fewer contexts than keys */
	p.wire.ctx = &l;
	pair_open(&p);
	for (int i = 0; i < PAIR_MOST; i++)
		pair_connect(&p, i);
	p.wire.fate = lose;
	for (uint32_t n = 0; n < ROUNDS; n++) {
		int side = (int)n % 2;

		work(&p, &l, 0);
		work(&p, &l, 1);
		pair_run(&p, 3);
		assert_int_equal(rotate(&p, side, 0), n / 2 + 1);
		assert_in_range(p.side[side].leg->keys.users_before, PAIR_MOST,
				3 * PAIR_MOST);
		for (int i = 0; i < PAIR_MOST; i++)
			renew_pd(&p, side, i);
		until_rotated(&p, &l, side);
	}
	p.wire.fate = NULL;
	pair_settle(&p);
	for (int side = 0; side < 2; side++) {
		look(&p, &l, side);
		assert_int_equal(l.ended[side], l.posted[side]);
		assert_true(stats(&p, side)->rekeys_received >=
			    PAIR_MOST * ROUNDS / 2);
	}
	pair_close(&p);
}

/* --- refusals ------------------------------------------------------------- */

static void says(const struct pair *p, const char *text)
{
	const char *why = srdma_relay_why(p->side[0].relay);

	if (!strstr(why, text))
		fail_msg("\"%s\" is not in \"%s\"", text, why);
}

static void test_rekey_refusals(void **state)
{
	struct srdma_qp_rekey good, k;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	pair_open(&p);
	pair_init_qp(&p, 0);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 1), -ENOTCONN);
	says(&p, "RTR or RTS");
	pair_init_qp(&p, 1);
	pair_connect(&p, 0);
	good = (struct srdma_qp_rekey){ .qpn = p.side[0].qp[0].qpn,
					.direction = SRDMA_RX,
					.secret_len = SECRET,
					.secret = { 1 } };
#define REKEY(err, text, ...)                                                  \
	do {                                                                   \
		k = good;                                                      \
		__VA_ARGS__;                                                   \
		assert_int_equal(srdma_relay_qp_rekey(p.side[0].relay,         \
						      p.side[0].leg, &k),      \
				 err);                                         \
		says(&p, text);                                                \
	} while (0)
	REKEY(-ENOENT, "no QP", k.qpn ^= 1);
	REKEY(-EINVAL, "must be 0 to 3", k.direction = 4);
	REKEY(-EINVAL, "must have 0", k.direction = SRDMA_REKEY_WITHDRAW);
	REKEY(-EINVAL, "must have 0", k.direction = 0);
	REKEY(-EINVAL, "where none belongs", k.direction = k.secret_len = 0);
	REKEY(-EINVAL, "must have 16", k.secret_len = 32);
	REKEY(-EINVAL, "must have 16", k.secret_len = 0);
	REKEY(-EINVAL, "no secret", k.secret[0] = 0);
	for (int direction = SRDMA_RX; direction <= SRDMA_TX; direction++) {
		good.direction = (uint8_t)direction;
		assert_int_equal(srdma_relay_qp_rekey(p.side[0].relay,
						      p.side[0].leg, &good),
				 0);
		REKEY(-EBUSY, "waits for the next epoch", (void)0);
		REKEY(-EBUSY, "waits for the next epoch",
		      k = (struct srdma_qp_rekey){ .qpn = good.qpn });
	}
	srdma_qp_fail(qp_of(&p, 0, 0), SRDMA_REASON_PEER_CLOSED, SRDMA_NONE, 0);
	REKEY(-ENOTCONN, "RTR or RTS", (void)0);
	pair_close(&p);
}

static void test_pd_rekey_refusals(void **state)
{
	struct srdma_qp_secret_answer answer;
	struct srdma_qp_secret key;
	uint32_t serial;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	open_in(&p, SRDMA_MODE_PD);
	assert_int_equal(rekey(&p, 0, SRDMA_RX, 1), -EINVAL);
	says(&p, "the worker derives the rx secret");
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 0), -EINVAL);
	srdma_qp_fail(qp_of(&p, 0, 0), SRDMA_REASON_PEER_CLOSED, SRDMA_NONE, 0);
	pair_key(&p, 0, 0, &key);
	assert_int_equal(srdma_relay_qp_secret(p.side[0].relay, p.side[0].leg,
					       &key, &answer),
			 -ENOTCONN);
	says(&p, "went to error");
	pair_close(&p);

	pair_defaults(&p);
	p.shared = 1;
	open_in(&p, SRDMA_MODE_PD);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 1), -EPERM);
	says(&p, "trust group");
	assert_int_equal(srdma_relay_leg_rotate(p.side[0].relay, p.side[0].leg,
						0, &serial),
			 -EPERM);
	says(&p, "trust group");
	pair_close(&p);

	pair_defaults(&p);
	p.suite = p.level = p.tag_len = 0;
	p.allow_unprotected = 1;
	open_in(&p, SRDMA_MODE_BASIC);
	assert_int_equal(rekey(&p, 0, SRDMA_TX, 1), -EINVAL);
	says(&p, "level none");
	pair_close(&p);
}

/* K_PD changes between KEY and KEYS of a QP. */
static void test_rotation_between_key_and_keys_calls(void **state)
{
	struct srdma_qp_keys k;
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.mode = SRDMA_MODE_PD;
	pair_open(&p);
	pair_init_qp(&p, 0); /* INIT and KEY */
	for (int side = 1; side >= 0; side--) {
		assert_int_equal(rotate(&p, side, 0), 1);
		assert_int_equal(rotate(&p, side, 0), 1);
		pair_keys(&p, side, 0, &k);
		assert_int_equal(srdma_relay_qp_keys(p.side[side].relay,
						     p.side[side].leg, &k),
				 0);
	}
	pair_settle(&p);
	write_ok(&p, 0, 5000);
	write_ok(&p, 1, 5000);
	pair_destroy_qp(&p, 0);
	for (int side = 0; side < 2; side++) {
		assert_int_equal(p.side[side].leg->keys.users_before, 0);
		assert_int_equal(p.side[side].leg->keys.users, 0);
	}
	pair_close(&p);
}

/*
 * An idle sender asks for a new epoch by PING under loss: PINGs are repeated
 * until the new secret is in use.
 */
static void test_lost_pings_delay_epoch_only(void **state)
{
	struct load l = { .random = 1 };
	struct pair p;

	(void)state;
	pair_defaults(&p);
	p.wire.ctx = &l;
	open_in(&p, SRDMA_MODE_BASIC);
	for (uint32_t n = 1; n < 60; n++) {
		uint8_t byte = (uint8_t)n;

		assert_int_equal(rekey(&p, 1, SRDMA_RX, byte), 0);
		assert_int_equal(rekey(&p, 0, SRDMA_TX, byte), 0);
		p.wire.fate = lose;
		l.random = n * 12345;
		for (int i = 0; i < 40 && epoch(&p, 1, SRDMA_RX) < n; i++)
			pair_wait_ms(&p, 100);
		p.wire.fate = NULL;
		assert_int_equal(epoch(&p, 1, SRDMA_RX), n);
	}
	pair_close(&p);
}

/* --- hard limit of a key -------------------------------------------------- */

struct listener {
	/* packets of side 0, by the 2 bits of their epoch */
	uint64_t sealed[4];
	int silent; /* 1: acks of side 1 are lost */
	int deaf;   /* 1: CLOSEs of side 0 are lost */
};

static enum srdma_mem_fate listen(void *ctx, struct srdma_mem_datagram *d)
{
	enum { TAG_BYTE = 8, KIND = 40 };
	struct listener *l = ctx;

	if (d->side)
		return l->silent && d->data[0] == SRDMA_OP_ACKNOWLEDGE
			       ? SRDMA_MEM_DROP
			       : SRDMA_MEM_PASS;
	l->sealed[d->data[TAG_BYTE] >> 2 & 3]++;
	return l->deaf && d->data[0] == SRDMA_OP_ACKNOWLEDGE &&
			       d->data[KIND] == SRDMA_ACK_CLOSE
		       ? SRDMA_MEM_DROP
		       : SRDMA_MEM_PASS;
}

/* Side 0 may seal 2^8 packets with a key and receives no acks. */
static void open_stuck(struct pair *p, struct listener *l)
{
	pair_defaults(p);
	p->window = 1024;
	p->wire.ctx = l;
	p->wire.fate = listen;
	p->wire.slots = p->wire.bufs = 2048;
	open_in(p, SRDMA_MODE_BASIC);
	assert_int_equal(
		srdma_session_limit(srdma_qp_session(qp_of(p, 0, 0)), 256, 1),
		0);
	l->silent = 1;
	post_write(p, 0, 1, 2 << 20);
	/*
	 * Responses are not acknowledged, so that side 0 can send enough of
	 * them.
	 */
	pair_post(p, 1,
		  (struct srdma_desc){
			  .opcode = SRDMA_DESC_READ,
			  .id = 1,
			  .length = 2 << 20,
			  .local_addr = (uintptr_t)p->side[1].memory,
			  .remote_addr = (uintptr_t)p->side[0].memory },
		  NULL);
	pair_settle(p);
}

/*
 * The QP fails with KEY_LIMIT and never seals a packet more, even if its CLOSE
 * has to be repeated.
 */
static void test_key_limit_is_never_exceeded(void **state)
{
	struct listener l = { .deaf = 1 };
	struct pair p;
	uint32_t why;

	(void)state;
	open_stuck(&p, &l);
	pair_expect(&p, 0, 1, SRDMA_REASON_KEY_LIMIT);
	pair_state(&p, 0, 0, &why);
	assert_int_equal(why, SRDMA_REASON_KEY_LIMIT);
	/*
	 * Epoch 0 was acknowledged, so that it ended after half of the packets
	 * of its key.
	 */
	assert_int_equal(l.sealed[0], 128);
	/* one CLOSE, and its repetition if the peer sent another packet */
	assert_in_range(l.sealed[1], 256 - 8 + 1, 256 - 8 + 2);
	l.silent = 0;
	post_write(&p, 1, 2, 8);
	for (int n = 0; n < 28; n++)
		pair_wait_ms(&p, 1000);
	assert_int_equal(l.sealed[0], 128);
	assert_int_equal(l.sealed[1], 256);
	assert_int_equal(l.sealed[2] + l.sealed[3], 0);
	pair_expect(&p, 1, 1, SRDMA_REASON_PEER_SILENT);
	pair_close(&p);
}

/* The peer that receives the CLOSE fails as well. */
static void test_key_limit_closes_peer(void **state)
{
	struct listener l = { 0 };
	struct pair p;
	uint32_t why;

	(void)state;
	open_stuck(&p, &l);
	assert_int_equal(pair_state(&p, 1, 0, &why), SRDMA_QP_ERR);
	assert_int_equal(why, SRDMA_REASON_PEER_ERROR);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle_qp_takes_new_secrets),
		cmocka_unit_test(test_rotation_wipes_old_key_after_last_use),
		cmocka_unit_test(test_rotation_under_load),
		cmocka_unit_test(test_rekey_refusals),
		cmocka_unit_test(test_pd_rekey_refusals),
		cmocka_unit_test(test_rotation_between_key_and_keys_calls),
		cmocka_unit_test(test_lost_pings_delay_epoch_only),
		cmocka_unit_test(test_idle_qp_releases_old_key),
		cmocka_unit_test(test_failed_qp_releases_old_key),
		cmocka_unit_test(test_rekey_query_reports_waiting_secret),
		cmocka_unit_test(test_chain_advances_between_both_rekeys),
		cmocka_unit_test(test_expired_key_fails_both_ends),
		cmocka_unit_test(test_key_limit_is_never_exceeded),
		cmocka_unit_test(test_key_limit_closes_peer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
