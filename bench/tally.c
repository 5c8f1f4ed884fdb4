#include "tally.h"

#include "rung.h"

void tally_begin(struct tally *t, const struct pair *p)
{
	for (int i = 0; i < 2; i++)
		t->before[i] = *srdma_relay_stats(p->side[i].relay);
}

/* Packets that both sides sent and received since tally_begin(). */
struct moved {
	uint64_t sealed[2], verified[2], bare_sent[2], bare_received[2];
};

static struct moved moved_since(const struct tally *t, const struct pair *p)
{
	struct moved m;

	for (int i = 0; i < 2; i++) {
		const struct srdma_stats *was = &t->before[i];
		const struct srdma_stats *is =
			srdma_relay_stats(p->side[i].relay);

		m.sealed[i] = is->packets_sealed - was->packets_sealed;
		m.verified[i] = is->packets_verified - was->packets_verified;
		m.bare_sent[i] = is->packets_unprotected_sent -
				 was->packets_unprotected_sent;
		m.bare_received[i] = is->packets_unprotected_received -
				     was->packets_unprotected_received;
	}
	return m;
}

/*
 * sent and received hold one count per side. 1 if side 0 sent and side 1
 * received at least n packets each, and responses were sent and received.
 */
static int exchanged(const uint64_t sent[2], const uint64_t received[2],
		     unsigned n)
{
	return sent[0] >= n && received[1] >= n && sent[1] && received[0];
}

static int none(const uint64_t sent[2], const uint64_t received[2])
{
	return !(sent[0] | sent[1] | received[0] | received[1]);
}

void tally_check(const struct tally *t, const struct pair *p, const char *rung,
		 unsigned n)
{
	const struct moved m = moved_since(t, p);

	if (p->level == SRDMA_LEVEL_NONE) {
		if (!exchanged(m.bare_sent, m.bare_received, n) ||
		    !none(m.sealed, m.verified))
			wrong(rung, "not all packets were unprotected");
		return;
	}
	if (!exchanged(m.sealed, m.verified, n) ||
	    !none(m.bare_sent, m.bare_received))
		wrong(rung, "not all packets were sealed and verified");
}

void tally_check_refused(const struct tally *t, const struct pair *p,
			 const char *rung, enum srdma_refusal why,
			 uint64_t forgeries)
{
	const struct srdma_stats *was = &t->before[1];
	const struct srdma_stats *is = srdma_relay_stats(p->side[1].relay);

	for (unsigned i = 0; i < SRDMA_REFUSED_COUNT; i++)
		if (is->refused[i] - was->refused[i] !=
		    (i == why ? forgeries : 0))
			wrong(rung, "the forgeries were not refused with the "
				    "expected reason");
}
