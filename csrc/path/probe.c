#include "path/probe.h"

#include "ledger/ledger.h"
#include "path/limit.h"
#include "path/path_impl.h"
#include "qp/env.h"
#include "qp/inbound.h"
#include "qp/qp.h"
#include "session/session.h"

enum { TRIES = 3 }; /* PINGs of a challenge while there is a candidate */

#define PAUSE_MOST (1000 * SRDMA_MS)
#define HOME_EVERY (1000 * SRDMA_MS) /* away from the own path */

/* 1: the QP sends to the address that the peer named. */
static int is_home(const struct srdma_qp_path *x)
{
	return x->own ? srdma_path_same(x->conn, x->own) : x->at_home;
}

/* --- challenges ------------------------------------------------------------ */

/* A random token that is not 0; 0: there are no random numbers. */
static uint32_t draw(struct srdma_path_table *t)
{
	const struct srdma_env *env = t->env;
	uint32_t token;

	if (!t->tokens &&
	    env->random(env->random_ctx, (uint8_t *)t->token, sizeof(t->token)))
		return 0;
	if (!t->tokens)
		t->tokens = SRDMA_PATH_TOKENS;
	token = t->token[--t->tokens] & SRDMA_PATH_TOKEN;
	return token ? token : 1;
}

/* Sends the challenge of a path, for the tries-th time. */
static void ask(struct srdma_qp_path *x, struct srdma_probe *p, int doubles)
{
	const int other = p == &x->other;
	const int opens = !p->valid && !other && x->conn == x->own &&
			  !srdma_qp_keyed(x->qp)->role;
	uint64_t pause = srdma_rtt_plain(&x->rtt);

	if (doubles)
		pause <<= p->tries < 20 ? p->tries : 20;
	p->due = x->env->now + (pause < PAUSE_MOST ? pause : PAUSE_MOST);
	p->tries++;
	if (!p->challenge)
		p->challenge = draw(x->env->paths);
	/* OPEN has a timer of its own (retry.c). */
	if (!opens)
		srdma_qp_schedule(x->qp,
				  other ? SRDMA_SAY_PROBE : SRDMA_SAY_PING);
	srdma_qp_wake(x->qp, p->due);
	srdma_qp_activate(x->qp);
}

/* --- the candidate ---------------------------------------------------------- */

void srdma_probe_end(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	struct srdma_conn *conn = x->candidate;

	if (!conn)
		return;
	if (conn == x->own)
		x->home_due = x->env->now + HOME_EVERY;
	x->candidate = NULL;
	x->contest = x->env->now + srdma_rtt_plain(&x->rtt);
	if (x->current.valid)
		x->current.challenge = 0;
	else
		srdma_qp_wake(qp, x->env->now);
	srdma_path_release(x->env->paths, conn);
}

/* The QP stays where it is. */
static void refuse(struct srdma_qp_path *x)
{
	if (x->candidate != x->own)
		x->env->stats.path_changes_refused++;
	srdma_probe_end(x->qp);
}

/* Keeps the connection. After a failure the next attempt waits for a round trip,
 * because each one examines unbound paths. */
static int adopt(struct srdma_qp_path *x, struct srdma_conn *conn)
{
	if (srdma_path_adopt(x->env->paths, conn, srdma_qp_identity(x->qp)))
		return 1;
	x->contest = x->env->now + srdma_rtt_plain(&x->rtt);
	return 0;
}

/* Challenges that path, and the present one too unless that path is home. size: of
 * the datagram that came from there, 0: none. */
static void contest(struct srdma_qp_path *x, struct srdma_conn *conn,
		    uint64_t size)
{
	const int home = conn == x->own;

	if (!adopt(x, conn))
		return;
	srdma_path_hold(x->env->paths, conn);
	x->candidate = conn;
	x->other = (struct srdma_probe){ .received = size,
					 .known = home && x->home_known };
	ask(x, &x->other, home);
	if (home)
		return;
	x->current.tries = 0;
	ask(x, &x->current, 0);
}

void srdma_probe_home(struct srdma_qp *qp)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);

	if (x->own && x->conn && !x->candidate && x->env->now >= x->contest &&
	    !srdma_path_same(x->conn, x->own))
		contest(x, x->own, 0);
}

/* Connects a server's QP to the address that the peer named, which becomes its
 * own path if the QP sends to another one. Without room it has none. */
static void make_home(struct srdma_qp_path *x)
{
	struct srdma_account *a = srdma_qp_identity(x->qp);
	struct srdma_port *wire = x->env->wire;
	struct srdma_conn *conn;

	x->at_home = 0;
	if (x->own || !srdma_qp_keyed(x->qp)->role ||
	    wire->ops->connect(wire, x->connect.address, &conn))
		return;
	x->at_home = (uint8_t)srdma_path_same(x->conn, conn);
	if (!x->at_home && !srdma_account_take(a, SRDMA_RES_HOMES, 1)) {
		if (!srdma_path_attach(x, conn))
			return;
		srdma_account_give(a, SRDMA_RES_HOMES, 1);
	}
	wire->ops->close(conn);
}

/* --- changes of the path ----------------------------------------------------- */

/* The QP sends to another address. Packets under way may be lost; PING requests
 * an ack that reports them. */
static void begin_anew(struct srdma_qp_path *x)
{
	srdma_path_restart(x->qp);
	if (srdma_inbound_busy(x->qp))
		srdma_inbound_progress(x->qp);
	if (srdma_qp_state(x->qp) == SRDMA_QP_RTS)
		srdma_qp_schedule(x->qp, SRDMA_SAY_PING);
	srdma_path_arm(x->qp);
	srdma_qp_activate(x->qp);
}

/* Changes to the candidate, which answered. */
static void change(struct srdma_qp_path *x)
{
	struct srdma_conn *conn = x->candidate;

	if (conn == x->own)
		x->env->stats.path_returns++;
	else
		x->env->stats.path_changes++;
	srdma_path_move(x, conn);
	srdma_limit_forget(x);
	x->current.valid = 1;
	srdma_probe_end(x->qp);
	make_home(x);
	x->home_due = is_home(x) ? SRDMA_NEVER : x->env->now + HOME_EVERY;
	srdma_connect_note(x->qp);
	begin_anew(x);
	if (!is_home(x) && x->own)
		contest(x, x->own, 0);
}

/* The first packet that verified decides where a QP without a path sends. */
static void begin(struct srdma_qp_path *x, struct srdma_conn *conn,
		  uint64_t size)
{
	if (!srdma_path_adopt(x->env->paths, conn, srdma_qp_identity(x->qp)))
		return;
	srdma_path_move(x, conn);
	srdma_limit_begin(x, size);
	make_home(x);
	x->current.known = x->home_known && is_home(x);
	srdma_connect_note(x->qp);
	if (srdma_qp_state(x->qp) == SRDMA_QP_ERR)
		return;
	srdma_path_restart(x->qp);
	ask(x, &x->current, 1);
	if (is_home(x))
		return;
	x->home_due = x->env->now + HOME_EVERY;
	if (x->own)
		contest(x, x->own, size);
}

/* Moves from the connection that was opened here to the one of the same address
 * on which packets arrive, if there is room. */
static void settle(struct srdma_qp_path *x, struct srdma_conn *conn)
{
	const struct srdma_probe current = x->current;

	if (!adopt(x, conn))
		return;
	srdma_path_move(x, conn);
	x->current = current;
}

/* Keeps the tokens of the peer, to send them back. A PING that is repeated has
 * the same one. */
static void keep_answer(struct srdma_qp_path *x, uint32_t token)
{
	for (int i = 0; i < x->answer_count; i++)
		if (x->answers[i] == token)
			return;
	if (token && x->answer_count < SRDMA_PATH_ANSWERS)
		x->answers[x->answer_count++] = token;
}

static void hear(struct srdma_qp_path *x, const struct srdma_packet *p,
		 int newest)
{
	const uint8_t kind = p->ack.kind;

	if (p->opcode != SRDMA_OP_ACKNOWLEDGE)
		return;
	if (kind == SRDMA_ACK_OPEN || kind == SRDMA_ACK_PING)
		keep_answer(x, p->ack.path & SRDMA_PATH_TOKEN);
	if (!newest)
		return;
	x->peer_limited = (p->ack.path & SRDMA_PATH_LIMITED) != 0;
	if (x->peer_limited)
		srdma_path_arm(x->qp);
}

/* The newest packet came from the present address. */
static void stay(struct srdma_qp_path *x, struct srdma_conn *conn)
{
	if (x->candidate && x->candidate != x->own && x->current.valid)
		refuse(x);
	if (x->conn != conn && x->env->now >= x->contest)
		settle(x, conn);
	if (x->env->now < x->home_due)
		return;
	x->home_due = x->env->now + HOME_EVERY;
	srdma_probe_home(x->qp);
}

/* RFC 5042 A5.1.2 */
void srdma_probe_follow(struct srdma_qp *qp, const struct srdma_packet *p,
			struct srdma_conn *conn)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	const int newest = p->pn == srdma_session_highest(srdma_qp_session(qp));
	const uint64_t size = srdma_limit_size(p->len);

	if (x->connect.trial)
		srdma_connect_proven(qp);
	hear(x, p, newest);
	if (!x->conn) {
		begin(x, conn, size);
		return;
	}
	if (x->conn == conn && x->current.valid && !x->candidate &&
	    x->env->now < x->home_due)
		return;
	srdma_limit_received(x, conn, size);
	if (!newest || srdma_qp_state(qp) == SRDMA_QP_ERR)
		return;
	if (srdma_path_same(x->conn, conn))
		stay(x, conn);
	else if (!x->candidate && x->env->now >= x->contest)
		contest(x, conn, size);
}

/* --- answers ------------------------------------------------------------------ */

static void present_answered(struct srdma_qp_path *x)
{
	const int valid = x->current.valid;

	x->current = (struct srdma_probe){ .valid = 1 };
	x->home_known |= (uint8_t)is_home(x);
	srdma_limit_lift(x);
	if (x->candidate && x->candidate != x->own)
		refuse(x);
	if (valid)
		return;
	srdma_connect_note(x->qp);
	if (srdma_inbound_busy(x->qp))
		srdma_inbound_progress(x->qp);
	srdma_path_arm(x->qp);
	srdma_qp_activate(x->qp);
}

/* 1: the present address did not answer its challenge. */
static int is_lost(const struct srdma_qp_path *x)
{
	return x->current.challenge && x->current.tries >= TRIES &&
	       x->env->now >= x->current.due;
}

static void candidate_answered(struct srdma_qp_path *x)
{
	const int home = x->candidate == x->own;

	x->other.valid = 1;
	x->other.challenge = 0;
	x->home_known |= (uint8_t)home;
	if (home || is_lost(x))
		change(x);
}

void srdma_probe_answered(struct srdma_qp *qp, uint32_t path)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	const uint32_t token = path & SRDMA_PATH_TOKEN;

	if (!token || !x->conn)
		return;
	if (token == x->current.challenge)
		present_answered(x);
	else if (x->candidate && token == x->other.challenge)
		candidate_answered(x);
}

/* --- timers -------------------------------------------------------------------- */

static uint64_t expire_present(struct srdma_qp_path *x, uint64_t now)
{
	struct srdma_probe *p = &x->current;

	if (!x->conn || (p->valid && !p->challenge))
		return SRDMA_NEVER;
	if (now < p->due)
		return p->due;
	if (x->candidate && x->candidate != x->own && p->tries >= TRIES) {
		if (x->other.valid)
			change(x);
		return SRDMA_NEVER;
	}
	ask(x, p, !x->candidate);
	return p->due;
}

static uint64_t expire_candidate(struct srdma_qp_path *x, uint64_t now)
{
	const int home = x->candidate == x->own;

	if (!x->candidate || x->other.valid)
		return SRDMA_NEVER;
	if (now < x->other.due)
		return x->other.due;
	if (x->other.tries >= TRIES) {
		refuse(x);
		return SRDMA_NEVER;
	}
	ask(x, &x->other, home);
	return x->other.due;
}

uint64_t srdma_probe_expire(struct srdma_qp *qp, uint64_t now)
{
	struct srdma_qp_path *x = srdma_qp_path(qp);
	uint64_t due;

	if (!x->conn || !srdma_path_is_one_way(x->conn))
		return SRDMA_NEVER;
	due = expire_present(x, now);
	due = srdma_time_earlier(due, expire_candidate(x, now));
	return srdma_time_earlier(due, srdma_limit_expire(x, now));
}

int srdma_probe_feeds(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->peer_limited;
}

int srdma_probe_owes(const struct srdma_qp *qp)
{
	return srdma_qp_path(qp)->answer_count != 0;
}

/* --- packets that leave ---------------------------------------------------------- */

uint32_t srdma_probe_word(struct srdma_qp_path *x, int other,
			  const struct srdma_packet *p)
{
	struct srdma_probe *to = other ? &x->other : &x->current;
	const uint32_t limited = x->current.valid ? 0 : SRDMA_PATH_LIMITED;

	switch (p->ack.kind) {
	case SRDMA_ACK_OPEN:
	case SRDMA_ACK_PING:
		if (!to->valid && !to->challenge)
			to->challenge = draw(x->env->paths);
		return to->challenge | limited;
	case SRDMA_ACK_ACK:
	case SRDMA_ACK_RNR:
		return (x->answer_count ? x->answers[0] : 0) | limited;
	default:
		return 0;
	}
}

void srdma_probe_answer_left(struct srdma_qp_path *x)
{
	for (int i = 1; i < x->answer_count; i++)
		x->answers[i - 1] = x->answers[i];
	x->answer_count -= x->answer_count > 0;
}
