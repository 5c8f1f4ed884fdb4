/*
 * The places of a UD QP for sessions (ud.h). All peers share them. No GID causes more
 * sessions than its own places, neither by calls nor by members of groups.
 */
#include <errno.h>
#include <string.h>

#include "verbs/ud.h"

/* 1: it has no QP any more, or one that has ended. */
static int is_over(const struct ud_session *s)
{
	return s->lost || (s->state == UD_FAILED && !s->qp);
}

/* 1: the session a gives way before b. */
static int is_before(const struct ud_session *a, const struct ud_session *b)
{
	return is_over(a) == is_over(b) ? a->used < b->used : is_over(a);
}

static int is_caused_by(const struct ud_session *s, const uint8_t *gid)
{
	return (s->incoming || s->copies) &&
	       !memcmp(s->gid, gid, sizeof(s->gid));
}

/* The session that gives way first, of those that a GID has caused, or of all if it is
 * NULL. NULL: they are fewer than `most`. */
static struct ud_session *first(const struct verbs_ud *ud, const uint8_t *gid,
				unsigned most)
{
	struct ud_session *found = NULL;
	unsigned n = 0;

	for (struct ud_session *s = ud->sessions; s; s = s->next) {
		if (gid && !is_caused_by(s, gid))
			continue;
		n++;
		if (!found || is_before(s, found))
			found = s;
	}
	return n < most ? NULL : found;
}

int ud_room_for(const struct verbs_ud *ud, const struct ud_name *peer,
		int incoming, struct ud_session **gives_way)
{
	struct ud_session *s = NULL;

	if (incoming || peer->pause)
		s = first(ud, peer->gid, UD_SESSIONS_GID);
	if (!s)
		s = first(ud, NULL, UD_SESSIONS);
	*gives_way = s;
	return s && peer->pause && !is_over(s) &&
			       ud_now() - s->used < UD_IN_USE_MS
		       ? -EBUSY
		       : 0;
}
