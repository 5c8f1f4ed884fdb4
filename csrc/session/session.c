#include "session/session.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "crypto/cmac.h"
#include "memory/memkey.h"
#include "base/prefetch.h"
#include "session/renewal.h"
#include "session/session_state.h"
#include "wire/wire.h"

enum { MTU_MIN = 256, WINDOW_ORDERED = 64 };

/* Checks that the mode is supported and has the objects that it needs. */
static int check_mode(const struct srdma_session_params *p)
{
	if (p->mode >= SRDMA_MODES)
		return -ENOTSUP;
	if ((p->mode & SRDMA_MODE_PD) && (!p->pd || !p->cache))
		return -EINVAL;
	if ((p->mode & SRDMA_MODE_MEM) &&
	    (!p->cmac || p->cmac->key_len != SRDMA_MEMKEY_LEN))
		return -EINVAL;
	return 0;
}

/* Checks that suite, level, mode, tag length and secret length agree. *suite is
 * NULL for level none. */
static int check_protection(const struct srdma_session_params *p,
			    const struct srdma_suite **suite)
{
	const struct srdma_suite *s = srdma_suite_by_id(p->suite);

	*suite = NULL;
	if (p->level == SRDMA_LEVEL_NONE)
		return p->suite || p->mode || p->tag_len || p->secret_len
			       ? -EINVAL
			       : 0;
	if (p->suite == 0)
		return -EINVAL;
	if (!s || p->level > SRDMA_LEVEL_AEAD || !(s->levels >> p->level & 1))
		return -ENOTSUP;
	if (!srdma_suite_tag_ok(s, p->tag_len) ||
	    p->secret_len != srdma_epoch_secret_len(s))
		return -EINVAL;
	*suite = s;
	return check_mode(p);
}

static int check_ends(const struct srdma_session_params *p)
{
	if (p->role > 1 || !p->local_qpn || p->local_qpn > SRDMA_MAX_QPN ||
	    !p->peer_qpn || p->peer_qpn > SRDMA_MAX_QPN)
		return -EINVAL;
	if (p->tx_pn >= SRDMA_NUMBER_END || p->rx_pn >= SRDMA_NUMBER_END)
		return -EINVAL;
	if (p->window != WINDOW_ORDERED && p->window != SRDMA_WINDOW_MAX)
		return -EINVAL;
	return p->mtu < MTU_MIN || p->mtu > SRDMA_MAX_PAYLOAD ? -EINVAL : 0;
}

static int check_rekey(const struct srdma_session_params *p)
{
	return p->rekey_packets > SRDMA_REKEY_PACKETS ||
			       p->rekey_bytes > SRDMA_REKEY_BYTES ||
			       p->rekey_ns > SRDMA_REKEY_NS
		       ? -EINVAL
		       : 0;
}

static void set_rekey(struct srdma_session *s,
		      const struct srdma_session_params *p)
{
	s->rekey.packets =
		p->rekey_packets ? p->rekey_packets : SRDMA_REKEY_PACKETS;
	s->rekey.bytes = p->rekey_bytes ? p->rekey_bytes : SRDMA_REKEY_BYTES;
	s->rekey.ns = p->rekey_ns ? p->rekey_ns : SRDMA_REKEY_NS;
}

int srdma_session_create(struct srdma_session **out,
			 const struct srdma_session_params *params)
{
	const struct srdma_suite *suite;
	struct srdma_session *s;
	int r;

	*out = NULL;
	r = check_protection(params, &suite);
	if (!r)
		r = check_ends(params);
	if (!r)
		r = check_rekey(params);
	if (r)
		return r;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->suite = suite;
	s->level = params->level;
	s->tag_len = params->tag_len;
	s->mtu = params->mtu;
	s->local_qpn = params->local_qpn;
	s->peer_qpn = params->peer_qpn;
	s->cmac = params->mode & SRDMA_MODE_MEM ? params->cmac : NULL;
	s->tx_pn = params->tx_pn;
	s->tx_first = params->tx_pn;
	s->sealed_max = suite ? suite->packets : SRDMA_NUMBER_END;
	s->forgeries_max = suite ? srdma_suite_forgeries(suite, params->tag_len)
				 : SRDMA_NUMBER_END;
	s->rx_passed = UINT64_MAX;
	set_rekey(s, params);
	srdma_window_init(&s->window, params->rx_pn, params->window);
	r = srdma_flow_create(&s->tx, suite, params, SRDMA_SUITE_SEAL);
	if (!r)
		r = srdma_flow_create(&s->rx, suite, params, SRDMA_SUITE_OPEN);
	if (!r)
		r = srdma_renewal_create(s);
	if (r) {
		srdma_session_destroy(s);
		return r;
	}
	*out = s;
	return 0;
}

void srdma_session_destroy(struct srdma_session *s)
{
	if (!s)
		return;
	srdma_flow_destroy(&s->tx);
	srdma_flow_destroy(&s->rx);
	srdma_wipe(s, sizeof(*s));
	free(s);
}

void srdma_session_state(const struct srdma_session *s,
			 struct srdma_session_state *state)
{
	*state = (struct srdma_session_state){
		.key_bytes = srdma_epoch_key_bytes(&s->tx.epochs) +
			     srdma_epoch_key_bytes(&s->rx.epochs),
		.nonce_bytes = sizeof(s->tx_pn) + sizeof(s->window.next) +
			       srdma_epoch_iv_bytes(&s->tx.epochs) +
			       srdma_epoch_iv_bytes(&s->rx.epochs),
		.window_bytes = sizeof(s->window.seen),
	};
}

int srdma_session_same_peer(const struct srdma_session *a,
			    const struct srdma_session *b)
{
	const struct srdma_epochs *x = &a->rx.epochs, *y = &b->rx.epochs;

	return x->suite && y->suite &&
	       memcmp(x->flow.sender.eid, y->flow.sender.eid, SRDMA_EID_LEN) ==
		       0;
}

void srdma_session_prefetch(const struct srdma_session *s, int directions)
{
	const size_t open = offsetof(struct srdma_session, peer_next);

	if (directions & SRDMA_TX)
		srdma_flow_ahead(&s->tx);
	if (directions & SRDMA_RX) {
		srdma_prefetch(&s->peer_next,
			       offsetof(struct srdma_session, rx) - open);
		srdma_flow_ahead(&s->rx);
		srdma_prefetch(&s->window, sizeof(s->window));
	}
	srdma_prefetch(s, directions & SRDMA_TX
				  ? offsetof(struct srdma_session, tx)
				  : offsetof(struct srdma_session, tx_pn));
}

void srdma_session_prefetch_keys(const struct srdma_session *s, int directions)
{
	if (directions & SRDMA_TX)
		srdma_epoch_ahead(&s->tx.epochs);
	if (directions & SRDMA_RX)
		srdma_epoch_ahead(&s->rx.epochs);
}

const struct srdma_endpoint *srdma_session_peer(const struct srdma_session *s)
{
	return s->suite ? &s->tx.epochs.flow.receiver : NULL;
}

uint64_t srdma_session_highest(const struct srdma_session *s)
{
	return s->window.next - 1;
}

uint64_t srdma_session_next_pn(const struct srdma_session *s)
{
	return s->tx_pn;
}

uint32_t srdma_session_control_len(const struct srdma_session *s, uint32_t gaps)
{
	return SRDMA_BTH_LEN + SRDMA_AETH_LEN + SRDMA_STH_LEN + s->tag_len +
	       SRDMA_ACK_BODY_LEN + gaps * SRDMA_GAP_LEN;
}

uint32_t srdma_session_overhead(const struct srdma_session *s)
{
	return SRDMA_MAX_HEADER - SRDMA_MAX_TAG + s->tag_len + 3;
}
