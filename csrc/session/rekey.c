/*
 * Decides when the epochs of a session change (docs/protocol.md 3.5). The TX
 * epoch changes after limits of packets, bytes or time, after a new secret, or
 * because the peer changed its epoch; the RX epoch follows verified packets.
 */
#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "session/session.h"
#include "session/session_state.h"

uint32_t srdma_session_epoch(const struct srdma_session *s,
			     enum srdma_direction direction)
{
	return direction == SRDMA_TX ? s->tx.epochs.number
				     : s->rx.epochs.number;
}

/* --- TX ----------------------------------------------------------------- */

/* 1 if the failed tags of a live RX epoch reached half of the forgery limit. A
 * new local TX epoch makes the peer change its TX epoch as well, and with it
 * the key that an attacker guesses. */
static int is_guessed(const struct srdma_session *s)
{
	const uint32_t e = s->rx.epochs.number;
	const uint64_t now = s->forgeries[e & 3],
		       next = s->forgeries[(e + 1) & 3],
		       n = now > next ? now : next;

	return n && n >= s->forgeries_max / 2 && s->tx.epochs.number <= e;
}

static int is_wanted(const struct srdma_session *s, uint64_t now)
{
	return s->tx.epochs.number < s->rx.epochs.number ||
	       s->sealed >= s->rekey.packets || s->bytes >= s->rekey.bytes ||
	       (s->sealed && now - s->began >= s->rekey.ns) ||
	       s->tx.epochs.key[SRDMA_EPOCH_FRESH].live || is_guessed(s);
}

/* The last epoch has no successor: only the reserved NAK and CLOSE remain. */
static void end(struct srdma_session *s)
{
	if (s->sealed_max > s->sealed + SRDMA_LAST_WORDS)
		s->sealed_max = s->sealed + SRDMA_LAST_WORDS;
}

int srdma_session_told(const struct srdma_session *s, uint64_t told)
{
	return told >= s->tx_first;
}

int srdma_session_advance(struct srdma_session *s, uint64_t now, uint64_t told)
{
	int r;

	if (now < s->due || !s->suite)
		return 0;
	if (!s->sealed)
		s->began = now;
	if (!is_wanted(s, now)) {
		s->due = s->began + s->rekey.ns;
		return 0;
	}
	if (s->tx.epochs.number == UINT32_MAX) {
		end(s);
		return 0;
	}
	if (!srdma_session_told(s, told))
		return -EAGAIN;
	r = srdma_epoch_step(&s->tx.epochs);
	if (r)
		return r;
	s->tx_first = s->tx_pn;
	s->sealed = s->bytes = 0;
	s->began = now;
	s->due = 0;
	return 1;
}

/* --- RX ----------------------------------------------------------------- */

uint64_t srdma_session_forgeries(const struct srdma_session *s)
{
	uint64_t most = 0;

	for (int i = 0; i < 4; i++)
		if (s->forgeries[i] > most)
			most = s->forgeries[i];
	return most;
}

int srdma_session_spent(const struct srdma_session *s)
{
	return s->spent;
}

void srdma_session_forged(struct srdma_session *s, uint8_t bits)
{
	s->spent |= ++s->forgeries[bits] >= s->forgeries_max;
	if (is_guessed(s))
		s->due = 0;
}

void srdma_session_follow(struct srdma_session *s, enum srdma_epoch_at at,
			  uint64_t pn)
{
	struct srdma_epochs *e = &s->rx.epochs;

	srdma_epoch_begin(e, at);
	/* Clears the counters of the two epochs that are not live. The counters
	 * of the current and the previous epoch remain. */
	s->forgeries[(e->number + 1) & 3] = 0;
	s->forgeries[(e->number + 2) & 3] = 0;
	s->rx_first = pn;
	s->rx_passed = pn + s->window.size;
	if (e->number > s->tx.epochs.number || is_guessed(s))
		s->due = 0;
}

void srdma_session_settle(struct srdma_session *s)
{
	if (!s->suite)
		return;
	srdma_epoch_forget(&s->rx.epochs, SRDMA_EPOCH_BEFORE);
	s->rx_passed = UINT64_MAX;
}

void srdma_session_close_rx(struct srdma_session *s)
{
	s->closed = 1;
	for (int at = 0; s->suite && at < SRDMA_EPOCHS; at++)
		srdma_epoch_forget(&s->rx.epochs, (enum srdma_epoch_at)at);
}

/* --- both directions ---------------------------------------------------- */

static struct srdma_epochs *epochs_of(struct srdma_session *s,
				      enum srdma_direction direction)
{
	return direction == SRDMA_TX ? &s->tx.epochs : &s->rx.epochs;
}

int srdma_session_renew(struct srdma_session *s, enum srdma_direction direction,
			const uint8_t *secret, uint32_t pd_serial)
{
	int r;

	if (!s->suite || s->tx.epochs.derived)
		return -EINVAL;
	r = srdma_epoch_give(epochs_of(s, direction), secret, pd_serial);
	if (r)
		return r;
	s->renewals[direction == SRDMA_TX]++;
	if (direction == SRDMA_TX)
		s->due = 0;
	return 0;
}

int srdma_session_withdraw(struct srdma_session *s)
{
	if (!s->renewals[0])
		return -ENODATA;
	if (srdma_session_renewing(s, SRDMA_RX))
		srdma_epoch_forget(&s->rx.epochs, SRDMA_EPOCH_FRESH);
	s->renewals[0]--;
	return 0;
}

int srdma_session_renewing(const struct srdma_session *s,
			   enum srdma_direction direction)
{
	const struct srdma_epochs *e =
		direction == SRDMA_TX ? &s->tx.epochs : &s->rx.epochs;

	return e->key[SRDMA_EPOCH_FRESH].live;
}

uint8_t srdma_session_secret_len(const struct srdma_session *s)
{
	return s->suite ? srdma_epoch_secret_len(s->suite) : 0;
}

static int is_endpoint(const struct srdma_endpoint *a,
		       const struct srdma_endpoint *b)
{
	return a->qpn == b->qpn && srdma_equal(a->eid, b->eid, SRDMA_EID_LEN);
}

int srdma_session_receives(const struct srdma_session *s,
			   const struct srdma_pdkeys_flow *flow,
			   uint8_t secret_len)
{
	const struct srdma_epochs *e = &s->rx.epochs;

	return e->derived && srdma_epoch_secret_len(e->suite) == secret_len &&
	       is_endpoint(&e->flow.receiver, &flow->receiver) &&
	       is_endpoint(&e->flow.sender, &flow->sender) &&
	       srdma_equal(e->flow.generation, flow->generation,
			   SRDMA_GENERATION_LEN);
}

int srdma_session_limit(struct srdma_session *s, uint64_t packets,
			uint64_t forgeries)
{
	if (packets > s->sealed_max || forgeries > s->forgeries_max)
		return -EINVAL;
	s->sealed_max = packets;
	s->forgeries_max = forgeries;
	s->spent = srdma_session_forgeries(s) >= forgeries;
	if (s->rekey.packets > packets / 2)
		s->rekey.packets = packets / 2;
	return 0;
}
